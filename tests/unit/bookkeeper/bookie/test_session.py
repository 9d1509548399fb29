"""One connection: pieces of frames, answers that nobody takes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.bookies import Home, adds, codes, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.service import NOW
from tallystick.bookkeeper.bookie.session import ADD_RESPONSE_BYTES, WAITING_BYTES, Session, SessionContext
from tallystick.bookkeeper.bookie.turns import TURN_S, Kind, TurnsCore
from tallystick.bookkeeper.bookie.wires import ServeResult, Wire
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import RemoteProtocolError


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


@dataclass
class Told:
    """A crowd and a transport in one: what a session says of the bytes that its peer has not taken."""

    waiting: int = 0
    told: list[tuple[int, bool]] = field(default_factory=list)

    def unsent(self, session: Session, size: int, taken: bool) -> None:
        self.told.append((size, taken))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


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

    assert look(2_400_000, written=5_000_000) == (5_000_000, True)
    assert look(2_400_000) == (5_000_000, False)
    assert look(1_000_000) == (5_000_000, True)
    assert look(2_000_000, written=1_000_000) == (6_000_000, False)
    assert look(900_000) == (1_000_000, True)
    assert look(900_000) == (1_000_000, False)
    assert look(1_000) == (0, True), "a little is not worth counting"
    count = len(told.told)
    look(1_000, written=500)
    assert len(told.told) == count


class Turned(Told):
    """A crowd, and a wire of which each read of the socket takes ``seconds``, for a session that is alone."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.time_s = seconds, 0.0
        self.buffer = memoryview(bytearray(1024))
        self.waits: list[tuple[Kind, bool]] = []
        self.served: list[bool] = []  # whether reads were
        self.congested = False
        self.turns: TurnsCore[Session] = TurnsCore(1.0)
        around: Any = self
        self.session = Session(SessionContext(around, around, self.turns, around, around))
        self.session._loop = around
        self.session.connection_made(around)

    def time(self) -> float:
        return self.time_s

    def wait(self, session: Session, kind: Kind) -> None:
        self.waits.append((kind, session.goes_on))

    def spoken(self, beginning: bytes) -> Wire:
        return cast(Wire, self)

    def is_read(self, data: bytes) -> bool:
        return data[5] == v2.Op.READ

    def serve(self, data: bytes, *, reads: bool, short: bool, has_time: object) -> ServeResult:
        self.served.append(reads)
        self.time_s += self.seconds
        return ServeResult(len(data))

    def came(self, frame: bytes) -> None:
        self.buffer[: len(frame)] = frame
        self.session.buffer_updated(len(frame))


async def test_a_read_does_not_wait_where_adds_do() -> None:
    """It waited among the adds first, behind all connections that had some, and then among the reads."""
    bench = Turned(0.0)
    bench.turns.spent(Kind.ADD, 1.0)
    bench.came(read(1, 0))
    assert (bench.served, bench.waits) == ([True], [])
    bench.came(adds(1, [0]))
    assert (bench.served, bench.waits) == ([True], [(Kind.ADD, False)])
    bench = Turned(0.0)
    bench.turns.spent(Kind.READ, 1.0)
    bench.came(read(1, 0))
    assert (bench.served, bench.waits) == ([], [(Kind.READ, False)])


async def test_what_was_taken_for_a_read_counts_as_one() -> None:
    """Else as many connections as there are might have a turn's time each in one turn."""
    bench = Turned(1.0)
    bench.came(read(1, 0))
    assert not bench.turns.admits(Kind.READ) and bench.turns.admits(Kind.ADD)
    bench.came(adds(1, [0]))
    assert not bench.turns.admits(Kind.ADD)


@pytest.mark.parametrize("seconds", [TURN_S / 20, TURN_S / 2])
async def test_who_had_more_than_a_little_to_do_goes_on(seconds: float) -> None:
    """A read of the socket that fills the buffer is served in one turn, and the next one is there already."""
    bench = Turned(seconds)
    bench.came(adds(1, [0]))
    bench.turns.spent(Kind.ADD, 1.0)
    bench.came(adds(1, [1]))
    assert bench.waits == [(Kind.ADD, seconds > TURN_S / 10)]


class Looking(Turned):
    """Each read of the socket has so many adds that wait for a look."""

    COUNT = 3000

    def __init__(self) -> None:
        super().__init__(0.0)
        self.kept = list[int]()
        self.go_on = list[Callable[[Verdict], None]]()
        self.is_room = True

    def has_room(self, more: int) -> bool:
        return self.is_room

    def unfinished(self, session: Session, size: int, progress: bool) -> None:
        self.kept.append(size)

    def serve(self, data: bytes, *, reads: bool, short: bool, has_time: object) -> ServeResult:
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

    def settle(self, frames: bytes, verdict: Verdict, *, short: bool, has_time: Callable[[], bool]) -> ServeResult:
        return self._one(frames)

    def serve(self, data: bytes, *, reads: bool, short: bool, has_time: object) -> ServeResult:
        if self.looks_next:
            return super().serve(data, reads=reads, short=short, has_time=has_time)
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
        self.turns.wait(kind, session, "host", goes_on=session.goes_on)


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
    bench.turns.spent(Kind.ADD, 2.0)
    bench.came(numbered(6, 6))
    for go_on in bench.go_on:
        go_on(Verdict.ADMIT)
    assert bench.written == responses(1, 1), "the others have turns"
    assert bench.kept[-1] == len(numbered(2, 6)) and bench.session.goes_on
    for count in range(2, 7):
        bench.turn()
        assert bench.written == responses(1, count)
    assert bench.kept[-1] == bench.session._held_bytes == 0 and bench.session._reading


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


async def test_of_a_peer_that_is_refused_nothing_is_kept() -> None:
    """Its connection may be there for long, as it takes no answers."""

    class Refusing(Looking):
        def serve(self, data: bytes, *, reads: bool, short: bool, has_time: object) -> ServeResult:
            return ServeResult(0, refusal=RemoteProtocolError("speaks something else"))

    bench = Refusing()
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

    def serve(self, data: bytes, *, reads: bool, short: bool, has_time: object) -> ServeResult:
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
    assert bench.written[2:] == [[b"another", b"here"]] and bench.session._held_bytes == 0
    bench.closing = True
    bench.deliver[0](b"too late")
    assert len(bench.written) == 3


async def test_what_is_deferred_is_answered_when_its_commit_is_written() -> None:
    bench = Waiting()
    bench.deferred = True
    bench.came(adds(1, [0]))
    assert not bench.written and bench.until_written == [([b"another"], 7)]
    assert bench.session._held_bytes == len(b"another")
    bench.session.deliver(bench.until_written[0][0])
    assert bench.written == [[b"another"]] and bench.session._held_bytes == 0


async def test_a_connection_goes_on_in_the_wire_that_it_turned_to() -> None:
    bench, other = Waiting(), Waiting()
    bench.next_wire = cast(Wire, other)
    bench.came(adds(1, [0]))
    bench.came(adds(1, [1]))
    assert (len(bench.owners), len(other.owners)) == (1, 1)
