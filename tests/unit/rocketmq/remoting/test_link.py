"""What a link tells the memory of its server."""

from __future__ import annotations

import asyncio
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from support.clocks import ManualClock
from support.remoting_links import Transport, surroundings
from tallystick.rocketmq.remoting import link as module
from tallystick.rocketmq.remoting.link import FLUSH_S, Link, Outbox
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.wire.remoting import Command, encode, request
from tallystick.runtime.arena import LEAST_READ_BYTES, SHORT_READ_BYTES, TURN_BYTES
from tallystick.runtime.tls import TlsConnection
from tallystick.runtime.unsent_writes import WRITE_BYTES

KIB = 1024


class MemoryCalls:
    """Stands for a memory: (bytes that are held, whether the peer took some since the call before)."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []
        self.unfinished_bytes = 0
        self.progress: list[bool] = []  # of what was told of unfinished requests

    def unsent(self, link: Link, size: int, *, has_taken: bool) -> None:
        self.calls.append((size, has_taken))

    def unfinished(self, link: Link, size: int, *, progress: bool) -> None:
        self.unfinished_bytes = size
        self.progress.append(progress)

    def kept(self, link: Link, size: int) -> None: ...

    def forget(self, link: Link) -> None:
        self.unfinished_bytes = 0


@pytest.fixture
def memory() -> MemoryCalls:
    return MemoryCalls()


@pytest.fixture
async def link(memory: MemoryCalls) -> Link:
    return Link(surroundings(memory=cast("Memory", memory)))


def answer(*parts: bytes | memoryview) -> Command:
    return request(11, {}).response(0, parts=list(parts))


async def test_the_memory_hears_within_a_tick_of_each_mebibyte_that_is_queued(link: Link, memory: MemoryCalls) -> None:
    """One tick serves the requests of a whole read: without it their answers had no bound."""
    link.connection_made(Transport())
    for _ in range(5):
        link.send(answer(bytes(400 * KIB)))
    assert [size // (400 * KIB) for size, _ in memory.calls] == [3]
    assert memory.calls[0][0] >= module._TELL_BYTES


@pytest.mark.parametrize("view", [False, True])
async def test_what_the_memory_is_told_tells_what_the_peer_took(link: Link, memory: MemoryCalls, view: bool) -> None:
    """A peer that takes less than it asks for is not stalled. What it took some of is held as a whole."""
    transport, part = Transport(), bytes(300 * KIB)
    link.connection_made(transport)
    for number in range(6):
        link.send(answer(memoryview(part) if view else part))
        link.flush()
        assert memory.calls[-1] == (transport.given + (number + 1) * WRITE_BYTES, number > 0)
        link.tell_unsent()
        assert not memory.calls[-1][1]
        transport.taken += 1000
    transport.taken = 300 * KIB + 1000
    link.tell_unsent()
    assert transport.given > 6 * 300 * KIB > memory.calls[-1][0]


async def test_a_small_response_that_is_not_taken_counts_as_what_it_takes(link: Link, memory: MemoryCalls) -> None:
    """A peer that asks for one at a time had a server hold eight times what was counted."""
    transport = Transport()
    link.connection_made(transport)
    for _ in range(100):
        link.send(answer())
        link.flush()
    assert memory.calls[-1][0] == transport.given + 100 * WRITE_BYTES > 8 * transport.given
    transport.taken = transport.given
    link.tell_unsent()
    assert memory.calls[-1] == (0, True)


async def test_who_must_go_is_closed_in_the_next_turn_of_the_loop(link: Link) -> None:
    """Its server may be in the middle of the requests of one read."""
    ended: list[str] = []
    link = Link(replace(link._around, closed=lambda link, reason: ended.append(reason), memory=None))
    link.condemn("too much")
    assert not link.alive and not ended
    await asyncio.sleep(0)
    assert ended == ["too much"]


async def test_a_loop_that_reads_on_and_on_is_stopped_after_the_second_read(link: Link, memory: MemoryCalls) -> None:
    """uvloop reads up to 32 times in one turn while each read fills the buffer."""
    transport, one = Transport(), encode(request(34))
    link.connection_made(transport)
    whole = one * (LEAST_READ_BYTES // len(one) + 2)
    reads = 0
    while transport.reads:
        part = link.get_buffer(-1)[:LEAST_READ_BYTES]
        part[:] = whole[reads * LEAST_READ_BYTES % len(one) :][: len(part)]
        link.buffer_updated(len(part))
        reads += 1
    assert (reads, memory.unfinished_bytes) == (2, 2 * LEAST_READ_BYTES)
    taken = len(link.take(most=3))
    assert memory.progress == [False, True], "only requests that were taken count as progress"
    assert not transport.reads
    taken += len(link.take())
    assert (taken, transport.reads) == (2 * LEAST_READ_BYTES // len(one), True)


async def test_a_peer_that_is_only_sent_to_is_not_idle(link: Link) -> None:
    """It may wait for what its server has to say, as a consumer does who is told of other members."""
    link.connection_made(Transport())
    link.last_active = link.last_read = 0.0
    link.flush()
    assert link.last_active == 0.0, "there was nothing to send"
    link.send(answer(b"x"))
    link.flush()
    assert link.last_active > link.last_read == 0.0


async def test_a_fault_in_writing_to_one_ends_it_and_the_others_write_in_the_next_tick(link: Link) -> None:
    class Broken(Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise ValueError("a fault of ours")

        def abort(self) -> None:
            pass

    faults, ended = list[object](), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context.get("exception")))
    around = replace(link._around, closed=lambda link, reason: ended.append(reason), memory=None)
    links, transports = [Link(around) for _ in range(3)], [Transport(), Broken(), Transport()]
    for each, transport in zip(links, transports, strict=True):
        each.connection_made(transport)
        each.send(answer(b"body"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [transport.given > 0 for transport in transports] == [True, False, True]
    assert len(faults) == 1 and ended == ["a fault here: ValueError('a fault of ours')"]
    for each in (links[0], links[2]):
        before = sum(transport.given for transport in transports)
        each.send(answer(b"body"))
        await asyncio.sleep(0)
        assert sum(transport.given for transport in transports) > before


async def test_a_link_that_is_to_be_closed_is_not_read(link: Link) -> None:
    """A loop went on reading of a thousand of them, to throw it away: turns of 0.9 s."""
    transport = Transport()
    link.connection_made(transport)
    link.condemn("too much")
    assert not transport.reads


@pytest.mark.parametrize("end", [lambda link: link.condemn("too much"), lambda link: link.connection_lost(None)])
async def test_what_came_of_a_request_is_freed_with_its_place_in_the_memory(
    link: Link, end: Callable[[Link], None]
) -> None:
    """Thousands that go at once are closed and forgotten in many turns: their bytes were there till then."""
    link.connection_made(Transport())
    tracemalloc.start()
    try:
        size = len(link.get_buffer(-1))
        link.get_buffer(-1)[:4] = (2 * size).to_bytes(4, "big")
        link.buffer_updated(size)
        held_bytes, _ = tracemalloc.get_traced_memory()
        end(link)
        freed_bytes = held_bytes - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert freed_bytes > size * 0.9


async def test_responses_that_were_queued_are_freed_with_their_place_in_the_memory(link: Link) -> None:
    tracemalloc.start()
    try:
        link.send(answer(bytes(300 * KIB)))
        held_bytes, _ = tracemalloc.get_traced_memory()
        link.condemn("too much")
        freed_bytes = held_bytes - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert freed_bytes > 250 * KIB


async def test_a_link_is_not_read_on_in_a_turn_in_which_much_came(link: Link, memory: MemoryCalls) -> None:
    transport, frame = Transport(), bytes([0, 0xFF, 0, 0]) + bytes(8)
    link = Link(replace(link._around, received=lambda link: link.take().clear()))
    link.connection_made(transport)
    link.get_buffer(0)[: len(frame)] = frame
    size = 0
    while transport.reads:
        assert size < TURN_BYTES + SHORT_READ_BYTES
        size += (nbytes := len(link.get_buffer(0)))
        link.buffer_updated(nbytes)
    await asyncio.sleep(0)
    assert transport.reads and memory.unfinished_bytes == size >= TURN_BYTES


async def test_of_a_peer_that_takes_nothing_no_request_is_taken_until_it_does(link: Link) -> None:
    heard: list[Link] = []
    link = Link(replace(link._around, received=heard.append, memory=None))
    transport, frame = Transport(), encode(request(34))
    link.connection_made(transport)
    link.get_buffer(-1)[: len(frame)] = frame
    link.pause_writing()
    link.buffer_updated(len(frame))
    assert not link.ready and not transport.reads
    heard.clear()
    link.resume_writing()
    assert link.ready and heard == [link] and transport.reads


class Encrypted(TlsConnection):
    """Stands for a connection by TLS whose records came and are not decrypted yet, as the link reads no more."""

    def __init__(self, pending_bytes: int) -> None:
        self.pending_bytes = pending_bytes

    @property
    def held_bytes(self) -> int:
        return self.pending_bytes

    def __getattribute__(self, name: str) -> Any:
        known = ("held_bytes", "pending_bytes", "__class__")
        return object.__getattribute__(self, name) if name in known else lambda *_, **__: None


async def test_records_that_are_not_decrypted_count_as_requests(link: Link, memory: MemoryCalls) -> None:
    """64 KiB of each of 4,096 connections were as much as all of them may take."""
    transport = Encrypted(60 * KIB)
    link.connection_made(transport)
    link._around.arena.buffer[:100] = bytes([0, 0, 1, 0]) + bytes(96)
    link.buffer_updated(100)
    assert not link.take() and memory.unfinished_bytes == 60 * KIB + 100
    transport.pending_bytes = 0
    link.buffer_updated(100)
    assert memory.unfinished_bytes == 200


class SlowLink:
    """Stands for a link whose peer's bytes take the kernel a millisecond."""

    alive = True

    def __init__(self, bench: Crowd, number: int, host: str) -> None:
        self._bench, self.number, self.host = bench, number, host

    def flush(self) -> None:
        self._bench.clock.time += 0.001
        self._bench.written[-1].append(self.number)
        if self.number in self._bench.ends:
            self.alive = False
            self._bench.outbox.closed(cast("Link", self))
        if self.number in self._bench.faults:
            raise ZeroDivisionError

    def abort(self, reason: str) -> None:
        self.alive = False


