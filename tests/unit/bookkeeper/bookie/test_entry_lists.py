"""Lists are made beside the loop, one after another, and bounded."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator

import pytest

from support.requesters import Asker
from support.stores import Store
from support.workers import HeldWorker
from tallystick.bookkeeper.bookie.entry_lists import MOST_OF_ONE, MOST_WAITING, EntryLists
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code

Answers = list[tuple[Code, bytes]]
REFUSED: Answers = [(Code.TOO_MANY_REQUESTS, b"")]


def encode(runs: Iterator[range]) -> bytes | None:
    """As text; lists of more than two runs are too long."""
    found = list(runs)
    return repr(found).encode() if len(found) <= 2 else None


class Room:
    def __init__(self) -> None:
        self.worker, self.errors, self.store, self.snapshots = HeldWorker(), list[Exception](), Store(), 0
        self.lists = EntryLists(self.worker, encode, self.errors.append)

    def snapshot(self) -> StoredIds | Code:
        self.snapshots += 1
        found = self.store.storage.stored_ids(5)
        return Code.NO_LEDGER if found is None else found

    def asked(self, owner: Asker) -> Answers:
        answers: Answers = []
        self.lists.list(owner, self.snapshot, lambda code, ids: answers.append((code, ids)))
        return answers


@pytest.fixture
def room() -> Room:
    made = Room()
    made.store.fill(5, [0, 1, 5])
    return made


def test_a_list_comes_later_and_one_that_no_response_can_hold_is_not_known(room: Room) -> None:
    first, second = room.asked(Asker()), room.asked(Asker())
    assert not first and not second and room.snapshots == 1, "the second one waits without a snapshot"
    room.store.fill(5, [3])
    room.worker.do_one()
    assert first == [(Code.OK, b"[range(0, 2), range(5, 6)]")] and not second and room.snapshots == 2
    room.worker.do_one()
    assert second == [(Code.IO_ERROR, b"")]


def test_of_a_ledger_that_is_not_there_any_more_no_list_is_made() -> None:
    room = Room()
    assert room.asked(Asker()) == room.asked(Asker()) == [(Code.NO_LEDGER, b"")]
    assert not room.worker.given


def test_the_lists_of_one_connection_that_wait_are_bounded_and_cost_nothing_when_refused(room: Room) -> None:
    owner = Asker()
    waiting = [room.asked(owner) for _ in range(1 + MOST_OF_ONE)]
    assert room.asked(owner) == REFUSED and not any(waiting) and room.snapshots == 1
    assert room.asked(Asker()) == []
    for _ in range(2):  # also the other one's
        room.worker.do_one()
    assert room.asked(owner) == []


async def test_no_host_takes_all_places(room: Room) -> None:
    """64 requests were enough that nobody else had a list, and no client of ours a force."""
    greedy = [Asker("greedy"), Asker("greedy")]
    room.asked(greedy[0])
    waiting = [room.asked(greedy[number % 2]) for number in range(MOST_WAITING)]
    assert room.asked(greedy[0]) == room.asked(Asker("greedy")) == REFUSED
    honest = room.asked(Asker("honest"))
    assert not any(waiting), "it is refused in a turn of its own"
    await asyncio.sleep(0)
    assert [answers for answers in waiting if answers] == [REFUSED], "the oldest one left for it"
    for _ in range(4):
        room.worker.do_one()
    assert honest == [(Code.OK, b"[range(0, 2), range(5, 6)]")], "hosts have their turns"


def test_who_asks_for_one_list_waits_for_no_round_of_those_that_ask_for_many(room: Room) -> None:
    """Not even behind connections of its own host."""
    greedy = [Asker("host") for _ in range(10)]
    for _ in range(4):
        for owner in greedy:
            room.asked(owner)
    for _ in range(20):  # each has had its first turn, and goes on
        room.worker.do_one()
    alone = room.asked(Asker("host"))
    for _ in range(3):
        room.worker.do_one()
    assert alone == [(Code.OK, b"[range(0, 2), range(5, 6)]")]


def test_a_connection_that_ended_leaves_its_places_and_no_list_of_it_is_made(room: Room) -> None:
    """Those of closed peers kept them for minutes."""
    gone = Asker()
    waiting = [room.asked(gone) for _ in range(1 + MOST_OF_ONE)]
    living = room.asked(Asker())
    room.lists.forget(gone)
    room.lists.forget(Asker())
    room.worker.do_one()
    room.worker.do_one()
    assert not any(waiting) and living == [(Code.OK, b"[range(0, 2), range(5, 6)]")]
    assert not room.worker.given and room.snapshots == 2


def test_who_has_had_lists_waits_for_two_of_each_newcomer(room: Room) -> None:
    """As if a list took no time it waited for all of them, some dozens of each host that had had none."""
    auditor = Asker("auditor")
    for _ in range(5):
        room.asked(auditor)
        room.worker.do_one()
    newcomers = [Asker(f"host{number}") for number in range(3)]
    waiting = [room.asked(newcomer) for _ in range(10) for newcomer in newcomers]
    answers = room.asked(auditor)
    while not answers:
        room.worker.do_one()
    assert sum(map(len, waiting)) <= 2 * len(newcomers)


def test_nothing_is_kept_of_a_connection_that_had_its_list_and_ended(room: Room) -> None:
    owner = Asker()
    assert room.asked(owner) == []
    room.worker.do_one()
    room.lists.forget(owner)
    gone = weakref.ref(owner)
    del owner
    assert gone() is None


def test_the_list_that_is_being_made_ends_with_its_connection(room: Room) -> None:
    found, owner = list[range](), Asker()

    def ended(runs: Iterator[range]) -> bytes:
        found.append(next(runs))
        room.lists.forget(owner)
        found.extend(runs)
        return b""

    room.lists._encode = ended
    answers = room.asked(owner)
    room.worker.do_one()
    assert found == [range(0, 2)] and not answers


def test_nobody_is_answered_once_they_are_closed(room: Room) -> None:
    answers = room.asked(Asker()), room.asked(Asker())
    room.lists.close()
    room.worker.do_one()
    assert answers == ([], []) and not room.worker.given


def test_a_bug_of_ours_is_told(room: Room) -> None:
    def broken(runs: Iterator[range]) -> bytes:
        raise ValueError("a bug")

    room.lists._encode, owner = broken, Asker()
    for count in range(1, 3 + MOST_OF_ONE):  # and it takes no place of those that wait
        answers = room.asked(owner)
        room.worker.do_one()
        assert not answers and [str(error) for error in room.errors] == ["a bug"] * count
