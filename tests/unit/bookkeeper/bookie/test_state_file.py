"""The state that a full disk still takes: deleted ledgers give their space back, whatever happens on the way."""

from __future__ import annotations

import pytest

from support.stores import SMALL, Store
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.steps import finished
from tallystick.errors import DiskFull
from tallystick.sim.disk import Crashed


def full_store() -> Store:
    """Three logs of a ledger each, entries in memory, and not a byte of space."""
    store = Store()
    for ledger in (5, 6, 7):
        store.fill(ledger, range(50))
        store.storage.checkpoint()
    store.fill(6, range(50, 60))
    store.fill(8, range(10))
    fill_up(store)
    with pytest.raises(DiskFull):
        store.storage.checkpoint()
    return store


def fill_up(store: Store) -> None:
    usage = store.disk.usage(store.ledger_dir)
    store.disk.capacity = usage.total - usage.free


def drop(store: Store) -> None:
    plan = store.storage.checkpoints.begin_collect([5, 6, 7, 8], {6, 8})
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    assert store.storage.checkpoints.sweep() == ()


def used(store: Store) -> int:
    return sum(store.disk.open(f"{store.ledger_dir}/{name}").size() for name in store.disk.listdir(store.ledger_dir))


def test_deleted_ledgers_give_back_a_full_disk_again_and_again() -> None:
    store = full_store()
    before = used(store)
    drop(store)
    assert all(store.has(6, entry) for entry in range(60)), "what no checkpoint could write is still in memory"
    assert store.storage.stats().entry_logs == 1
    assert used(store) < before / 2 + SMALL.state_spare_bytes
    fill_up(store)  # all that was given back is taken by something else
    plan = store.storage.checkpoints.begin_collect([6], {8})
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    store.power_loss()
    assert store.storage.read(6, 0)[0] == store.storage.read(6, 55)[0] == Code.NO_LEDGER
    assert all(store.has(8, entry) for entry in range(10))


@pytest.mark.parametrize("crash", ["power_loss", "kill"])
def test_a_crash_at_any_step_of_giving_back_a_full_disk_loses_nothing(crash: str) -> None:
    store = full_store()
    before = store.disk.operations
    drop(store)
    steps = store.disk.operations - before
    assert steps > 8
    for step in range(1, steps + 1):
        store = full_store()
        store.disk.crash_at = store.disk.operations + step
        with pytest.raises(Crashed):
            drop(store)
        getattr(store, crash)()
        for again in (False, True):
            assert all(store.has(6, entry) for entry in range(60)), f"crash at step {step}"
            assert all(store.has(8, entry) for entry in range(10))
            for ledger in (5, 7):
                codes = {store.storage.read(ledger, entry)[0] for entry in range(50)}
                assert codes in ({Code.NO_LEDGER}, set() if again else {Code.OK}), f"crash at step {step}"
            if not again:
                drop(store)
        assert store.storage.stats().entry_logs == 1


def test_a_ledger_made_again_after_it_was_dropped_has_none_of_the_entries_that_the_journal_still_has() -> None:
    store = Store()
    store.fill(5, range(10), b"old")
    plan = store.storage.checkpoints.begin_collect([5], ())
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    store.power_loss()
    # The id is in the metadata again, and a replay would find its entries.
    plan = store.storage.checkpoints.begin_collect([], {5})
    store.storage.checkpoints.write(plan)
    finished(store.storage.checkpoints.finish(plan))
    assert store.add(5, [0], b"new") == [Code.FENCED]
    store.storage.checkpoint()
    store.storage.collect([], {5})
    store.fill(5, [0], b"new")
    for reopen in (store.power_loss, store.restart):
        assert store.has(5, 0, b"new") and store.storage.read(5, 1)[0] == Code.NO_ENTRY
        reopen()


def test_the_room_is_that_of_a_state_twice_as_long_from_the_start_on() -> None:
    store = Store()
    for ledger in range(200):
        store.fill(ledger, [0])
    store.storage.checkpoint()
    path, spare = f"{store.ledger_dir}/state", f"{store.ledger_dir}/state.spare"
    for _ in range(2):
        assert store.disk.open(path).size() > SMALL.state_spare_bytes
        assert store.disk.open(spare).size() >= SMALL.state_spare_bytes + 2 * store.disk.open(path).size()
        store.disk.unlink(spare)
        store.restart()


def test_room_is_kept_from_the_start_on() -> None:
    store = full_store()
    store.disk.unlink(f"{store.ledger_dir}/state.spare")
    store.power_loss()
    fill_up(store)
    drop(store)
    assert store.storage.stats().entry_logs == 1