class Crowd:
    """An outbox, and what each of its turns writes."""

    def __init__(self) -> None:
        self.clock, self.written, self.faults = ManualClock(), list[list[int]](), set[int]()
        self.ends = set[int]()  # that end as they are written to
        self.outbox = Outbox(self.clock)

    def put(self, number: int, host: str) -> Link:
        link = cast("Link", SlowLink(self, number, host))
        self.outbox.put(link)
        return link

    async def turn(self) -> list[int]:
        self.written.append([])
        await asyncio.sleep(0)
        return self.written[-1]

    async def rest(self) -> list[int]:
        """What is written until nothing waits."""
        rest: list[int] = []
        while numbers := await self.turn():
            rest += numbers
        return rest


async def test_a_crowd_writes_in_several_turns() -> None:
    crowd = Crowd()
    for number in range(100):
        crowd.put(number, "127.0.0.1")
    assert await crowd.rest() == list(range(100))
    assert max(map(len, crowd.written)) <= FLUSH_S * 1000 + 1


async def test_the_responses_of_a_crowd_keep_those_of_another_host_no_longer_than_its_turn() -> None:
    """They had the order in which they came: a response waited for one of each of thousands of connections."""
    crowd = Crowd()
    for number in range(400):
        crowd.put(number, f"127.0.1.{number % 4}")
    crowd.put(400, "127.0.0.9")
    for _ in range(3):
        await crowd.turn()
    assert any(400 in numbers for numbers in crowd.written)
    crowd.put(401, "127.0.0.9")
    assert 401 in await crowd.turn()
    assert len(await crowd.rest()) > 350


