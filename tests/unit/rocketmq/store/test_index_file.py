"""The index against a dumb twin, over crashes at any moment."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from itertools import islice

import pytest

from support.message_stores import SMALL
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.index_file import PASSED, index_hash, index_hashes
from tallystick.sim.disk import Crashed, SimDisk

START_MS = 1_700_000_000_000


def opened(disk: SimDisk, dispatched: int) -> Index:
    index = Index(disk, "/index", SMALL)
    index.load(dispatched, discard_after_ms=None)
    return index


def opened_after_power_loss(disk: SimDisk, dispatched: int, rng: random.Random) -> Index:
    """Sometimes it comes again while what it did is mended."""
    while True:
        disk.power_loss()
        if rng.random() < 0.7:
            disk.crash_at = disk.operations + rng.randint(1, 40)
        try:
            index = opened(disk, dispatched)
        except Crashed:
            continue
        disk.crash_at = None
        return index


def disk_for(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/index")
    disk.sync_dir("/")
    return disk


def put(index: Index, keys: Sequence[tuple[int, int, int]]) -> None:
    """Keys by rows: hash, physical offset, store time."""
    hashes, physicals, stored_ms = zip(*keys, strict=True)
    index.put(hashes, physicals, stored_ms, START_MS)


def select(index: Index, key_hash: int, most: int, begin_ms: int, end_ms: int) -> list[int]:
    return list(islice((found for found in index.select(key_hash, begin_ms, end_ms) if found != PASSED), most))


@pytest.mark.parametrize("seed", range(80))
def test_after_any_crash_what_was_synced_is_found_and_the_rest_can_be_added_again(seed: int) -> None:
    rng = random.Random(seed)
    disk = disk_for(seed)
    keys = [(rng.randrange(12), number * 100, START_MS + number * 500) for number in range(150)]
    index, added, synced = opened(disk, 0), 0, 0
    for _ in range(4):
        disk.crash_at = disk.operations + rng.randint(1, 60)
        try:
            while added < len(keys):
                step = rng.randint(1, 9)
                put(index, keys[added : added + step])
                added = min(len(keys), added + step)
                if rng.random() < 0.3:
                    index.sync(index.take())
                    synced = added
        except Crashed:
            pass
        added = synced
        index = opened_after_power_loss(disk, synced * 100, rng)
        for key_hash in range(12):
            expected = [physical for found, physical, _ in reversed(keys[:synced]) if found == key_hash]
            assert select(index, key_hash, 1000, 0, 1 << 60) == expected, f"seed {seed}"


def test_a_sync_on_its_thread_takes_no_slot_of_an_entry_that_is_not_written() -> None:
    """Else power loss could leave a slot that points nowhere, and with it the end of its chain."""
    disk = disk_for(1)
    index = opened(disk, 0)
    put(index, [(5, 0, START_MS)])
    index.sync(index.take())
    put(index, [(6, 100, START_MS)])
    sync = threading.Thread(target=lambda: index.sync(index.take()))

    def meet(operation: str, path: str) -> None:
        if operation == "write":
            disk.fault = None
            sync.start()
            sync.join(0.2)

    disk.fault = meet
    put(index, [(5, 200, START_MS)])
    sync.join()
    index = opened_after_power_loss(disk, 100, random.Random(1))
    assert select(index, 5, 9, 0, 1 << 60) == [0]


def test_a_full_disk_changes_nothing() -> None:
    disk = disk_for(1)
    index = opened(disk, 0)
    put(index, [(5, 0, START_MS), (5, 100, START_MS)])
    disk.fault = lambda operation, path: DiskFull("no") if operation == "write" else None
    with pytest.raises(StorageError):
        put(index, [(5, 200, START_MS), (37, 200, START_MS)])
    disk.fault = None
    assert select(index, 5, 9, 0, 1 << 60) == [100, 0]
    put(index, [(5, 200, START_MS)])
    assert select(index, 5, 9, 0, 1 << 60) == [200, 100, 0]


def test_times_limit_what_is_found() -> None:
    index = opened(disk_for(1), 0)
    put(index, [(5, n * 100, START_MS + n * 1000) for n in range(10)])
    assert select(index, 5, 9, START_MS + 3000, START_MS + 5000) in ([500, 400, 300], [500, 400, 300, 200])
    assert select(index, 5, 2, 0, 1 << 60) == [900, 800]
    assert select(index, 6, 2, 0, 1 << 60) == []


def test_hashes_are_the_absolute_values_of_signed_ones() -> None:
    codes = (0, 7, (1 << 32) - 7, (1 << 31) - 1, 1 << 31)
    assert [index_hash(code) for code in codes] == index_hashes(codes) == [0, 7, 7, (1 << 31) - 1, 0]
