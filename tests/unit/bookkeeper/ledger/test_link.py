"""A connection that speaks another protocol than version 2: one whose answers bear the number of their request.

What asks, and what hears, is as it always is. And what is left of a connection.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import struct
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import pytest

from support.bookies import adds as add_frames
from support.links import AddLog, add_frame
from support.machines import machine
from support.waiting import until
from tallystick.bookkeeper.ledger.add_channel import AddChannel
from tallystick.bookkeeper.ledger.identity import Belief, Identity, IdentityCallback
from tallystick.bookkeeper.ledger.lanes import LaneName
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore, RequestKey
from tallystick.bookkeeper.ledger.owners import BookieResponse, Owner
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.wires import BatchRequest, BookieRequest, ReadRequest, ReportResponse
from tallystick.bookkeeper.wire.codes import Code
from tallystick.codec.frames import Buffer, scan_adds
from tallystick.errors import BookieUnavailable, RemoteProtocolError, RequestTimeout
from tallystick.runtime.events import Event, Events

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

ADD, READ = 1, 2
REQUEST = struct.Struct(">IqBqq")  # length, number, operation, ledger, entry
ANSWER = struct.Struct(">IqI")  # length, number, code; and what is stored


class Numbered:
    """The toy protocol, as a ``ClientWire``: each lane has a name of its own, and its requests have numbers."""

    def __init__(self, outstanding: OutstandingCore[Owner], report: ReportResponse) -> None:
        self._outstanding, self._report = outstanding, report
        self._lanes, self._numbers = itertools.count(1), itertools.count(1)
        self._in_lanes: dict[int, tuple[LaneName, int]] = {}
        self._alone: dict[int, tuple[RequestKey, int]] = {}

    def adds_name(self, ledger: int) -> LaneName:
        return ADD, next(self._lanes)

    def reads_name(self, ledger: int) -> LaneName:
        return READ, next(self._lanes)

    def adds(self, about: LaneName, entries: Sequence[int], frames: Iterable[OutgoingPiece]) -> Iterable[OutgoingPiece]:
        data = b"".join(bytes(part) for piece in frames for part in piece.parts)
        run, end = scan_adds(data, 0, len(data), len(data))
        assert (end, run.entries) == (len(data), list(entries))
        heads = (self._ask(about, ledger, entry) for ledger, entry in zip(run.ledgers, run.entries, strict=True))
        return [OutgoingPiece.of(b"".join(heads))]

    def reads(self, about: LaneName, ledger: int, entries: Sequence[int]) -> OutgoingPiece:
        return OutgoingPiece.of(b"".join(self._ask(about, ledger, entry) for entry in entries))

    def _ask(self, about: LaneName, ledger: int, entry: int) -> bytes:
        number = next(self._numbers)
        self._in_lanes[number] = about, entry
        return REQUEST.pack(REQUEST.size - 4, number, about[0], ledger, entry)

    def request(self, request: BookieRequest) -> tuple[RequestKey, OutgoingPiece]:
        assert not isinstance(request, BatchRequest), "it has none"
        number = next(self._numbers)
        key = 0, 0, number
        self._alone[number] = key, request.entry
        return key, OutgoingPiece.of(REQUEST.pack(REQUEST.size - 4, number, READ, request.ledger, request.entry))

    def run(self, buffer: bytearray, start: int, end: int) -> int:
        return start

    def take_response(self, body: bytes | bytearray) -> None:
        number, code = struct.unpack_from(">qI", body)
        data: Sequence[Buffer] = [memoryview(body)[12:]] if len(body) > 12 else ()
        if number in self._in_lanes:
            about, entry = self._in_lanes.pop(number)
            lane = self._outstanding.answered_in_lane(about, entry)
            owner = lane.owner if lane is not None else None
        elif number in self._alone:
            key, entry = self._alone.pop(number)
            request = self._outstanding.answered(key)
            owner = request.owner if request is not None else None
        else:
            raise RemoteProtocolError("an answer that nobody asked for", number=number)
        if owner is not None:
            self._report(owner, Code(code), [entry], data)


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, link: BookieLink) -> None:
        super().__init__()
        self._link, self.written = link, b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written += b"".join(bytes(part) for part in list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._link.connection_lost, None)


class Connected:
    """A link that speaks it, as a channel's peer; and the other end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        outside = machine(Events(self.events.append))
        self._link = BookieLink("b1", outside.clock, outside.events, 1 << 20, lambda link, reason: None, Numbered)
        self._transport = Transport(self._link)
        self._link.connection_made(self._transport)

    def link(self) -> BookieLink:
        return self._link

    def identify(self, link: BookieLink, answered: IdentityCallback) -> None:
        answered(None)

    def doubted(self, ledger: int, identity: Identity) -> None:
        raise AssertionError

    def channel(self, ledger: int, listener: AddLog, timeout_s: float = 5.0) -> AddChannel:
        return AddChannel(self, ledger, listener, 0, timeout_s, Belief())

    async def asked(self, count: int) -> list[tuple[int, int, int]]:
        """(operation, ledger, entry) of the requests; they are numbered from 1."""
        await until(lambda: len(self._transport.written) == count * REQUEST.size)
        found = list(REQUEST.iter_unpack(self._transport.written))
        assert [number for _, number, *_ in found] == list(range(1, count + 1))
        return [cast(tuple[int, int, int], (op, ledger, entry)) for _, _, op, ledger, entry in found]

    def say(self, *answers: tuple[int, Code, bytes]) -> None:
        """In one socket read."""
        data = b"".join(ANSWER.pack(12 + len(body), number, code) + body for number, code, body in answers)
        self._link.get_buffer(-1)[: len(data)] = data
        self._link.buffer_updated(len(data))