async def test_what_is_written_in_this_turn_has_no_turn_of_its_own() -> None:
    crowd = Crowd()
    crowd.outbox.promise()
    crowd.put(1, "127.0.0.1")
    assert await crowd.turn() == []
    crowd.outbox.flush()
    assert crowd.written[-1] == [1]
    crowd.put(2, "127.0.0.1")
    assert await crowd.turn() == [2]


async def test_a_link_that_has_ended_waits_no_more() -> None:
    crowd = Crowd()
    links = [crowd.put(number, "127.0.0.1") for number in range(20)]
    await crowd.turn()
    links[-1].abort("gone")
    crowd.outbox.closed(links[-1])
    assert links[-1] not in crowd.outbox._waiting
    assert await crowd.rest() == list(range(len(crowd.written[0]), 19))


async def test_a_fault_in_one_leaves_the_others_their_turn() -> None:
    crowd = Crowd()
    crowd.faults |= {2, 11}
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    links = [crowd.put(number, "127.0.0.1") for number in range(20)]
    assert sorted(await crowd.rest()) == list(range(20))
    assert [number for number, link in enumerate(links) if not link.alive] == [2, 11]


async def test_a_host_that_asks_on_and_on_keeps_nobody_waiting_who_came_before() -> None:
    crowd = Crowd()
    for number in range(20):
        crowd.put(number, "127.0.0.1")
    for number in (101, 102, 103):
        crowd.put(number, f"127.0.0.{number}")
    assert max(await crowd.turn()) < 20
    for number in range(20, 40):
        crowd.put(number, "127.0.0.1")
    assert {101, 102, 103} <= {*await crowd.turn()}
    assert len(await crowd.rest()) == 43 - len(crowd.written[0]) - len(crowd.written[1])


async def test_nothing_is_held_of_a_link_that_ends_as_it_is_written_to() -> None:
    crowd = Crowd()
    crowd.ends |= {3, 15}
    ended = {number: weakref.ref(crowd.put(number, "127.0.0.1")) for number in range(20) if number != 19}
    crowd.put(19, "127.0.0.1")
    assert await crowd.rest() == list(range(20))
    assert [number for number in crowd.ends if ended[number]() is not None] == []


async def test_of_a_link_that_ended_while_it_waited_nothing_is_held(link: Link) -> None:
    around = replace(link._around, outbox=Outbox(ManualClock()), memory=None)
    waiting = Link(around)
    waiting.connection_made(Transport())
    around.outbox._wait([waiting])
    waiting.connection_lost(None)
    assert not around.outbox._waiting
    around.outbox._wait([waiting])
    assert not around.outbox._waiting, "it has ended"


async def test_only_a_client_ends_a_connection_whose_peer_says_no_more_at_once(link: Link) -> None:
    """A server's peer gets the responses that are on their way."""
    ended: list[str] = []
    for reads_on in (False, True):
        around = replace(link._around, reads_on=reads_on, closed=lambda link, reason: ended.append(reason), memory=None)
        one, transport = Link(around), Transport()
        transport.abort = lambda: None  # type: ignore[method-assign]
        one.connection_made(transport)
        assert one.eof_received() is None and one.alive is not reads_on  # type: ignore[func-returns-value]
    assert ended == ["the peer closed the connection"]
