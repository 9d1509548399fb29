"""The simulated disk: what it shares with the real one, and what it does when things go wrong."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import BLOCK_BYTES, Disk, OsDisk, read_file
from tallystick.sim.disk import Crashed, SimDisk
from tallystick.sim.disk_content import DiskImage


@pytest.fixture(params=["real", "simulated"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return OsDisk(), str(tmp_path)
    disk = SimDisk(random.Random(1))
    disk.makedirs("/home")
    return disk, "/home"


def test_files_behave_alike(home: tuple[Disk, str]) -> None:
    disk, folder = home
    disk.makedirs(f"{folder}/a/b")
    disk.makedirs(f"{folder}/a/b")
    file = disk.open(f"{folder}/a/b/f", create=True)
    assert file.write([b"abc", bytearray(b"de"), memoryview(b"f")], 4) == 6
    assert file.size() == 10 and file.read(100, 0) == b"\0\0\0\0abcdef" and file.read(5, 20) == b""
    file.truncate(6)
    file.sync()
    assert disk.open(f"{folder}/a/b/f").read(9, 0) == b"\0\0\0\0ab"
    disk.rename(f"{folder}/a/b/f", f"{folder}/a/g")
    disk.sync_dir(f"{folder}/a")
    assert disk.listdir(f"{folder}/a") == ["b", "g"] and not disk.exists(f"{folder}/a/b/f")
    disk.unlink(f"{folder}/a/g")
    assert disk.listdir(f"{folder}/a") == ["b"]
    assert disk.usage(folder).free <= disk.usage(folder).total
    for missing in (lambda: disk.open(f"{folder}/no"), lambda: disk.unlink(f"{folder}/no")):
        with pytest.raises(StorageError):
            missing()
    with pytest.raises(StorageError):
        disk.open(f"{folder}/no/f", create=True)


def test_a_folder_is_held_by_one(home: tuple[Disk, str]) -> None:
    disk, folder = home
    held = disk.lock(folder)
    with pytest.raises(UsageError, match="another process uses this folder"):
        disk.lock(folder)
    held.release()
    disk.lock(folder).release()


def test_a_lock_dies_with_its_process() -> None:
    disk = SimDisk(random.Random(1))
    before = disk.lock("/")
    disk.kill()
    disk.lock("/")
    before.release()
    with pytest.raises(UsageError):
        disk.lock("/")


def test_whole_blocks_written_directly_are_read_like_others(home: tuple[Disk, str]) -> None:
    disk, folder = home
    data = random.Random(2).randbytes(600 * BLOCK_BYTES)  # more than one call writes past the page cache
    file = disk.open(f"{folder}/f", create=True, direct=True)
    assert file.write([data[:5], memoryview(data)[5:9999], data[9999:]], BLOCK_BYTES) == len(data)
    assert file.read(len(data) + 1, BLOCK_BYTES) == data and file.size() == BLOCK_BYTES + len(data)
    assert file.write([data[: 2 * BLOCK_BYTES]], 0) == 2 * BLOCK_BYTES, "over what was read, which is cached"
    file.sync()
    file.close()
    assert read_file(disk, f"{folder}/f") == data[: 2 * BLOCK_BYTES] + data[BLOCK_BYTES:]


def test_half_a_block_is_not_written_directly() -> None:
    file = SimDisk(random.Random(1)).open("/f", create=True, direct=True)
    with pytest.raises(AssertionError):
        file.write([bytes(BLOCK_BYTES - 1)], 0)


def test_a_file_system_without_direct_writes_gets_ordinary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    file = OsDisk().open(f"{tmp_path}/f", create=True, direct=True)
    assert file.write([b"any size"], 3) == 8 and file.read(11, 3) == b"any size"


def test_a_small_file_is_replaced_whole(home: tuple[Disk, str]) -> None:
    disk, folder = home
    for content in (b"first", b"second"):
        write_atomic(disk, f"{folder}/f", content)
        assert read_file(disk, f"{folder}/f") == content and disk.listdir(folder) == ["f"]


def new_file(disk: SimDisk, data: bytes, *, durable: bool) -> None:
    file = disk.open("/f", create=True)
    file.write([data], 0)
    if durable:
        file.sync()
        disk.sync_dir("/")


def test_a_kill_loses_nothing_and_a_power_loss_what_was_not_synced() -> None:
    fates = set()
    for seed in range(300):
        disk = SimDisk(random.Random(seed))
        new_file(disk, b"durable.", durable=True)
        disk.open("/f").write([b"cached"], 0)
        disk.kill()
        assert read_file(disk, "/f") == b"cachede."
        disk.power_loss()
        fates.add(read_file(disk, "/f"))
    assert {b"durable.", b"cachede."} < fates, "lost and kept"
    assert any(fate not in (b"durable.", b"cachede.") for fate in fates), "torn"
    assert all(new in (b"c", b"d") for new in {fate[:1] for fate in fates})


def test_a_name_needs_its_folder_to_be_synced() -> None:
    found = []
    for seed in range(40):
        disk = SimDisk(random.Random(seed))
        file = disk.open("/f", create=True)
        file.sync()
        disk.power_loss()
        found.append(disk.exists("/f"))
    assert set(found) == {True, False}


def test_a_failed_sync_loses_its_writes_for_good() -> None:
    disk = SimDisk(random.Random(1))
    new_file(disk, b"old", durable=True)
    file = disk.open("/f")
    file.write([b"new"], 0)
    disk.fault = lambda operation, path: StorageError("simulated") if operation == "sync" else None
    with pytest.raises(StorageError):
        file.sync()
    disk.fault = None
    file.sync()
    assert read_file(disk, "/f") == b"new"
    disk.power_loss()
    assert read_file(disk, "/f") == b"old"


def test_a_full_disk_writes_up_to_its_last_byte() -> None:
    disk = SimDisk(random.Random(1), capacity=10)
    file = disk.open("/f", create=True)
    file.write([b"12345678"], 0)
    with pytest.raises(DiskFull):
        file.write([b"abcd"], 8)
    assert read_file(disk, "/f") == b"12345678ab"
    file.write([b"ABCD"], 0)
    assert disk.usage("/").free == 0


def test_a_crash_stops_everything_at_its_operation() -> None:
    disk = SimDisk(random.Random(1))
    file = disk.open("/f", create=True)
    disk.crash_at = disk.operations + 2
    file.write([b"done"], 0)
    with pytest.raises(Crashed):
        file.write([b"half of this"], 4)
    for after in (file.sync, lambda: disk.open("/f"), lambda: disk.listdir("/")):
        with pytest.raises(Crashed):
            after()
    disk.kill()
    assert read_file(disk, "/f").startswith(b"done")
    with pytest.raises(Crashed):
        file.sync()


def test_a_flipped_bit_stays_flipped() -> None:
    disk = SimDisk(random.Random(1))
    new_file(disk, b"abc", durable=True)
    disk.flip("/f", 1, 0)
    disk.power_loss()
    assert read_file(disk, "/f") == b"acc"


def test_who_looks_changes_nothing() -> None:
    disk = SimDisk(random.Random(1))
    file = disk.open("/f", create=True)
    disk.crash_at = disk.operations + 1
    with disk.undisturbed():
        assert file.read(1, 0) == b""
    with pytest.raises(Crashed):
        file.read(1, 0)
    with pytest.raises(Crashed):
        read_file(disk, "/f")
    disk.kill()
    assert read_file(disk, "/f") == b""


def test_a_disk_becomes_what_it_was_and_leaves_the_image_for_another_time() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/home")
    disk.sync_dir("/")
    write_atomic(disk, "/home/kept", b"old")
    image = disk.image()
    file = disk.open("/home/kept")
    file.write([b"new"], 0)
    file.sync()
    write_atomic(disk, "/home/later", b"x")
    assert disk.files() == ["/home/kept", "/home/later"]
    disk.become(image)
    assert disk.files() == ["/home/kept"] and read_file(disk, "/home/kept") == b"old"
    with pytest.raises(Crashed):
        file.read(1, 0)


def test_an_empty_disk_takes_the_place_of_any() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/home")
    disk.sync_dir("/")
    write_atomic(disk, "/home/lost", b"x")
    disk.become(DiskImage())
    assert disk.files() == [] and not disk.exists("/home")
    disk.makedirs("/home")
    write_atomic(disk, "/home/new", b"y")
    assert read_file(disk, "/home/new") == b"y"
