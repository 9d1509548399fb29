"""What writers say and readers ask about how far ledgers are confirmed, without a wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from support.machines import virtual_loop
from support.requesters import Asker
from support.stores import KEY, Store, scanned
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.lac_service import (
    ExplicitLacRequest,
    LacService,
    LastConfirmed,
    LongPollRequest,
    LongPollResponse,
)
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.service import (
    NOW,
    AddEntryRequest,
    AfterLook,
    Later,
    ReadEntryRequest,
    Service,
    ServiceResponse,
)
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, master_key
from tallystick.errors import StorageError
from tallystick.runtime.disk import Usage

OTHER = master_key(b"other")


def body(ledger: int, lac: int, digest: bytes = b"crc!") -> bytes:
    return ledger.to_bytes(8, "big", signed=True) + lac.to_bytes(8, "big", signed=True) + digest


def entry(ledger: int, number: int, lac: int) -> bytes:
    return ENTRY_HEADER.pack(ledger, number, lac, 1) + b"x"


@dataclass
class Room:
    """The services over one storage; ``looks`` says whether requests may wait for a look."""

    store: Store = field(default_factory=Store)
    guard: DiskGuard = field(default_factory=lambda: DiskGuard(0.95))
    counts: Counts = field(default_factory=Counts)
    looks: bool = False
    asker: Asker = field(default_factory=Asker)

    def __post_init__(self) -> None:
        recent, storage = RecentAdds(), self.store.storage
        fences = Fences(storage, self.counts, recent, 1000, looks=lambda more: False, tell=lambda: None)
        self.service = Service(
            storage, self.guard, fences, self.counts, recent, looks=lambda: False, look_at=lambda ledger: None
        )
        self.lacs = LacService(storage, self.guard, self.counts, self.service.polls, looks=lambda: self.looks)

    def add(self, ledger: int, number: int, lac: int, *, recovery: bool = False) -> None:
        request = AddEntryRequest(ledger, number, KEY, entry(ledger, number, lac), recovery)
        response = self.service.add(request)
        assert isinstance(response, ServiceResponse) and response.code == Code.OK

    def fence(self, ledger: int) -> None:
        response = self.service.read(ReadEntryRequest(ledger, -1, KEY))
        assert isinstance(response, ServiceResponse) and response.code in (Code.OK, Code.NO_ENTRY)

    def write(self, ledger: int, lac: int, key: bytes = KEY, lac_body: bytes | None = None) -> ServiceResponse:
        request = ExplicitLacRequest(ledger, lac, key, body(ledger, lac) if lac_body is None else lac_body)
        response = self.lacs.write_lac(request)
        assert isinstance(response, ServiceResponse)
        return response

    def confirmed(self, ledger: int) -> LastConfirmed:
        response = self.lacs.last_confirmed(ledger)
        assert isinstance(response, LastConfirmed)
        return response

    def begin(self, ledger: int, past: int, timeout_ms: int = 1000) -> list[LongPollResponse]:
        """Where the response is, or will be."""
        response = self.lacs.poll(LongPollRequest(ledger, past, timeout_ms))
        if isinstance(response, LongPollResponse):
            return [response]
        assert isinstance(response, Later)
        answers: list[LongPollResponse] = []
        response.begin(self.asker, answers.append)
        return answers

    def in_doubt(self, ledger: int) -> None:
        """What is stored may be another ledger's of this id."""
        self.store.storage.identities.note(ledger, 77)
        self.store.storage.identities.look_again()


@pytest.fixture
def room() -> Room:
    return Room()


# WRITE_LAC.


def test_an_explicit_lac_is_durable_before_the_response(room: Room) -> None:
    room.add(5, 0, -1)
    room.store.commit()
    response = room.write(5, 0)
    assert (response.code, response.commit) == (Code.OK, room.store.storage.newest_commit) and response.commit != NOW
    assert room.store.storage.staged
    assert room.write(5, -1).commit == response.commit, "what is kept is not durable yet"
    assert (room.counts.lac_writes, room.counts.lac_writes_failed) == (2, 0)


