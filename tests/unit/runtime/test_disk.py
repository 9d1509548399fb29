"""Files that are made whole before they are written, views of them, and the lock that Java knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, OsDisk, Usage
from tallystick.runtime.folder_lock import ByteLock


def test_an_allocated_file_is_zeros_and_its_view_shows_later_writes(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    file.allocate(10_000)
    view = file.map()
    assert (len(view), bytes(view[:4]), view.readonly) == (10_000, bytes(4), True)
    file.write([b"ab", b"cd"], 5000)
    assert bytes(view[4999:5005]) == b"\0abcd\0"
    file.allocate(100)
    assert file.size() == 10_000
    file.close()
    assert bytes(view[5000:5004]) == b"abcd"


def test_errors_are_ours(tmp_path: Path) -> None:
    file = OsDisk().open("/dev/full", create=False)
    with pytest.raises(DiskFull, match="cannot write"):
        file.write([b"x"], 0)
    with pytest.raises(StorageError, match="cannot allocate"):
        file.allocate(10)
    file.close()


def test_another_process_cannot_take_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    program = f"from tallystick.runtime.folder_lock import ByteLock; ByteLock({path!r}, b'lock')"
    lock = ByteLock(path, b"lock")
    refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "another process uses this folder" in refused.stderr
    lock.release()
    assert Path(path).read_bytes() == b"lock"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_usage_tells_reserved_blocks_from_used_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """``df`` on the same file system: 1K-blocks 400,000, used 160,000, available 220,000."""
    figures = SimpleNamespace(f_frsize=4096, f_blocks=100_000, f_bfree=60_000, f_bavail=55_000)
    monkeypatch.setattr(os, "statvfs", lambda _: figures)
    usage = OsDisk().usage("/anywhere")
    assert usage == Usage(total=409_600_000, free=225_280_000, reserved=20_480_000)
    assert usage.used == 163_840_000


@pytest.mark.parametrize("direct", [False, True])
def test_a_durable_file_reads_as_it_was_written(tmp_path: Path, direct: bool) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True, direct=direct, durable=True)
    file.write([b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES], 0)
    file.write([b"c" * BLOCK_BYTES], BLOCK_BYTES)
    assert file.read(3 * BLOCK_BYTES, 0) == b"a" * BLOCK_BYTES + b"c" * BLOCK_BYTES
    file.close()


@pytest.mark.parametrize("direct", [False, True])
def test_a_second_close_closes_nobody_elses_file(tmp_path: Path, direct: bool) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True, direct=direct)
    file.close()
    theirs = [os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT) for _ in range(2)]  # they get the free numbers
    file.close()
    with pytest.raises(StorageError, match="Bad file descriptor"):
        file.sync()
    for descriptor in theirs:
        assert os.write(descriptor, b"x") == 1
        os.close(descriptor)
