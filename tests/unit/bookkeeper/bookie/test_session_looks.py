"""One connection, whose requests wait for looks."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

import pytest

from support.bookies import adds
from support.sessions import Told, Turned
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.session import ADD_RESPONSE_BYTES, WAITING_BYTES, Session
from tallystick.bookkeeper.bookie.turns import Kind
from tallystick.bookkeeper.bookie.wires import ServeResult, Wire


class Looking(Turned):
    """Each read of the socket has so many adds that wait for a look."""

    COUNT = 3000

    def __init__(self) -> None:
        super().__init__(0.0)
        self.go_on = list[Callable[[Verdict], None]]()
        self.is_room = True

    def has_room(self, more: int) -> bool:
        return self.is_room

    def serve(
        self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
    ) -> ServeResult:
        return ServeResult(len(data), to_look={1: [data] * self.COUNT})

    def hold(self, ledger: int, size: int, go_on: Callable[[Verdict], None], **_: object) -> None:
        self.go_on.append(go_on)

    def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
        served = ServeResult(len(frames))
        served.add_response(bytes(ADD_RESPONSE_BYTES * (len(frames) // len(adds(1, [0])))))
        return served


async def test_while_very_many_ledgers_wait_who_waits_for_a_look_is_not_read() -> None:
    """Each of them is some objects, which the collector of garbage looks through: 60 connections were turns of 246
    ms."""
    bench = Looking()
    bench.COUNT = 1
    bench.is_room = False
    bench.came(adds(1, [0]))
    assert len(bench.go_on) == 1 and not bench.session._reading
    bench.came(adds(1, [0]))
    assert len(bench.go_on) == 1
    bench.go_on.pop()(Verdict.ADMIT)
    assert len(bench.go_on) == 1, "its own was looked at"
    bench.is_room = True
    bench.go_on.pop()(Verdict.ADMIT)
    assert bench.session._reading


async def test_to_let_requests_wait_for_looks_is_part_of_a_turn() -> None:
    """It takes longer than to serve them: 600 connections with 300 adds each were turns of 140 ms."""

    class Slow(Looking):
        COUNT = 1

        def hold(self, ledger: int, size: int, go_on: Callable[[Verdict], None], **_: object) -> None:
            self.time_s += 2.0

    bench = Slow()
    bench.came(adds(1, [0]))
    assert not bench.turns.admits(Kind.ADD)


async def test_what_reads_behind_a_look_counts_as_a_read() -> None:
    """It had the time of adds, which wait for no reader."""

    class Reading(Looking):
        COUNT = 1

        def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
            self.time_s += 1.0
            return ServeResult(len(frames), reads=True)

    bench = Reading()
    bench.came(adds(1, [0]))
    bench.go_on.pop()(Verdict.ADMIT)
    assert not bench.turns.admits(Kind.READ) and bench.turns.admits(Kind.ADD)


async def test_what_waited_for_a_look_counts_until_it_is_answered_and_no_longer() -> None:
    bench = Looking()
    bench.came(adds(1, [0]))
    assert bench.kept == [ADD_RESPONSE_BYTES * bench.COUNT + WAITING_BYTES * len(bench.go_on)]
    assert len(bench.go_on) > 1, "so many are settled in several turns of the loop"
    while bench.go_on:
        bench.go_on.pop(0)(Verdict.ADMIT)
    assert bench.kept[-1] == 0
    assert bench.session._held_bytes == 0, "less than none would be room for others that are not taken"


@pytest.mark.rule("P1")
async def test_p1_what_waited_for_a_look_is_answered_with_the_commit_that_it_is_durable_with() -> None:
    class Storing(Looking):
        def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
            served = ServeResult(len(frames))
            served.add_response(b"stored", commit=7)
            served.add_response(b"stored later", commit=8)
            return served

    class Committing(Told):
        def hold(self, session: Session, answers: list[bytes], commit: int) -> None:
            held.append((answers, commit))

    held, bench = list[tuple[list[bytes], int]](), Storing()
    bench.session._around = replace(bench.session._around, committer=cast(Any, Committing()))
    bench.came(adds(1, [0]))
    bench.go_on.pop()(Verdict.ADMIT)
    assert held == [([b"stored", b"stored later"], 8)]


class Settling(Looking):
    """What waited for a look is answered by one request a call, each with its entry's number."""

    COUNT = 1

    def __init__(self) -> None:
        super().__init__()
        self.looks_next = True
        self.written = list[bytes]()
        self.behind = list[set[int]]()

    def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
        return self._one(frames)

    def serve(
        self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
    ) -> ServeResult:
        self.behind.append(set(behind))
        if self.looks_next:
            return super().serve(data, reads=reads, short=short, has_time=has_time, behind=behind)
        self.served.append(reads)
        return self._one(data)

    def _one(self, data: bytes) -> ServeResult:
        served = ServeResult(4 + int.from_bytes(data[:4], "big"))
        served.add_response(data[served.position - 8 : served.position])
        return served

    def writelines(self, responses: list[bytes]) -> None:
        self.written += responses

    def turn(self) -> None:
        for session, kind in self.turns.begin():
            session.go_on(kind)

    def wait(self, session: Session, kind: Kind) -> None:
        super().wait(session, kind)
        self.turns.wait(kind, session, "host")