def test_who_may_not_write_one_changes_nothing(room: Room) -> None:
    room.add(5, 0, -1)
    assert room.write(5, 0, OTHER) == ServiceResponse(Code.UNAUTHORIZED)
    assert room.write(6, 0) == ServiceResponse(Code.NO_LEDGER)
    for ledger, lac, lac_body in (
        (-1, 0, body(-1, 0)), (5, -2, body(5, -2)), (5, 1, body(5, 0)), (5, 0, body(6, 0)), (5, 0, b""),
        (5, 0, body(5, 0, bytes(21))),
    ):  # fmt: skip
        assert room.write(ledger, lac, lac_body=lac_body) == ServiceResponse(Code.BAD_REQUEST)
    for free in (0, 3):  # the rest is kept for recovery
        room.guard.measured([Usage(total=100, free=free)])
        assert room.write(5, 0) == ServiceResponse(Code.READ_ONLY)
    assert room.store.storage.explicit_lac(5) is None and room.store.storage.ledger_ids() == [5]
    assert room.counts.lac_writes == room.counts.lac_writes_failed == 10


def test_a_fence_does_not_keep_it_out(room: Room) -> None:
    room.add(5, 0, -1)
    room.fence(5)
    assert room.write(5, 0).code == Code.OK


# READ_LAC.


def test_both_bodies_are_given_as_they_came(room: Room) -> None:
    room.add(5, 0, -1)
    assert room.confirmed(5) == LastConfirmed(Code.OK, None, entry(5, 0, -1))
    room.write(5, 0)
    assert room.confirmed(5) == LastConfirmed(Code.OK, body(5, 0), entry(5, 0, -1))
    assert (room.counts.lac_reads, room.counts.lac_reads_failed) == (2, 0)


def test_without_either_there_is_no_entry_and_without_an_entry_an_error(room: Room) -> None:
    assert room.confirmed(6) == LastConfirmed(Code.NO_ENTRY), "nor is the ledger, as the original says it"
    room.fence(5)
    assert room.confirmed(5) == LastConfirmed(Code.NO_ENTRY)
    room.write(5, 0)
    assert room.confirmed(5) == LastConfirmed(Code.IO_ERROR, body(5, 0))
    assert room.confirmed(-1) == LastConfirmed(Code.BAD_REQUEST)
    assert room.counts.lac_reads_failed == 4


