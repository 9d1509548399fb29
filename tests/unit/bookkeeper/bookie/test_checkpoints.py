"""What a checkpoint wrote goes into the index in parts, and is read from memory until all of it is there; when one is
due."""

from __future__ import annotations

import pytest

from support.stores import Store
from tallystick.bookkeeper.bookie import checkpoints
from tallystick.bookkeeper.wire.codes import Code


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
    store.storage.checkpoints.finish(plan)
    store.storage.checkpoints.sweep()
    for check in (lambda: None, store.restart, store.storage.checkpoint, store.kill):
        check()
        assert all(store.has(ledger, entry) for ledger in range(10) for entry in range(2))
        assert all(store.has(100 + part, 0) and store.has(part, 2 + part) for part in range(1, 5))


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
