"""One connection: pieces of frames, answers that nobody takes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.bookies import Home, adds, codes, read, talking
from support.sessions import Told, Turned
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.service import NOW
from tallystick.bookkeeper.bookie.session import Session, SessionContext
from tallystick.bookkeeper.bookie.turns import TURN_S, Kind
from tallystick.bookkeeper.bookie.wires import ServeResult, Wire
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import RemoteProtocolError
from tallystick.runtime.unsent_writes import WRITE_BYTES


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[Bookie]:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as made:
        yield made


async def test_a_frame_of_5_mib_arrives_in_pieces(bookie: Bookie) -> None:
    frame = adds(1, [0], random.Random(1).randbytes(5 * 1024 * 1024))
    async with talking(bookie) as peer:
        for at in range(0, len(frame), 700_001):
            peer.writer.write(frame[at : at + 700_001])
            await peer.writer.drain()
        stored = await peer.frame()
        assert stored is not None
        assert codes(stored) == [(v2.Op.ADD, Code.OK, 1, 0)]
        answer = await peer.answer(read(1, 0))
        assert bytes(answer.entry_bytes) == frame[28:]


async def test_a_peer_that_does_not_take_its_answers_is_not_read(bookie: Bookie) -> None:
    entries, asked = 20, 3000
    async with talking(bookie) as good:
        good.writer.write(adds(1, range(entries), bytes(100_000)))
        await good.reader.readexactly(entries * 28)
        async with talking(bookie) as slow:
            slow.writer.write(b"".join(read(1, number % entries) for number in range(asked)))
            await until(lambda: bookie.counts.reads > 0)
            before = -1
            while before != bookie.counts.reads:  # until it makes no progress any more
                before = bookie.counts.reads
                for _ in range(20):
                    assert await good.code(read(1, 0)) == Code.OK
                before += 20
            assert bookie.counts.reads < asked
            got = 0
            while got < asked:
                frame = await slow.frame()
                assert frame is not None
                got += 1


async def test_what_was_written_as_one_counts_until_all_of_it_is_taken() -> None:
    told: Any = Told()
    session = Session(SessionContext(told, told, told, told, told))
    session.connection_made(told)

    def look(waiting: int, written: int = 0) -> object:
        told.waiting = waiting
        if written:
            session.deliver([bytes(written)])
        else:
            session.look()
        return told.told[-1]

    assert look(2_400_000, written=5_000_000) == (5_000_000 + WRITE_BYTES, True)
    assert look(2_400_000) == (5_000_000 + WRITE_BYTES, False)
    assert look(1_000_000) == (5_000_000 + WRITE_BYTES, True)
    assert look(2_000_000, written=1_000_000) == (6_000_000 + 2 * WRITE_BYTES, False)
    assert look(900_000) == (1_000_000 + WRITE_BYTES, True)
    assert look(900_000) == (1_000_000 + WRITE_BYTES, False)
    assert look(1_000) == (1_000_000 + WRITE_BYTES, True), "it leaves a little, and all of it is held for that"
    assert look(0) == (0, True)
    count = len(told.told)
    look(500, written=500)
    assert len(told.told) == count, "a little is not worth counting"
    look(0)
    look(5_000_000, written=5_000_000)
    told.waiting = 0
    session.resume_writing()
    assert told.told[-1] == (0, True), "it took all: nobody goes for it until the next look"
    for number in range(1, 101):
        look(28 * number, written=28)
    assert told.told[-1] == (100 * (28 + WRITE_BYTES), False), "a loop takes more for a write than these have bytes"


async def test_what_a_closing_connection_has_to_send_counts_until_it_has_ended() -> None:
    """Who sends no more, or garbage, and takes nothing, had megabytes of each connection held for no bound."""

    class Closing(Told):
        closing = False

        def is_closing(self) -> bool:
            return self.closing

    told: Any = Closing(waiting=900_000)
    session = Session(SessionContext(told, told, told, told, told))
    session.connection_made(told)
    session.deliver([bytes(900_000)])
    told.closing = True
    session.look()
    assert told.told[-1] == (900_000 + WRITE_BYTES, False)
    session.connection_lost(None)
    told.told.clear()
    session.look()
    assert not told.told, "it was forgotten, and is not known again"


async def test_a_read_does_not_wait_where_adds_do() -> None:
    """It waited among the adds first, behind all connections that had some, and then among the reads."""
    bench = Turned(0.0)
    bench.turns.spent(Kind.ADD, 1.0, bench.session, bench.session.peer)
    bench.came(read(1, 0))
    assert (bench.served, bench.waits) == ([True], [])
    bench.came(adds(1, [0]))
    assert (bench.served, bench.waits) == ([True], [Kind.ADD])
    bench = Turned(0.0)
    bench.turns.spent(Kind.READ, 1.0, bench.session, bench.session.peer)
    bench.came(read(1, 0))
    assert (bench.served, bench.waits) == ([], [Kind.READ])


async def test_what_was_taken_for_a_read_counts_as_one() -> None:
    """Else as many connections as there are might have a turn's time each in one turn."""
    bench = Turned(1.0)
    bench.came(read(1, 0))
    assert not bench.turns.admits(Kind.READ) and bench.turns.admits(Kind.ADD)
    bench.came(adds(1, [0]))
    assert not bench.turns.admits(Kind.ADD)


