"""The record of each sync: what a crash at any moment leaves of it, and the records of the version before."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.message_stores import store_disk
from tallystick.codec.checksum import crc32c
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.synced import SIDECAR, SyncedFile, SyncRecord, read_synced
from tallystick.runtime.disk import BLOCK_BYTES, OsDisk
from tallystick.sim.disk import Crashed, SimDisk

PATH = f"/store/{SIDECAR}"


@pytest.fixture
def disk() -> SimDisk:
    return store_disk()


def opened(disk: SimDisk) -> SyncedFile:
    file = SyncedFile(disk, "/store")
    disk.sync_dir("/store")
    file.write(SyncRecord(file_bytes=4096))
    return file


def nothing() -> None:
    pass


def test_a_sync_leaves_its_record_and_the_next_one_says_that_it_returned(disk: SimDisk) -> None:
    file = opened(disk)
    for before, tail, end, crc in ((0, 0, 100, 7), (100, 90, 150, 8)):
        file.sync(end, end - 10, crc, nothing)
        disk.power_loss()
        found = read_synced(disk, "/store")
        assert found is not None
        assert (found.synced, found.tail, found.end, found.crc) == (before, tail, end, crc)
        assert file.value is not None
        assert (file.value.synced, file.value.tail, file.value.end, file.value.crc) == (end, end - 10, end, 0)
        with disk.undisturbed():
            file = SyncedFile(disk, "/store")
            file.value = found.settle_at(end, end - 10)


def test_log_and_record_are_synced_in_no_order_and_both_are_waited_for() -> None:
    recorded = set()
    for seed in range(20):
        disk = store_disk(seed)
        file = opened(disk)
        during = []
        file.sync(100, 100, 7, lambda: during.append(read_synced(disk, "/store")))  # noqa: B023
        recorded.add(during[0].end if during[0] else -1)
        assert file.value is not None and file.value.synced == 100
    assert recorded == {0, 100}


def test_a_note_ends_the_doubt_about_the_newest_sync(disk: SimDisk) -> None:
    file = opened(disk)
    file.sync(100, 100, 7, nothing)
    assert file.in_doubt
    file.note(80, 60)
    assert not file.in_doubt
    disk.power_loss()
    found = read_synced(disk, "/store")
    assert found is not None
    assert (found.synced, found.end, found.dispatched, found.border) == (100, 100, 80, 60)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_power_loss_takes_the_record_before_the_last_is_there(seed: int) -> None:
    """Syncs, notes, and a crash in any of their steps: nothing that a sync promised is forgotten."""
    rng = random.Random(seed)
    disk = store_disk(seed)
    file = opened(disk)
    disk.crash_at = disk.operations + rng.randint(1, 40)
    returned = begun = 0
    with pytest.raises(Crashed):
        while True:
            begun = returned + rng.randint(1, 9)
            file.sync(begun, begun, begun, nothing)
            returned = begun
            if rng.random() < 0.3:
                file.note(returned, 0)
    disk.power_loss()
    found = read_synced(disk, "/store")
    assert found is not None
    assert found.synced <= returned <= found.end <= begun, f"seed {seed}"
    assert found.end in (found.synced, found.crc)
    again = SyncedFile(disk, "/store")
    again.write(found.settle_at(found.end, found.end))
    assert read_synced(disk, "/store") == again.value


def test_a_write_that_found_no_room_is_tried_again_in_the_same_slot(disk: SimDisk) -> None:
    """Else the next one would go over the only record that is whole."""
    file = opened(disk)
    file.note(1, 1)
    before = read_synced(disk, "/store")
    fault: Callable[[str, str], StorageError | None] = lambda operation, path: (  # noqa: E731
        DiskFull("no room", path=path) if operation == "write" else None
    )
    disk.fault = fault
    for _ in range(3):
        with pytest.raises(DiskFull):
            file.note(2, 2)
    disk.fault = None
    file.note(3, 3)
    found = read_synced(disk, "/store")
    assert found is not None and found.dispatched == 3
    disk.flip(PATH, (1 + found.number % 2) * BLOCK_BYTES + 20)  # as if it had been torn
    assert read_synced(disk, "/store") == before


def test_how_much_of_tally_queues_is_durable_outlives_other_notes(disk: SimDisk) -> None:
    """Else a shorter one would pass for one that a crash cut."""
    file = opened(disk)
    file.note(5, 5, (7, 100))
    file.note(6, 6)
    file.sync(10, 10, 0, nothing)
    file.settle()
    file.cut(9)
    found = read_synced(disk, "/store")
    assert found is not None and (found.number, found.queues) == (6, (7, 100))


def test_a_full_disk_at_the_sync_of_the_record_stops_the_log(disk: SimDisk) -> None:
    file = opened(disk)
    disk.fault = lambda operation, path: DiskFull("no room", path=path) if operation == "sync" else None
    with pytest.raises(StorageError, match="nobody knows") as caught:
        file.sync(10, 10, 0, nothing)
    assert not isinstance(caught.value, DiskFull)


def test_a_flipped_bit_is_no_number(disk: SimDisk) -> None:
    assert read_synced(disk, "/store") is None
    file = opened(disk)
    file.note(5, 5)
    disk.flip(PATH, BLOCK_BYTES + 20)
    found = SyncedFile(disk, "/store").value
    assert found is not None and found.number == 1
    disk.flip(PATH, 2 * BLOCK_BYTES + 20)
    assert SyncedFile(disk, "/store").value is None


def test_slots_are_in_blocks_of_their_own_and_made_beforehand(disk: SimDisk) -> None:
    file = opened(disk)
    size = disk.open(PATH).size()
    for number in range(5):
        file.sync(number + 1, number + 1, 0, nothing)
    assert disk.open(PATH).size() == size == 3 * BLOCK_BYTES


def test_a_record_of_the_version_before_is_read_once(disk: SimDisk) -> None:
    packed = struct.pack(">8s6q", b"TALLYST1", 9, 800, 700, 600, 16, 4096)
    older = struct.pack(">8s6q", b"TALLYST1", 8, 400, 300, 200, 16, 4096)
    with_crc = [record + struct.pack(">I", crc32c(record)) for record in (packed, older)]
    disk.open(PATH, create=True).write([with_crc[0].ljust(512, b"\0"), with_crc[1]], 0)
    assert read_synced(disk, "/store") == SyncRecord(9, 800, 600, 800, 0, 700, 600, 16, 4096)
    file = SyncedFile(disk, "/store")
    assert file.value == read_synced(disk, "/store")
    disk.sync_dir("/store")
    file.write(file.value.settle_at(900, 900) if file.value else SyncRecord())
    found = read_synced(disk, "/store")
    assert found is not None and (found.number, found.synced) == (10, 900)
    disk.flip(PATH, BLOCK_BYTES + 20)
    assert read_synced(disk, "/store") is None, "nothing of it is left to be believed"


def test_its_thread_ends_with_it(tmp_path: Path) -> None:
    file = SyncedFile(OsDisk(), str(tmp_path))
    file.write(SyncRecord(file_bytes=100))
    file.sync(10, 10, 0, lambda: None)
    assert "tally-synced" in [thread.name for thread in threading.enumerate()]
    file.close()
    assert "tally-synced" not in [thread.name for thread in threading.enumerate()]
