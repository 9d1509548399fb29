from __future__ import annotations

import random

import pytest

from support.message_stores import store_disk
from tallystick.errors import CorruptRecord, DiskFull, RemoteProtocolError, StorageError
from tallystick.rocketmq.broker.config_files import TOPICS, ConfigFiles
from tallystick.runtime.disk import read_file
from tallystick.sim.disk import Crashed, SimDisk

PATH = "/store/config/topics.json"


def parse(text: bytes) -> str:
    if not text.startswith(b"good"):
        raise RemoteProtocolError("not good")
    return text.decode()


def put(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write([data], 0)
    file.sync()


@pytest.fixture
def disk() -> SimDisk:
    return store_disk()


def test_a_file_replaces_its_predecessor_and_keeps_it(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    assert files.load(TOPICS, parse) is None
    files.save(TOPICS, b"good 1")
    files.save(TOPICS, b"good 2")
    assert files.load(TOPICS, parse) == "good 2"
    assert read_file(disk, PATH + ".bak") == b"good 1"


@pytest.mark.parametrize("damage", [b"", b"  \n", b"\0" * 100, b"go"])
def test_the_predecessor_stands_in_for_a_damaged_file(disk: SimDisk, damage: bytes) -> None:
    files = ConfigFiles(disk, "/store")
    files.save(TOPICS, b"good 1")
    files.save(TOPICS, b"good 2")
    put(disk, PATH, damage)
    assert files.load(TOPICS, parse) == "good 1"
    files.save(TOPICS, b"good 3")
    assert read_file(disk, PATH + ".bak") == b"good 1"  # and never the damaged one


def test_the_original_leaves_only_the_predecessor_when_it_crashes(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    put(disk, PATH + ".bak", b"good 1")
    assert files.load(TOPICS, parse) == "good 1"
    assert read_file(disk, PATH) == b"good 1"


def test_damage_to_both_is_refused_and_says_what_to_do(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    put(disk, PATH, b"bad")
    put(disk, PATH + ".bak", b"bad")
    with pytest.raises(CorruptRecord, match=r"damaged, and so is its \.bak.*topics\.json"):
        files.load(TOPICS, parse)
    assert read_file(disk, PATH) == b"bad"


def test_a_save_that_fails_leaves_the_old_content(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    files.save(TOPICS, b"good 1")
    disk.fault = lambda operation, path: DiskFull("no room") if operation == "write" else None
    with pytest.raises(StorageError):
        files.save(TOPICS, b"good 2")
    disk.fault = None
    assert files.load(TOPICS, parse) == "good 1"


def test_a_save_that_fails_at_its_sync_leaves_the_file_where_it_was(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    files.save(TOPICS, b"good 1")
    files.save(TOPICS, b"good 2")
    disk.fault = lambda operation, path: DiskFull("no room") if operation == "sync" else None
    with pytest.raises(StorageError):
        files.save(TOPICS, b"good 3")
    disk.fault = None
    assert (read_file(disk, PATH), read_file(disk, PATH + ".bak")) == (b"good 2", b"good 1")


def test_what_an_earlier_save_left_is_no_part_of_the_next_one(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    put(disk, PATH + ".new", b"x" * 100)
    files.save(TOPICS, b"good 1")
    assert read_file(disk, PATH) == b"good 1"


def test_what_stands_after_a_failed_save_is_read_without_room_on_the_disk(disk: SimDisk) -> None:
    files = ConfigFiles(disk, "/store")
    files.save(TOPICS, b"good 1")
    disk.fault = lambda operation, path: DiskFull("no room") if operation == "write" else None
    for _ in range(2):
        with pytest.raises(StorageError):
            files.save(TOPICS, b"good 2")
        assert ConfigFiles(disk, "/store").load(TOPICS, parse) == "good 1"
    disk.fault = None
    files.save(TOPICS, b"good 3")
    assert (read_file(disk, PATH), read_file(disk, PATH + ".bak")) == (b"good 3", b"good 1")


@pytest.mark.parametrize("saves", [0, 1, 2])
def test_a_crash_at_any_moment_leaves_the_old_or_the_new_content(saves: int) -> None:
    crashes = 0
    for moment in range(1, 100):
        seed = random.randrange(1 << 32)
        disk = store_disk(seed)
        files = ConfigFiles(disk, "/store")
        for number in range(saves):
            files.save(TOPICS, f"good {number}".encode())
        disk.crash_at = disk.operations + moment
        try:
            files.save(TOPICS, b"good new")
            break
        except Crashed:
            crashes += 1
            disk.power_loss()
            old = f"good {saves - 1}" if saves else None
            assert ConfigFiles(disk, "/store").load(TOPICS, parse) in (old, "good new"), f"seed {seed}"
    assert crashes > 4
