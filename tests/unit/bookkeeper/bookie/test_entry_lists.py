"""Lists are made beside the loop, one after another, and bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.stores import Store
from support.workers import HeldWorker
from tallystick.bookkeeper.bookie import entry_lists
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code

Answers = list[tuple[Code, bytes]]


def encode(runs: Iterator[range]) -> bytes | None:
    """As text; lists of more than two runs are too long."""
    found = list(runs)
    return repr(found).encode() if len(found) <= 2 else None


@pytest.fixture
def worker() -> HeldWorker:
    return HeldWorker()


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def lists(worker: HeldWorker, errors: list[Exception]) -> EntryLists:
    return EntryLists(worker, encode, errors.append)


def stored(*entries: int) -> StoredIds:
    store = Store()
    store.fill(5, entries)
    found = store.storage.stored_ids(5)
    assert found is not None
    return found


def asked(lists: EntryLists, *entries: int) -> Answers:
    answers: Answers = []
    lists.list(stored(*entries), lambda code, ids: answers.append((code, ids)))
    return answers


def test_a_list_comes_later_and_one_that_no_response_can_hold_is_not_known(
    lists: EntryLists, worker: HeldWorker
) -> None:
    first, second = asked(lists, 0, 1, 5), asked(lists, 0, 2, 4)
    assert not first and not second
    worker.do_one()
    assert first == [(Code.OK, b"[range(0, 2), range(5, 6)]")] and not second
    worker.do_one()
    assert second == [(Code.IO_ERROR, b"")]


def test_lists_that_wait_are_bounded(lists: EntryLists, worker: HeldWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_lists, "MOST_WAITING", 2)
    waiting = [asked(lists, 0) for _ in range(2)]
    assert asked(lists, 0) == [(Code.TOO_MANY_REQUESTS, b"")] and waiting == [[], []]
    worker.do_one()
    assert asked(lists, 0) == []


def test_nobody_is_answered_once_they_are_closed(lists: EntryLists, worker: HeldWorker) -> None:
    answers = asked(lists, 0, 2)
    lists.close()
    worker.do_one()
    assert not answers


def test_a_bug_of_ours_is_told(worker: HeldWorker, errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(runs: Iterator[range]) -> bytes:
        raise ValueError("a bug")

    monkeypatch.setattr(entry_lists, "MOST_WAITING", 1)
    lists = EntryLists(worker, broken, errors.append)
    for count in (1, 2):  # and it takes no place of those that wait
        answers = asked(lists, 0)
        worker.do_one()
        assert not answers and [str(error) for error in errors] == ["a bug"] * count
