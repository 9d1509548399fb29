"""Logs that cannot be read, or deleted, while space is collected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.stores import SMALL, Store
from tallystick.errors import StorageError


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
    plan = store.storage.begin_compaction()
    store.storage.write(plan)
    (damaged,) = store.storage.finish(plan)
    assert bad.startswith(f"{damaged.log:010x}") and "Input/output error" in damaged.reason
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
    plan = store.storage.begin_collect([5], ())
    store.storage.write(plan)
    store.storage.finish(plan)
    assert len(store.storage.sweep()) == len(store.storage.sweep()) == 1
    store.restart()  # what no state names and no log will be called costs space and nothing else
    store.disk.fault = None
    assert store.storage.sweep() == ()
    store.restart()
    assert not [name for name in store.disk.listdir(store.ledger_dir) if name.endswith((".log", ".index"))]
