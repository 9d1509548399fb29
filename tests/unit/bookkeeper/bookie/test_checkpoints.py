"""What a checkpoint wrote goes into the index in parts, and is read from memory until all of it is there; when one is
due."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from support.stores import Store
from tallystick.bookkeeper.bookie import checkpoints, collector, ledgers, memtable
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.steps import finished


def test_what_a_checkpoint_wrote_goes_into_the_index_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one turn of the loop 100,000 ledgers took 0.2 s."""
    monkeypatch.setattr(checkpoints, "_PART_PIECES", 3)
    store = Store()
    for ledger in range(10):
        store.fill(ledger, range(2))
    plan = store.storage.checkpoints.begin()
    store.storage.checkpoints.write(plan)
    parts = 0
    for _ in store.storage.checkpoints.enter():
        parts += 1
        store.fill(100 + parts, [0])
        store.fill(parts, [2 + parts])
        for ledger in range(10):
            assert store.has(ledger, 0) and store.has(ledger, 1)
            assert store.storage.read(ledger, 2)[0] == Code.NO_ENTRY
    assert parts == 4
    finished(store.storage.checkpoints.finish(plan))
    store.storage.checkpoints.sweep()
    for check in (lambda: None, store.restart, store.storage.checkpoint, store.kill):
        check()
        assert all(store.has(ledger, entry) for ledger in range(10) for entry in range(2))
        assert all(store.has(100 + part, 0) and store.has(part, 2 + part) for part in range(1, 5))


def test_what_was_in_memory_is_freed_in_steps_in_which_all_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memtable, "FREED_AT_ONCE", 3)
    store = Store()
    for ledger in range(10):
        store.fill(ledger, [3])
        store.fill(ledger, [1])
    plan, count = store.storage.checkpoints.begin(), 0
    store.storage.checkpoints.write(plan)
    for count, _ in enumerate(store.storage.checkpoints.finish(plan), 1):
        store.fill(count, [0])
        assert all(store.has(ledger, 1) and store.has(ledger, 3) for ledger in range(10))
    assert count == 6 and plan.table is not None and not plan.table.ledgers
    assert all(store.has(ledger, 0) for ledger in range(1, 7))


def test_a_checkpoint_that_was_left_before_all_was_in_the_index_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_PART_PIECES", 3)
    store = Store()
    for ledger in range(10):
        store.fill(ledger, range(2))
    store.storage.checkpoints.write(store.storage.checkpoints.begin())
    next(store.storage.checkpoints.enter())
    store.storage.checkpoint()
    for check in (lambda: None, store.restart):
        check()
        assert all(store.has(ledger, entry) for ledger in range(10) for entry in range(2))


def test_a_commit_that_is_longer_than_the_journal_may_be_needs_one_checkpoint() -> None:
    store = Store()
    store.fill(5, range(4), bytes(store.settings.journal_bytes // 3))
    assert store.storage.checkpoints.due
    store.storage.checkpoint()
    assert store.storage.stats().journal_bytes >= store.settings.journal_bytes and not store.storage.checkpoints.due


def test_what_is_remembered_as_deleted_is_looked_through_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 of them took 0.1 s of a turn at each collection, and whenever an id changed hands."""
    for module in (checkpoints, ledgers):
        monkeypatch.setattr(module, "STEP_LEDGERS", 5)
    store = Store()
    store.settings = replace(store.settings, deleted_memory_ledgers=20)
    store.restart()
    for ledger in range(40):
        store.fill(ledger, [0])
    store.storage.checkpoint()
    store.storage.collect(range(30), ())
    storage = store.storage.checkpoints
    assert len(list(storage.collecting([], [3], ages=False))) <= 2, "for one id that changes hands nothing is looked at"
    steps, plan = storage.collecting(range(30, 40), range(25, 30)), None
    for parts in itertools.count():
        try:
            next(steps)
        except StopIteration as end:
            plan = end.value
            break
        store.fill(100 + parts, [0])
    assert parts >= 10 / 5 + 30 / 5, "those that are deleted, and those that are remembered"
    left = {*range(10, 25), *range(30, 40)}  # of the last ones the journal may have adds
    assert plan is not None and plan.state.deleted.keys() == left
    assert len(plan.forgotten) == 5
    storage.write(plan)
    assert len(list(storage.finish(plan))) == 5 / 5
    storage.sweep()
    for check in (lambda: None, store.restart, store.kill):
        check()
        assert store.storage._ledgers.deleted.keys() == left
        assert all(store.has(100 + part, 0) for part in range(parts))


def test_a_plan_takes_steps_by_ledgers_and_not_by_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each of 1,600 logs held checkpoints up for seconds on a busy bookie, and who waited for an id."""
    store = Store()
    for ledger in range(40):
        store.fill(ledger, [0])
        store.storage.checkpoint()
    assert len(store.storage._logs.logs) == 40
    assert len(list(store.storage.checkpoints.collecting([7], ()))) == 0
    monkeypatch.setattr(collector, "STEP_LEDGERS", 5)
    alive = {ledger: store.storage._ledgers.alive[ledger] for ledger in (1, 39)}
    steps = collector.logs_without_a_ledger(list(store.storage._logs.logs.values()), alive)
    assert 4 <= len(list(steps)) <= 40 // 5 * 2, "many dead ones are looked through in parts all the same"


def test_the_order_in_which_they_were_asked_for_survives_a_restart() -> None:
    store = Store()
    for ledger in (1, 2, 3):
        store.fill(ledger, [0])
    store.storage.checkpoint()
    store.storage.collect([1, 2, 3], ())
    store.storage.touch(1)
    store.storage.collect([], ())
    store.restart()
    assert list(store.storage._ledgers.deleted) == [2, 3, 1]