async def test_adds_that_were_read_with_count_as_reads_whoever_gave_the_turn() -> None:
    """Else reads behind an add had the time of adds, which wait for no reader."""

    class Reading(Turned):
        def serve(
            self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
        ) -> ServeResult:
            return replace(super().serve(data, reads=reads, short=short, has_time=has_time, behind=behind), reads=True)

    bench = Reading(1.0)
    bench.came(adds(1, [0]))
    assert not bench.turns.admits(Kind.READ) and bench.turns.admits(Kind.ADD)


async def test_what_a_connection_used_is_charged_to_it_also_when_nobody_had_to_wait() -> None:
    bench = Turned(TURN_S)
    bench.came(adds(1, [0]))
    bench.turns.spent(Kind.ADD, 1.0, bench.session, bench.session.peer)
    for session in (bench.session, cast("Session", "another")):
        bench.turns.wait(Kind.ADD, session, bench.session.peer)
    assert [session for session, _ in bench.turns.begin()] == ["another", bench.session]


async def test_of_a_peer_that_is_refused_nothing_is_kept() -> None:
    """Its connection may be there for long, as it takes no answers."""

    class Refusing(Turned):
        def serve(
            self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
        ) -> ServeResult:
            return ServeResult(0, refusal=RemoteProtocolError("speaks something else"))

    bench = Refusing(0.0)
    bench.came(adds(1, [0]))
    assert not bench.kept


