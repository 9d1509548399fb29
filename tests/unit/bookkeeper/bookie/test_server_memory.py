"""Who is closed, and when, as the memory that a bookie's connections may take together is full."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.bookies import Home, adds, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie import server
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.server import BookieServer, Bounds
from tallystick.bookkeeper.bookie.session import Session
from tallystick.bookkeeper.bookie.turns import Kind
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.events import Events


@dataclass
class LateLoop:
    """The loop, by a clock that a test sets."""

    now: float = 0.0
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, call)

    def call_soon(self, call: Callable[[], None]) -> asyncio.Handle:
        return self.loop.call_soon(call)


class Crowd:
    """A server of fake sessions, and what is done to them."""

    def __init__(self, held_bytes: int) -> None:
        nobody, none = cast("Any", SimpleNamespace(forget=lambda session: None)), cast("Any", None)
        self.counts, self.loop = Counts(), LateLoop()
        self.server = BookieServer(
            none, nobody, none, nobody, nobody, self.counts, Events(), Bounds(held_bytes=held_bytes)
        )
        self.server._loop = cast("Any", self.loop)
        self.looked: list[str] = []
        self.aborted: list[str] = []

    def peer(self, name: str) -> Session:
        return cast("Session", FakeSession(self, name))


@dataclass(eq=False)
class FakeSession:
    """Its peer takes nothing."""

    crowd: Crowd
    peer: str
    fault: Exception | None = None  # of ending it

    rests: int = 0
    reads_on: int = 0

    def rest(self) -> None:
        self.rests += 1

    def read_on(self) -> None:
        self.reads_on += 1

    def look(self) -> None:
        self.crowd.looked.append(self.peer)

    def abort(self) -> None:
        self.crowd.aborted.append(self.peer)
        if self.fault is not None:
            raise self.fault
        self.crowd.server.forget(cast("Session", self))


async def test_a_full_memory_is_seen_when_it_gets_full_and_not_at_the_next_look() -> None:
    crowd = Crowd(1000)
    crowd.server.unsent(crowd.peer("a"), 600, False)
    crowd.server.unsent(crowd.peer("b"), 500, False)
    assert (crowd.aborted, crowd.counts.unsent_bytes) == (["a"], 500)
    crowd.server.abort()


async def test_who_takes_something_of_what_stays_as_much_has_not_stalled() -> None:
    crowd = Crowd(1000)
    takes, stalls = crowd.peer("takes"), crowd.peer("stalls")
    for session in (takes, stalls):
        crowd.server.unsent(session, 100, False)
    crowd.loop.now = server.STALLED_S / 2
    crowd.server.unsent(takes, 100, True)
    crowd.server.unsent(stalls, 100, False)
    crowd.loop.now = server.STALLED_S
    crowd.server._tick()
    assert crowd.aborted == ["stalls"]
    crowd.server.abort()


async def test_of_unfinished_requests_those_go_of_whom_none_was_served_for_longest() -> None:
    crowd = Crowd(1000)
    served, waits = crowd.peer("served"), crowd.peer("waits")
    crowd.server.unfinished(served, 400, False)
    crowd.loop.now = 1.0
    crowd.server.unfinished(waits, 400, False)
    crowd.loop.now = 2.0
    crowd.server.unfinished(served, 500, True)
    crowd.server.unfinished(crowd.peer("third"), 300, False)
    assert crowd.aborted == ["waits"]
    crowd.server.abort()


async def test_what_overflows_while_all_are_looked_at_is_closed_before_that_ends() -> None:
    """A look at 4,000 connections takes twenty turns."""
    crowd = Crowd(1_000_000)
    peers = [crowd.peer(str(number)) for number in range(10 * server.LOOKS_EACH_TURN)]
    for peer in peers:
        crowd.server.unsent(peer, 100, False)
    crowd.server._tick()
    crowd.server.unsent(crowd.peer("large"), 1_000_000, False)
    await asyncio.sleep(0)
    assert crowd.aborted == ["large"] and len(crowd.looked) <= 2 * server.LOOKS_EACH_TURN
    crowd.server.abort()


async def test_a_fault_in_closing_one_keeps_no_other_from_being_closed() -> None:
    crowd = Crowd(1000)
    bad = cast("Session", FakeSession(crowd, "bad", ValueError()))
    with pytest.raises(ValueError):
        crowd.server.unsent(bad, 2000, False)
    await asyncio.sleep(0)
    crowd.server.unsent(crowd.peer("next"), 2000, False)
    assert crowd.aborted == ["bad", "next"]
    crowd.server.abort()


async def test_a_server_that_is_closed_looks_at_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TICK_S", 0.005)
    crowd = Crowd(1_000_000)
    for number in range(3 * server.LOOKS_EACH_TURN):
        crowd.server.unsent(crowd.peer(str(number)), 100, False)
    crowd.server._tick()
    looked = len(crowd.looked)
    crowd.server.abort()
    await asyncio.sleep(0.02)
    assert len(crowd.looked) == looked == server.LOOKS_EACH_TURN


async def test_no_look_is_due_at_a_server_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TICK_S", 0.005)
    crowd = Crowd(1000)
    crowd.server.unsent(crowd.peer("a"), 100, False)
    crowd.server.abort()
    await asyncio.sleep(0.02)
    assert not crowd.looked


async def test_who_ends_while_it_waits_for_a_turn_wants_none(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = bookie._server._turns
    async with talking(bookie) as reader:
        assert await reader.code(adds(1, [0])) == Code.OK
        (session,) = bookie._server._sessions
        monkeypatch.setattr(turns, "admits", lambda kind: kind == Kind.ADD)
        monkeypatch.setattr(turns, "begin", lambda: iter(()))
        reader.writer.write(read(1, 0))
        await until(lambda: turns.due)
        session.abort()
        assert not turns.due


async def test_a_bound_of_connections_that_is_reached_again_is_told_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with home.running() as bookie:
        for times in (1, 2):
            async with talking(bookie) as first, talking(bookie) as second:
                assert await first.code(adds(1, [0])) == await second.code(adds(2, [0])) == Code.OK
                async with talking(bookie) as third:
                    assert await third.frame() is None
                assert len(home.heard("connection refused")) == times
            await until(lambda: bookie.counts.connections == 0)


async def test_who_has_something_to_take_is_looked_at_again_and_again() -> None:
    """Also where a look finds nothing to tell."""
    crowd = Crowd(1000)
    crowd.server.unsent(crowd.peer("a"), 100, False)
    await until(lambda: crowd.looked == ["a"] * 3)
    crowd.server.abort()


async def test_who_ends_while_it_rests_is_not_read_on() -> None:
    crowd = Crowd(1000)
    rests, ends = FakeSession(crowd, "a"), FakeSession(crowd, "b")
    for session in (rests, ends):
        while not session.rests:
            crowd.server.received(len(crowd.server.buffer), cast("Session", session))
    crowd.server.forget(cast("Session", ends))
    await asyncio.sleep(0)
    assert (rests.reads_on, ends.reads_on) == (1, 0)


@pytest.mark.parametrize("end", ["garbage", "half closed"])
async def test_who_is_to_end_when_it_took_its_responses_counts_until_it_did(
    home: Home, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A mebibyte of each of thousands counted as nothing from then on, and their connections stayed for ever."""
    monkeypatch.setattr(server, "STALLED_S", 0.5)
    monkeypatch.setattr(server, "TICK_S", 0.02)
    loop = asyncio.get_running_loop()
    async with home.running() as bookie, talking(bookie) as good:
        assert await good.code(adds(1, [0], bytes(100_000))) == Code.OK
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.setblocking(False)
            await loop.sock_connect(greedy, bookie.address)
            while bookie.counts.unsent_bytes < 300_000:  # the kernel takes some megabytes
                await loop.sock_sendall(greedy, read(1, 0))
                await good.code(read(1, 1))  # it has been served meanwhile
            if end == "garbage":
                await loop.sock_sendall(greedy, b"\xff" * 64)
                await until(lambda: bookie.counts.malformed == 1)
            else:
                greedy.shutdown(socket.SHUT_WR)
            assert bookie.counts.unsent_closed == 0
            await until(lambda: bookie.counts.unsent_closed == 1 and bookie.counts.connections == 1)
        assert bookie.counts.unsent_bytes == 0
