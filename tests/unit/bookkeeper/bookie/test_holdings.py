"""What a bookie holds, without a wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.requesters import Asker
from support.stores import KEY, Store
from support.workers import HeldWorker
from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.holdings import EntryListResponse, Holdings
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.service import AfterLook, Later, ServiceResponse
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.disk import Usage


def encode(runs: Iterator[range]) -> bytes:
    return repr(list(runs)).encode()


class Room:
    def __init__(self) -> None:
        self.store, self.guard, self.counts, self.worker = Store(), DiskGuard(0.95), Counts(), HeldWorker()
        self.looks, self.errors = False, list[Exception]()
        lists = EntryLists(self.worker, encode, self.errors.append)
        self.holdings = Holdings(self.store.storage, self.guard, self.counts, lists, looks=lambda: self.looks)

    def entries(self, ledger: int, verdict: Verdict | None = None) -> list[EntryListResponse]:
        response = self.holdings.entries(ledger, verdict)
        if isinstance(response, EntryListResponse):
            return [response]
        assert isinstance(response, Later)
        answers: list[EntryListResponse] = []
        response.begin(Asker(), answers.append)
        assert not answers
        self.worker.do_one()
        return answers


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_force_waits_for_all_that_was_added_before(room: Room) -> None:
    assert room.holdings.force(7) == ServiceResponse(Code.OK, commit=0)
    room.store.add(5, [0])
    assert room.holdings.force(7) == ServiceResponse(Code.OK, commit=1)
    commit = room.store.storage.take()
    assert room.holdings.force(7) == ServiceResponse(Code.OK, commit=1), "it is not on the disk yet"
    room.store.add(5, [1])
    assert room.holdings.force(7) == ServiceResponse(Code.OK, commit=2)
    room.store.storage.commit(commit)
    assert room.counts.forces == 4


def test_the_room_is_that_of_the_ledger_folder(room: Room) -> None:
    assert room.holdings.space() == Usage(0, 0), "it was not measured yet"
    room.guard.measured([Usage(100, 30), Usage(200, 50)])
    assert room.holdings.space() == Usage(200, 50)
    assert room.counts.space_reads == 2


def test_all_entries_are_listed_from_memory_and_logs(room: Room) -> None:
    room.store.fill(5, [0, 1, 2, 9])
    room.store.storage.checkpoint()
    room.store.fill(5, [3, 12])
    assert room.entries(5) == [EntryListResponse(Code.OK, b"[range(0, 4), range(9, 10), range(12, 13)]")]
    room.store.storage.fence(6, KEY)
    assert room.entries(6) == [EntryListResponse(Code.OK, b"[]")]
    assert (room.counts.entry_lists, room.counts.entry_lists_failed) == (2, 0)


def test_of_no_ledger_and_of_ids_that_none_has_there_is_no_list(room: Room) -> None:
    assert room.entries(5) == [EntryListResponse(Code.NO_LEDGER)]
    assert room.entries(-1) == [EntryListResponse(Code.BAD_REQUEST)]
    assert room.counts.entry_lists_failed == 2


def test_a_list_waits_for_a_look_where_the_ledger_may_be_another_one(room: Room) -> None:
    room.store.fill(5, [0])
    room.store.storage.identities.note(5, 77)
    room.store.storage.identities.look_again()
    assert room.entries(5) == [EntryListResponse(Code.IO_ERROR)]
    room.looks = True
    assert room.holdings.entries(5) == AfterLook(5)
    for verdict in (Verdict.AMISS, Verdict.UNKNOWN):
        assert room.entries(5, verdict) == [EntryListResponse(Code.IO_ERROR)]
    room.store.storage.identities.looked(5, 77, written=True)
    assert room.entries(5, Verdict.ADMIT) == [EntryListResponse(Code.OK, b"[range(0, 1)]")]


def test_what_a_list_shows_is_there_when_it_is_made(room: Room) -> None:
    """Each that waited had a snapshot of its own: 64 of a ledger with ten million pages were 5 GB."""
    room.store.fill(5, [0])
    room.store.fill(6, [0])
    room.store.storage.identities.note(6, 77)
    answers: list[list[EntryListResponse]] = [[], [], []]
    for answer, ledger in zip(answers, (5, 5, 6), strict=True):
        response = room.holdings.entries(ledger)
        assert isinstance(response, Later)
        response.begin(Asker(), answer.append)
    room.store.fill(5, [1])
    room.store.storage.identities.look_again()
    room.worker.do_one()
    room.worker.do_one()
    listed = [EntryListResponse(Code.OK, b"[range(0, %d)]" % stop) for stop in (1, 2)]
    assert answers == [[listed[0]], [listed[1]], [EntryListResponse(Code.IO_ERROR)]], "the last may be another ledger"