def responses(first: int, last: int) -> list[bytes]:
    return [bytes([number]) * 8 for number in range(first, last + 1)]


def numbered(first: int, last: int) -> bytes:
    """Adds of which each ends in its number, eight times."""
    return b"".join(adds(1, [0], response) for response in responses(first, last))


async def test_what_a_turn_has_no_time_for_after_a_look_comes_before_what_came_later() -> None:
    bench = Settling()
    bench.came(numbered(1, 3))
    bench.came(numbered(4, 5))
    bench.looks_next = False
    bench.turns.spent(Kind.ADD, 2.0, bench.session, "host")
    bench.came(numbered(6, 6))
    for go_on in bench.go_on:
        go_on(Verdict.ADMIT)
    assert bench.written == responses(1, 1), "the others have turns"
    assert bench.kept[-1] == len(numbered(2, 6))
    for count in range(2, 7):
        bench.turn()
        assert bench.written == responses(1, count)
    assert bench.kept[-1] == bench.session._held_bytes == 0 and bench.session._reading


async def test_what_waits_behind_what_is_put_back_is_put_back_too() -> None:
    """A look let it go on when the others were looked at again, and had the worse place."""
    bench = Settling()
    bench.came(numbered(1, 2))
    bench.came(numbered(3, 3))
    bench.go_on[0](Verdict.ADMIT)
    assert bench.written == responses(1, 1)
    bench.turn()  # the second is to be looked at again
    assert len(bench.go_on) == 3 and bench.behind[-1] == set()
    bench.go_on[1](Verdict.ADMIT)
    assert bench.written == responses(1, 1), "of the third nothing waits for this look any more"
    bench.turn()
    assert len(bench.go_on) == 4 and bench.behind[-1] == {1}
    for go_on in bench.go_on[2:]:
        go_on(Verdict.ADMIT)
    assert bench.written == responses(1, 3)
    assert bench.kept[-1] == bench.session._held_bytes == 0 and not bench.session._waiting


async def test_a_peer_that_takes_nothing_gets_nothing_after_a_look_either() -> None:
    bench = Settling()
    bench.came(numbered(1, 2))
    bench.looks_next = False
    bench.session.pause_writing()
    bench.go_on.pop()(Verdict.ADMIT)
    bench.turn()
    assert not bench.written and bench.kept[-1] == len(numbered(1, 2))
    bench.session.resume_writing()
    bench.turn()
    assert bench.written == responses(1, 2) and bench.kept[-1] == 0


async def test_what_comes_back_from_a_look_is_in_the_wire_that_it_came_in() -> None:
    """The connection turned to version 2 meanwhile."""
    bench, other = Settling(), Settling()
    bench.came(numbered(1, 2))
    bench.looks_next = other.looks_next = False
    bench.session._unserved.turn_to(cast(Wire, other))
    bench.go_on.pop()(Verdict.ADMIT)
    bench.turn()
    bench.came(numbered(3, 3))
    assert (len(bench.served), len(other.served)) == (1, 1)