async def test_answers_are_told_apart_by_the_numbers_of_their_requests() -> None:
    """In any order, though all are about the same entry: version 2 has the oldest request answered first."""
    peer, old, new, run = Connected(), AddLog(), AddLog(), ReadRun([5, 6])
    peer.channel(1, old).send([5, 6], add_frames(1, [5, 6]))
    peer.channel(1, new).send([5], add_frames(1, [5]))
    peer.link().send_reads(1, run.entries, run, 5.0)
    first, second = peer.link().ask(ReadRequest(1, 5), 5.0), peer.link().ask(ReadRequest(1, 5), 5.0)
    expected = [(ADD, 1, 5), (ADD, 1, 6), (ADD, 1, 5), (READ, 1, 5), (READ, 1, 6), (READ, 1, 5), (READ, 1, 5)]
    assert await peer.asked(7) == expected
    peer.say((7, Code.OK, b"second"), (3, Code.FENCED, b""), (4, Code.OK, b"run"))
    assert await second == BookieResponse(Code.OK, [b"second"])
    assert (old.acked, new.failed, run.stored_entries) == ([], [([5], Code.FENCED)], {5: b"run"})
    peer.say((2, Code.OK, b""), (1, Code.OK, b""), (6, Code.NO_ENTRY, b""), (5, Code.IO_ERROR, b""))
    assert await first == BookieResponse(Code.NO_ENTRY)
    assert (old.acked, run.codes, new.acked) == ([[6, 5]], {6: Code.IO_ERROR}, [])
    assert peer.events == []


async def test_a_late_answer_is_that_of_its_own_request() -> None:
    peer, slow, again = Connected(), AddLog(), AddLog()
    peer.channel(1, slow, 0.05).send([5], add_frames(1, [5]))
    waiter = peer.link().ask(ReadRequest(1, 5), 0.05)
    other = peer.link().ask(ReadRequest(1, 6), 9.0)
    await asyncio.sleep(0.01)
    peer.say((3, Code.NO_ENTRY, b""))  # not silent
    with pytest.raises(RequestTimeout):
        await waiter
    assert (slow.failed, (await other).code) == ([([5], None)], Code.NO_ENTRY)
    peer.channel(1, again).send([5], add_frames(1, [5]))
    await peer.asked(4)
    peer.say((4, Code.OK, b""), (1, Code.FENCED, b""), (2, Code.OK, b"late"))
    assert (again.acked, again.failed, slow.failed) == ([[5]], [], [([5], None)])


@pytest.mark.rule("Q15")
async def test_q15_what_has_no_answer_is_unknown_in_any_protocol() -> None:
    peer, listener, run = Connected(), AddLog(), ReadRun([7])
    peer.channel(1, listener).send([5, 6], add_frames(1, [5, 6]))
    peer.link().send_reads(1, run.entries, run, 5.0)
    waiter = peer.link().ask(ReadRequest(1, 5), 5.0)
    await peer.asked(4)
    peer.say((2, Code.OK, b""), (77, Code.OK, b""))  # the latter nobody asked for
    with pytest.raises(BookieUnavailable, match="nobody asked"):
        await waiter
    assert (listener.acked, listener.failed, list(run.errors)) == ([[6]], [([5], None)], [7])
    assert [event.kind for event in peer.events] == ["bookie broke the protocol"]


@pytest.mark.real_time  # the transports of this machine let go of it
async def test_a_connection_that_has_ended_is_held_by_nothing(bench: Bench) -> None:
    """Also in no cycle: a server freezes what lives long, and then nobody looks for those any more."""
    [bookie] = await bench.bookie("b1")
    listener, client = AddLog(), bench.client()
    channel = client.adds("b1", 1, listener)
    gc.collect()
    gc.disable()
    try:
        channel.send([0], add_frame(bench, 1, 0))
        await client.read("b1", 1, 0)
        ended = weakref.ref(channel._link)
        bookie.connections[0].abort()
        await until(lambda: "bookie connection ended" in bench.kinds())
        channel.send([1], add_frame(bench, 1, 1))
        await client.read("b1", 1, 0)
        assert ended() is None
    finally:
        gc.enable()
