"""Logs that cannot be read, or deleted, while space is collected."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import replace
from typing import Any

import pytest

from support.stores import SMALL, Store
from tallystick.bookkeeper.bookie.collector import groups_to_rewrite, room_to_rewrite
from tallystick.bookkeeper.bookie.compaction import UnreadableLog
from tallystick.bookkeeper.bookie.ledgers import Ledger
from tallystick.bookkeeper.bookie.log_index import EntryLog
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.codec.steps import finished
from tallystick.errors import DiskFull, StorageError


@pytest.mark.parametrize("operation", ["read", "open"])
@pytest.mark.parametrize("ending", [".log", ".index"])
def test_a_log_that_the_disk_does_not_give_back_is_kept_and_told_and_the_others_are_rewritten(
    operation: str, ending: str
) -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for start in range(0, 80, 20):
        store.fill(5, range(start, start + 20))
        store.storage.checkpoint()
    bad = next(name for name in store.disk.listdir(store.ledger_dir) if name.endswith(ending))

    def fault(action: str, path: str) -> StorageError | None:
        return StorageError("simulated: Input/output error") if action == operation and path.endswith(bad) else None

    store.disk.fault = fault
    with pytest.raises(UnreadableLog, match="Input/output error") as unreadable:
        compaction = store.storage.checkpoints.begin_compaction(
            finished(store.storage.checkpoints.groups_to_rewrite())[0]
        )
        compaction.load()
        finished(store.storage.checkpoints.choosing(compaction))
        while compaction.copy() is not None:
            pass
    compaction.abandon()
    assert bad.startswith(f"{unreadable.value.log:010x}")
    store.storage.checkpoints.compact()
    assert (store.storage.stats().entry_logs, store.storage.stats().damaged_logs) == (2, 1)
    store.storage.collect([], {5})
    assert store.storage.stats().damaged_logs == 1, "it is read once a process, not at each collection"
    store.disk.fault = None
    assert all(store.has(5, entry) for entry in range(80))
    store.restart()
    assert all(store.has(5, entry) for entry in range(80))
    assert store.storage.collect([5], ()) == 1
    assert (store.storage.stats().entry_logs, store.storage.stats().damaged_logs) == (0, 0)


def test_a_log_that_fails_while_it_is_copied_leaves_nothing_half_written() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for start in range(0, 80, 20):
        store.fill(5, range(start, start + 20))
        store.storage.checkpoint()
    reads = 0

    def fault(action: str, path: str) -> StorageError | None:
        nonlocal reads
        reads += action == "read" and path.endswith("4.log")
        return StorageError("simulated") if reads > 2 and path.endswith("4.log") else None

    store.disk.fault = fault
    store.storage.collect([], {5})
    store.disk.fault = None
    assert store.storage.stats().damaged_logs == 1
    for reopen in (store.power_loss, store.restart):
        assert all(store.has(5, entry) for entry in range(80))
        assert store.storage.stats().entry_logs == 2
        reopen()


def test_a_file_that_cannot_be_deleted_is_told_and_tried_again() -> None:
    store = Store()
    store.fill(5, range(20))
    store.storage.checkpoint()

    def fault(action: str, path: str) -> StorageError | None:
        return StorageError("simulated", path=path) if action == "unlink" else None

    store.disk.fault = fault
    plan = store.storage.checkpoints.begin_collect([5], ())
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    assert len(store.storage.checkpoints.sweep()) == len(store.storage.checkpoints.sweep()) == 1
    store.restart()  # what no state names and no log will be called costs space and nothing else
    store.disk.fault = None
    assert store.storage.checkpoints.sweep() == ()
    store.restart()
    assert not [name for name in store.disk.listdir(store.ledger_dir) if name.endswith((".log", ".index"))]


def test_a_damaged_log_is_not_read_again_at_each_collection() -> None:
    store = Store()
    store.fill(5, range(2))
    store.fill(6, range(90))
    store.storage.checkpoint()
    reads = 0

    def fault(action: str, path: str) -> StorageError | None:
        nonlocal reads
        reads += action == "read" and path.endswith(".log")
        return StorageError("simulated") if action == "read" and path.endswith(".log") else None

    store.disk.fault = fault
    for _ in range(3):
        store.storage.collect([5, 6], {5})
    assert (reads, store.storage.stats().damaged_logs) == (1, 1)
    store.disk.fault = None
    store.restart()
    store.storage.collect([5, 6], {5})
    assert store.storage.stats().damaged_logs == 0
    assert all(store.has(5, entry) for entry in range(2))


def test_a_new_log_that_cannot_be_written_leaves_no_file() -> None:
    store = Store(settings=replace(SMALL, memtable_bytes=1 << 20))
    for start in range(0, 80, 20):
        store.fill(5, range(start, start + 20))
        store.storage.checkpoint()
    before = store.disk.listdir(store.ledger_dir)
    for operation, ending in itertools.product(("write", "sync"), (".log", ".index")):
        failing = operation, f"{store.storage._ledgers.next_log:010x}{ending}"

        def fault(action: str, path: str, failing: tuple[str, str] = failing) -> StorageError | None:
            return DiskFull("simulated") if (action, path.rpartition("/")[2]) == failing else None

        store.disk.fault = fault
        with pytest.raises(DiskFull):
            store.storage.checkpoints.compact()
        store.disk.fault = None
        assert store.disk.listdir(store.ledger_dir) == before
    assert all(store.has(5, entry) for entry in range(80))


def test_a_leftover_with_the_name_of_a_log_to_come_must_be_deleted() -> None:
    store = Store()
    store.fill(5, range(20))
    store.disk.open(f"{store.ledger_dir}/{store.storage._ledgers.next_log:010x}.index", create=True)
    store.disk.kill()
    store.disk.fault = lambda action, path: StorageError("simulated") if action == "unlink" else None
    with pytest.raises(StorageError, match="simulated"):
        store.open()
    store.disk.fault = None
    store.open()
    assert all(store.has(5, entry) for entry in range(20))


def test_logs_are_chosen_in_steps_of_some_ledgers() -> None:
    """300 logs with 10,000 ledgers in each took half a second of the loop."""
    asked = most = 0

    class Alive(dict[int, Ledger]):
        def get(self, *args: Any) -> Any:
            nonlocal asked, most
            asked += 1
            most = max(most, asked)
            return super().get(*args)

    logs = [EntryLog(number, 100, 1, array("q"), array("q"), dict.fromkeys(range(2500), 1)) for number in range(8)]
    for steps in (groups_to_rewrite(logs, Alive(), SMALL), room_to_rewrite(logs, Alive())):
        for _ in steps:
            asked = 0
    assert STEP_LEDGERS <= most < 2 * STEP_LEDGERS
