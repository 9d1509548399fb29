"""A disk that keeps no change."""

from __future__ import annotations

from pathlib import Path

from tallystick.runtime.disk import OsDisk
from tallystick.runtime.unwritten import UnwrittenDisk


def test_nothing_that_is_done_to_it_stays(tmp_path: Path) -> None:
    disk, here = UnwrittenDisk(OsDisk()), str(tmp_path)
    there = tmp_path / "there"
    there.write_bytes(b"0123456789")
    file = disk.open(str(there), direct=True)
    assert file.write([b"abc", memoryview(b"de")], 2) == 5
    file.truncate(1)
    file.allocate(4096)
    file.sync()
    assert file.read(20, 0) == b"0123456789" and file.size() == 10 and bytes(file.map()) == b"0123456789"
    file.close()
    new = disk.open(f"{here}/new", create=True)
    assert new.write([b"abc"], 0) == 3
    assert (new.size(), new.read(3, 0), bytes(new.map())) == (0, b"", b"")
    new.close()
    disk.makedirs(f"{here}/folder")
    disk.rename(str(there), f"{here}/elsewhere")
    disk.unlink(str(there))
    disk.remove_folder(here)
    disk.sync_dir(here)
    disk.sync_all(here)
    assert disk.listdir(here) == ["there"] and disk.sizes(here) == {"there": 10}
    assert disk.exists(str(there)) and not disk.exists(f"{here}/new")
    assert disk.size(str(there)) == 10 and disk.usage(here) == OsDisk().usage(here)
    assert disk.epoch() == OsDisk().epoch()