@pytest.mark.rule("Q15")
def test_q15_an_entry_that_cannot_be_read_is_no_missing_one(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise StorageError("no such sector")

    room.add(5, 0, -1)
    room.store.commit()
    room.store.storage.checkpoint()
    monkeypatch.setattr(room.store.storage._logs, "_locate", unreadable)
    assert room.confirmed(5) == LastConfirmed(Code.IO_ERROR)
    assert room.begin(5, -1) == [LongPollResponse(Code.IO_ERROR)], "how far it goes is unknown"
    monkeypatch.setattr(room.store.storage, "read", unreadable)
    assert room.confirmed(5) == LastConfirmed(Code.IO_ERROR)
    assert room.write(5, 0).code == Code.OK
    assert room.begin(5, -1) == [LongPollResponse(Code.IO_ERROR)]


# Long polls.


def in_virtual_time(test: Callable[[Room], None], then: Callable[[Room], None] = lambda room: None) -> None:
    """``then`` comes ten seconds later."""

    async def run() -> None:
        room = Room()
        test(room)
        await asyncio.sleep(10)
        then(room)
        room.service.polls.close()

    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(run())


def test_a_poll_gets_the_entry_that_is_confirmed_already(room: Room) -> None:
    room.add(5, 0, -1)
    room.add(5, 1, 0)
    assert room.begin(5, -1) == [LongPollResponse(Code.OK, 0, 0, entry(5, 0, -1))]
    room.write(5, 1)
    assert room.begin(5, 0) == [LongPollResponse(Code.OK, 1, 1, entry(5, 1, 0))]
    assert (room.counts.long_polls, room.counts.long_polls_failed) == (2, 0)
    assert room.counts.read_bytes == 2 * 33


def test_without_a_time_out_nobody_waits(room: Room) -> None:
    room.add(5, 0, -1)
    for timeout_ms in (0, -1, -(1 << 63)):
        assert room.begin(5, 0, timeout_ms) == [LongPollResponse(Code.OK, -1)]


def test_a_confirmed_entry_that_is_not_here_is_told_by_the_lac_alone(room: Room) -> None:
    room.add(5, 3, 2)
    assert room.begin(5, 0) == [LongPollResponse(Code.OK, 2)]


def test_of_no_ledger_and_of_ids_that_none_has_nobody_waits(room: Room) -> None:
    assert room.begin(5, 0) == [LongPollResponse(Code.NO_LEDGER)], "others have its first entry"
    assert room.begin(5, -1, timeout_ms=0) == [LongPollResponse(Code.NO_LEDGER)]
    assert room.begin(-1, -1) == [LongPollResponse(Code.BAD_REQUEST)]
    assert room.begin(5, -2) == [LongPollResponse(Code.BAD_REQUEST)]
    room.fence(6)
    assert room.begin(6, -1, timeout_ms=0) == [LongPollResponse(Code.OK, -1)]
    assert room.counts.long_polls_failed == 4


def test_who_waits_for_the_first_entry_of_a_ledger_waits_before_it_is_here() -> None:
    """A reader of a new, idle ledger asked each bookie four times a second."""
    found: list[list[LongPollResponse]] = []

    def hear(room: Room) -> None:
        found.extend([room.begin(5, -1), room.begin(6, -1)])
        room.add(5, 0, -1)
        room.add(5, 1, 0)
        assert found == [[], []], "in the next turn, and at its time-out"

    in_virtual_time(hear)
    assert found == [[LongPollResponse(Code.OK, 0, 0, entry(5, 0, -1))], [LongPollResponse(Code.NO_LEDGER)]]


@pytest.mark.parametrize("how", ["add", "run", "recovery", "write"])
def test_what_is_heard_here_answers_a_poll(how: str) -> None:
    found: list[list[LongPollResponse]] = []

    def hear(room: Room) -> None:
        room.add(5, 0, -1)
        found.append(room.begin(5, -1))
        room.add(6, 1, 0)
        if how == "run":
            frames = [v2.AddFrame(ledger, 1, KEY, entry(ledger, 1, 0)).encode() for ledger in (7, 5)]
            assert room.service.add_run(*scanned(frames)).is_ok
        elif how == "write":
            assert room.write(5, 0).code == Code.OK
        else:
            room.add(5, 1, 0, recovery=how == "recovery")
        assert found == [[]], "in the next turn"

    in_virtual_time(hear)
    assert found == [[LongPollResponse(Code.OK, 0, 0, entry(5, 0, -1))]]


def test_what_came_right_behind_a_poll_answers_it_at_once() -> None:
    """One read of a socket may bring a poll and the entry for which it waits: all of it is served before polls are
    held, and this one waited for its time-out."""
    answers: list[LongPollResponse] = []

    def hear(room: Room) -> None:
        room.add(5, 0, -1)
        response = room.lacs.poll(LongPollRequest(5, -1, 60_000))
        assert isinstance(response, Later)
        room.add(5, 1, 0)
        response.begin(room.asker, answers.append)

    def count(room: Room) -> None:
        assert (room.counts.long_polls, room.counts.long_polls_waiting) == (1, 0)

    in_virtual_time(hear, count)
    assert answers == [LongPollResponse(Code.OK, 0, 0, entry(5, 0, -1))]


def test_a_fence_and_a_time_out_answer_with_what_is_known() -> None:
    found: list[list[LongPollResponse]] = []

    def hear(room: Room) -> None:
        room.add(5, 0, -1)
        room.add(6, 0, -1)
        found.extend([room.begin(5, 0, 1 << 62), room.begin(6, 0)])
        room.fence(5)
        room.add(6, 1, 0)

    def count(room: Room) -> None:
        assert (room.counts.long_polls, room.counts.long_polls_failed) == (2, 0)

    in_virtual_time(hear, count)
    assert found == [[LongPollResponse(Code.OK, -1)], [LongPollResponse(Code.OK, 0)]]


@pytest.mark.rule("Q15")
def test_q15_what_a_look_said_before_a_poll_waited_is_not_true_of_its_answer() -> None:
    """Another ledger may have the id by then, of which the LAC that is known here says nothing."""
    found: list[LongPollResponse] = []

    def hear(room: Room) -> None:
        room.add(5, 0, -1)
        response = room.lacs.poll(LongPollRequest(5, -1, 1000), Verdict.ADMIT)
        assert isinstance(response, Later)
        response.begin(room.asker, found.append)
        room.add(5, 1, 0)
        room.in_doubt(5)

    in_virtual_time(hear)
    assert found == [LongPollResponse(Code.IO_ERROR)]


@pytest.mark.parametrize("in_log", [False, True])
def test_neither_to_hold_one_nor_to_answer_without_an_entry_costs_a_read(
    monkeypatch: pytest.MonkeyPatch, in_log: bool
) -> None:
    """A thousand polls took seconds each time where the last entry had 5 MB."""
    found: list[list[LongPollResponse]] = []

    def hear(room: Room) -> None:
        room.add(5, 0, -1)
        room.fence(6)
        if in_log:
            room.store.commit()
            room.store.storage.checkpoint()
        for place, name in ((room.store.storage, "read"), (room.store.storage._logs, "entry")):
            monkeypatch.setattr(place, name, lambda *_: pytest.fail("an entry was read"))
        found.extend([room.begin(5, 0), room.begin(6, -1), room.begin(7, 0)])
        assert found == [[], [], [LongPollResponse(Code.NO_LEDGER)]]

    in_virtual_time(hear)
    assert found[:2] == [[LongPollResponse(Code.OK, -1)]] * 2


def test_one_too_many_is_answered_as_after_its_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hear(room: Room) -> None:
        room.service.polls._core._most_of_one = 1
        room.add(5, 0, -1)
        assert room.begin(5, 0) == []
        assert room.begin(5, 0) == [LongPollResponse(Code.OK, -1)]

    in_virtual_time(hear)


# Which ledger of the id it is.


def test_these_wait_for_a_look_where_the_ledger_may_be_another_one(room: Room) -> None:
    room.add(5, 0, -1)
    room.add(5, 1, 0)
    room.in_doubt(5)
    assert room.lacs.told_with(5) is None, "what a plain read gets beside its entry"
    poll, write = LongPollRequest(5, -1, 1000), ExplicitLacRequest(5, 1, KEY, body(5, 1))
    room.looks = True
    for asked in (room.lacs.poll(poll), room.lacs.write_lac(write), room.lacs.last_confirmed(5)):
        assert asked == AfterLook(5)
    for verdict in (Verdict.AMISS, Verdict.UNKNOWN):
        assert room.lacs.poll(poll, verdict) == LongPollResponse(Code.IO_ERROR)
        assert room.lacs.write_lac(write, verdict) == ServiceResponse(Code.IO_ERROR)
        assert room.lacs.last_confirmed(5, verdict) == LastConfirmed(Code.IO_ERROR)
    room.looks = False
    assert room.lacs.poll(poll) == LongPollResponse(Code.IO_ERROR), "nobody looks, and it is in doubt"
    room.store.storage.identities.looked(5, 77, written=True)
    assert room.lacs.told_with(5) == 0
    assert room.lacs.last_confirmed(5) == LastConfirmed(Code.OK, None, entry(5, 1, 0))
