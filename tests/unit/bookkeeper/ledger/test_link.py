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
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from support.bookies import adds as add_frames
from support.links import AddLog, add_frame
from support.machines import machine
from support.waiting import until
from tallystick.bookkeeper.ledger import link as link_module
from tallystick.bookkeeper.ledger.add_channel import AddChannel
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.identity import Belief, Identity, IdentityCallback
from tallystick.bookkeeper.ledger.lanes import LaneName
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore, RequestKey
from tallystick.bookkeeper.ledger.owners import BookieResponse, Owner
from tallystick.bookkeeper.ledger.read_run import ReadRun
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.wire_v2 import ClientWireV2
from tallystick.bookkeeper.ledger.wire_v3 import ClientWireV3
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

    read_bytes = 100_000

    def __init__(self, outstanding: OutstandingCore[Owner], report: ReportResponse) -> None:
        self._outstanding, self._report = outstanding, report
        self._lanes, self._numbers = itertools.count(1), itertools.count(1)
        self._in_lanes: dict[int, tuple[LaneName, int]] = {}
        self._alone: dict[int, tuple[RequestKey, int]] = {}

    def adds_name(self, ledger: int, number: int) -> LaneName:
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

    def take_response(self, body: Buffer) -> None:
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

    connection, bookie, times = 1, "b1", None

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
        return AddChannel(self, ledger, listener, 0, timeout_s, Belief(), ledger)

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
    peer.link().send_reads(peer.link().add_read_lane(1, run), 1, run.entries, 5.0)
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


async def test_a_read_of_the_socket_takes_as_much_as_the_protocol_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand followers of one bookie have their answers in one moment."""
    monkeypatch.setattr(Numbered, "read_bytes", 50)
    peer = Connected()
    link = peer.link()
    futures = [link.ask(ReadRequest(1, entry), 5.0) for entry in range(3)]
    await peer.asked(3)
    bodies = [b"a" * 10, b"b" * 170, b"c" * 5]
    data = b"".join(ANSWER.pack(12 + len(body), number, Code.OK) + body for number, body in enumerate(bodies, 1))
    reads = 0
    while data:
        space = link.get_buffer(-1)
        assert 0 < len(space) <= 50
        part, data = data[: len(space)], data[len(space) :]
        space[: len(part)] = part
        link.buffer_updated(len(part))
        reads += 1
        assert futures[0].done() and futures[1].done() == (reads > 4)
    assert [bytes(response.entries[0]) for response in await asyncio.gather(*futures)] == bodies
    assert ClientWireV3.read_bytes < ClientWireV2.read_bytes <= link_module.READ_BUFFER_BYTES


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
    peer.link().send_reads(peer.link().add_read_lane(1, run), 1, run.entries, 5.0)
    waiter = peer.link().ask(ReadRequest(1, 5), 5.0)
    await peer.asked(4)
    peer.say((2, Code.OK, b""), (77, Code.OK, b""))  # the latter nobody asked for
    with pytest.raises(BookieUnavailable, match="nobody asked"):
        await waiter
    assert (listener.acked, listener.failed, list(run.errors)) == ([[6]], [([5], None)], [7])
    assert [event.kind for event in peer.events] == ["bookie broke the protocol"]


async def test_a_request_with_less_time_than_those_before_it_is_overdue_in_its_own() -> None:
    peer = Connected()
    long, short = peer.link().ask(ReadRequest(1, 5), 50.0), peer.link().ask(ReadRequest(1, 6), 0.05)
    begun = asyncio.get_running_loop().time()
    with pytest.raises(RequestTimeout):
        await short
    assert asyncio.get_running_loop().time() - begun < 0.06, "in virtual time"
    with pytest.raises(BookieUnavailable, match="silent"):
        await long


@pytest.mark.parametrize("in_lanes", [False, True])
async def test_a_peer_that_leaves_too_many_requests_without_an_answer_is_let_go(
    in_lanes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers others, so that it is not silent, and each of those stays here for its late answer."""
    monkeypatch.setattr(link_module, "MAX_ABANDONED", 2)
    peer, heard, asked = Connected(), AddLog(), 0
    for number in range(3):
        assert peer.link().alive
        if in_lanes:
            peer.channel(1, heard, 0.05).send([number], add_frames(1, [number]))
            unanswered = None
        else:
            unanswered = peer.link().ask(ReadRequest(1, number), 0.05)
        peer.link().ask(ReadRequest(2, number), 0.05)
        asked += 2
        await peer.asked(asked)
        peer.say((asked, Code.NO_ENTRY, b""))
        await asyncio.sleep(0.06)
        assert unanswered is None or isinstance(unanswered.exception(), RequestTimeout)
    assert not peer.link().alive
    assert heard.all_failed == ([0, 1, 2] if in_lanes else [])


async def test_what_the_peer_does_not_take_waits_here_and_senders_see_it() -> None:
    peer = Connected()
    link = peer.link()
    assert not link.blocked
    link.pause_writing()
    waiter = link.ask(ReadRequest(1, 5), 5.0)
    await asyncio.sleep(0)
    assert link.blocked and (link.queued_bytes, link.written_bytes) == (REQUEST.size, 0)
    link.resume_writing()
    assert await peer.asked(1) == [(READ, 1, 5)] and not link.blocked
    peer.say((1, Code.NO_ENTRY, b""))
    assert (await waiter).code == Code.NO_ENTRY