class Waiting(Turned):
    """Each read of the socket has a request that is answered later, or at once where ``here``."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.here = self.deferred = False
        self.until_written: list[tuple[list[bytes], int]] = []
        self.next_wire: Wire | None = None
        self.deliver: list[Callable[[bytes], None]] = []
        self.owners: list[object] = []
        self.written: list[list[bytes]] = []
        self.closing = False

    def serve(
        self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
    ) -> ServeResult:
        def begin(owner: object, deliver: Callable[[bytes], None]) -> None:
            self.owners.append(owner)
            self.deliver.append(deliver)
            if self.here:
                deliver(b"here")

        served = ServeResult(len(data), later=[begin], next_wire=self.next_wire)
        served.add_response(b"another", 7 if self.deferred else NOW, deferred=self.deferred)
        return served

    def hold_until_written(self, session: Session, responses: list[bytes], commit: int) -> None:
        assert session is self.session
        self.until_written.append((responses, commit))

    def writelines(self, responses: list[bytes]) -> None:
        self.written.append(list(responses))

    def is_closing(self) -> bool:
        return self.closing


async def test_what_comes_later_is_written_then_and_what_is_here_with_the_others() -> None:
    bench = Waiting()
    bench.came(adds(1, [0]))
    assert bench.written == [[b"another"]] and bench.owners == [bench.session]
    bench.deliver[0](b"later")
    assert bench.written == [[b"another"], [b"later"]] and bench.session._held_bytes == 0
    bench.here = True
    bench.came(adds(1, [1]))
    assert bench.written[2:] == [[b"anotherhere"]] and bench.session._held_bytes == 0
    bench.closing = True
    bench.deliver[0](b"too late")
    assert len(bench.written) == 3


async def test_what_is_deferred_is_answered_when_its_commit_is_written() -> None:
    bench = Waiting()
    bench.deferred = True
    bench.came(adds(1, [0]))
    assert not bench.written and bench.until_written == [([b"another"], 7)]
    assert not bench.kept, "acks are bounded with their adds"
    assert bench.session._held_bytes == len(b"another")
    bench.session.deliver(bench.until_written[0][0])
    assert bench.written == [[b"another"]] and bench.session._held_bytes == 0


async def test_small_responses_are_one_write_and_large_ones_are_not_copied() -> None:
    bench = Waiting()
    for size in (100, 5000):
        bench.session.deliver([bytes(size)] * 3)
    assert bench.written == [[bytes(300)], [bytes(5000)] * 3]


async def test_of_a_peer_that_has_gone_nothing_counts_any_more() -> None:
    """Nothing would take that back: its end was told before."""

    class Large(Waiting):
        def serve(
            self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
        ) -> ServeResult:
            served = ServeResult(len(data))
            served.add_response(bytes(100_000), 7, deferred=True)
            return served

    bench = Large()
    bench.congested = True
    bench.came(adds(1, [0]))
    assert bench.kept == [100_000]
    bench.closing = True
    bench.session.connection_lost(None)
    bench.session.resume()
    assert bench.kept == [100_000]


async def test_only_what_is_served_is_progress() -> None:
    """Of unfinished requests the oldest go first: who was served once was young for ever."""

    class Partly(Turned):
        def __init__(self) -> None:
            super().__init__(0.0)
            self.told_progress = list[bool]()

        def serve(
            self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
        ) -> ServeResult:
            return ServeResult(20, need=100)

        def unfinished(self, session: Session, size: int, progress: bool) -> None:
            self.told_progress.append(progress)

    bench = Partly()
    bench.came(adds(1, [0])[:24])
    bench.came(bytes(10))
    assert bench.told_progress == [True, False]


async def test_while_too_much_waits_for_the_disk_nothing_more_is_served() -> None:
    bench = Turned(0.0)
    bench.congested = True
    bench.came(adds(1, [0]))
    bench.congested = False
    bench.came(adds(1, [1]))
    assert len(bench.served) == 1 and not bench.session._reading
    bench.session.resume()
    assert len(bench.served) == 2 and bench.session._reading


async def test_a_connection_goes_on_in_the_wire_that_it_turned_to() -> None:
    bench, other = Waiting(), Waiting()
    bench.next_wire = cast(Wire, other)
    bench.came(adds(1, [0]))
    bench.came(adds(1, [1]))
    assert (len(bench.owners), len(other.owners)) == (1, 1)


async def test_a_connection_is_not_read_on_in_a_turn_in_which_much_came() -> None:
    """3,800 connections with half a frame each were a turn of 250 ms."""

    class Full(Turned):
        def received(self, nbytes: int, session: Session) -> memoryview:
            session.rest()
            return super().received(nbytes, session)

    bench = Full(0.0)
    bench.came(adds(1, [0])[:20])
    assert not bench.session._reading
    bench.session.read_on()
    assert bench.session._reading