async def test_a_late_request_is_made_when_the_peer_takes_it() -> None:
    peer, ready = Connected(), list[int]()
    link = peer.link()

    def make(entry: int) -> ReadRequest | None:
        ready.append(entry)
        return ReadRequest(1, entry) if entry < 8 else None

    link.pause_writing()
    first = link.ask(ReadRequest(1, 5), 5.0)
    second, none, given_up = (link.ask_late(partial(make, entry), 5.0) for entry in (7, 8, 6))
    given_up.cancel()
    await asyncio.sleep(0)
    assert not ready
    link.resume_writing()
    assert await peer.asked(2) == [(READ, 1, 5), (READ, 1, 7)]
    assert ready == [7, 8] and none.cancelled()
    peer.say((1, Code.NO_ENTRY, b""), (2, Code.NO_ENTRY, b""))
    assert [(await waiter).code for waiter in (first, second)] == [Code.NO_ENTRY] * 2
    at_once = link.ask_late(partial(make, 1), 5.0)
    assert ready[2:] == [1]
    link.pause_writing()
    late = link.ask_late(partial(make, 2), 5.0)
    link.end("it closed")
    for waiter in (at_once, late):
        with pytest.raises(BookieUnavailable, match="it closed"):
            await waiter
    assert ready[3:] == []


async def test_a_connection_that_comes_when_its_link_has_ended_is_closed() -> None:
    """Else it would stay open for as long as the bookie keeps it, and who closes the client would wait for it."""
    outside = machine(Events())
    link = BookieLink("b1", outside.clock, outside.events, 1 << 20, lambda link, reason: None, Numbered)
    waiter = link.ask(ReadRequest(1, 5), 5.0)
    link.end("this client is closed")
    transport = Transport(link)
    link.connection_made(transport)
    assert not link.disconnected.is_set()
    await asyncio.wait_for(link.disconnected.wait(), 1.0)
    assert transport.written == b""
    with pytest.raises(BookieUnavailable):
        await waiter


async def test_who_gave_its_request_up_is_in_nobodys_way_when_the_answer_comes_or_does_not() -> None:
    peer = Connected()
    answered, unanswered, other = (peer.link().ask(ReadRequest(1, entry), 5.0) for entry in range(3))
    await peer.asked(3)
    answered.cancel()
    unanswered.cancel()
    peer.say((1, Code.OK, b"0"), (3, Code.OK, b"2"))
    assert (await other).entry == b"2" and peer.link().alive
    peer.link().end("it closed the connection")
    assert peer.events == []


@pytest.mark.rule("Q15")
async def test_q15_each_request_is_overdue_in_its_time_though_nothing_is_sent_any_more() -> None:
    peer, heard = Connected(), AddLog()
    waiters = [peer.link().ask(ReadRequest(1, entry), timeout_s) for entry, timeout_s in enumerate((0.1, 3.0))]
    peer.channel(1, heard, 2.0).send([5], add_frames(1, [5]))
    other = peer.link().ask(ReadRequest(2, 0), 3.0)
    await peer.asked(4)
    await asyncio.sleep(0.05)
    peer.say((4, Code.NO_ENTRY, b""))  # not silent
    assert (await other).code == Code.NO_ENTRY
    for waiter in waiters:
        with pytest.raises(RequestTimeout):
            await asyncio.wait_for(waiter, 4.0)
    assert heard.failed == [([5], None)] and peer.link().alive


@pytest.mark.rule("Q15")
async def test_q15_what_comes_behind_the_end_is_for_nobody() -> None:
    """Whoever asked was told that nobody knows; and it is no peer that breaks the protocol."""
    peer, heard, written = Connected(), AddLog(), list[int]()
    peer.channel(1, heard).send([5], add_frames(1, [5]))
    await peer.asked(1)
    peer.link().pause_writing()
    peer.link().ask(ReadRequest(1, 5), 5.0).cancel()
    peer.link().when_written(peer.link().queued_bytes, lambda: written.append(1))
    peer.link().end("this client is closed")
    peer.say((1, Code.OK, b""), (77, Code.OK, b""))
    await asyncio.sleep(0)
    assert (heard.acked, heard.failed, peer.events) == ([], [([5], None)], [])
    assert written == [1], "nobody waits for bytes that leave no more"


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


@pytest.mark.real_time  # one direction alone is closed
async def test_a_bookie_that_says_no_more_has_ended_though_it_takes_nothing_of_what_is_sent(bench: Bench) -> None:
    """Whatever was asked from then on waited for a time-out."""
    held: list[asyncio.StreamWriter] = []

    def say_no_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write_eof()

    async with await asyncio.start_server(say_no_more, "127.0.0.1", 0) as server:

        async def resolve(name: str) -> tuple[str, int]:
            return "127.0.0.1", int(server.sockets[0].getsockname()[1])

        client, listener = BookieClient(bench.outside(), resolve, ClientSettings(add_timeout_s=60.0)), AddLog()
        channel = client.adds("b1", 1, listener)
        for entry in range(16):
            channel.send([entry], add_frame(bench, 1, entry, bytes(1024 * 1024)))
        await until(lambda: sum(len(entries) for entries, _ in listener.failed) == 16)
        await client.close()
        for writer in held:
            writer.transport.abort()
