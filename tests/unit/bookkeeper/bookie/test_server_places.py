"""Which connections a bookie has when more want to be than there are places."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.bookies import Home, adds, talking
from support.freed import Freed
from support.waiting import until
from tallystick.bookkeeper.bookie import server
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.server import BookieServer, Bounds
from tallystick.bookkeeper.bookie.session import Session
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.events import Events
from tallystick.runtime.turn_steps import TurnSteps

MIB = 1024 * 1024


def test_connections_leave_files_for_the_storage() -> None:
    assert Bounds.of(1024, 5 * MIB).connections == 512
    assert Bounds.of(100, 5 * MIB).connections == 25
    assert Bounds.of(1 << 20, 5 * MIB) == Bounds()
    assert Bounds.of(1 << 20, 1024 * MIB).held_bytes == 2048 * MIB


async def test_more_connections_than_the_bound_are_closed_counted_and_reported_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with home.running() as bookie, talking(bookie) as first, talking(bookie) as second:
        assert await first.code(adds(1, [0])) == await second.code(adds(2, [0])) == Code.OK
        for _ in range(3):
            async with talking(bookie) as third:
                assert await third.frame() is None
        assert (bookie.counts.connections, bookie.counts.connections_refused) == (2, 3)
        assert len(home.heard("connection refused")) == 1
        await second.close()
        await until(lambda: bookie.counts.connections == 1)
        async with talking(bookie) as third:
            assert await third.code(adds(3, [0])) == Code.OK


async def test_a_host_with_all_connections_makes_room_for_another_host(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with home.running() as bookie, talking(bookie) as oldest, talking(bookie) as second:
        assert await oldest.code(adds(1, [0])) == await second.code(adds(2, [0])) == Code.OK
        async with talking(bookie, "127.0.0.9") as guest:
            assert await guest.code(adds(3, [0])) == Code.OK
            assert await oldest.frame() is None
            assert await second.code(adds(2, [1])) == Code.OK
            assert (bookie.counts.connections, bookie.counts.connections_refused) == (2, 1)


async def test_who_asked_for_nothing_makes_room_and_who_did_keeps_its_place(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with home.running() as bookie, talking(bookie) as writer, talking(bookie, "127.0.0.8") as half:
        assert await writer.code(adds(1, [0])) == Code.OK
        half.writer.write(adds(2, [0])[:7])
        await until(lambda: bookie.counts.connections == 2)
        async with talking(bookie, "127.0.0.9") as guest:
            assert await guest.code(adds(3, [0])) == Code.OK
            assert await half.frame() is None
            assert await writer.code(adds(1, [1])) == Code.OK


async def test_connections_that_end_together_are_forgotten_over_many_turns(home: Home) -> None:
    """4,000 of them were one turn of the loop of 64 ms."""
    async with home.running() as bookie, contextlib.AsyncExitStack() as stack:
        for _ in range(7):
            await stack.enter_async_context(talking(bookie))
        await until(lambda: bookie.counts.connections == 7)
        bookie._server._ended._steps = TurnSteps(4)
        for session in list(bookie._server._sessions):
            session.connection_lost(None)
        assert bookie.counts.connections == 5, "for each alone there is a step in which nothing is left"
        await until(lambda: bookie.counts.connections == 0)


async def test_who_has_gone_and_is_not_forgotten_yet_takes_nobodys_place(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    async with home.running() as bookie, talking(bookie) as living, contextlib.AsyncExitStack() as stack:
        assert await living.code(adds(1, [0])) == Code.OK
        gone = [await stack.enter_async_context(talking(bookie)) for _ in range(2)]
        await until(lambda: bookie.counts.connections == 3)
        bookie._server._ended._steps = TurnSteps(0)
        for peer in gone:
            await peer.close()
        await until(lambda: len(bookie._server._ended._pending) == 2)
        for number in range(2):
            guest = await stack.enter_async_context(talking(bookie))
            assert await guest.code(adds(2 + number, [0])) == Code.OK
        assert await living.code(adds(1, [1])) == Code.OK
        assert (bookie.counts.connections, bookie.counts.connections_refused) == (3, 0)
    assert bookie.counts.connections == 0


class Guest:
    """As much of a session as places look at."""

    def __init__(self, peer: str) -> None:
        self.peer, self.aborted, self.has_asked = peer, False, True

    def abort(self) -> None:
        self.aborted = True


async def test_what_sessions_held_is_told_once_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    freed, nobody = Freed(), cast("Any", SimpleNamespace(forget=lambda session: None))
    monkeypatch.setattr(server, "FreedMemory", lambda: freed)
    none = cast("Any", None)
    crowd = BookieServer(none, nobody, none, nobody, nobody, Counts(), Events(), Bounds(held_bytes=1000))
    goes, stays = Guest("B:1"), Guest("C:1")
    crowd.unfinished(cast("Session", goes), 300, False)
    crowd.unfinished(cast("Session", stays), 900, False)
    assert (goes.aborted, stays.aborted, freed.sizes) == (True, False, [300])
    for guest in (goes, stays):
        crowd.forget(cast("Session", guest))
    assert [size for size in freed.sizes if size] == [300, 900]
    crowd.abort()
    assert freed.closed, "nothing of a server that is closed is due later"


async def test_behind_who_was_refused_a_newcomer_takes_the_place_of_who_has_gone() -> None:
    crowd = BookieServer(
        cast("Any", None),
        cast("Any", None),
        cast("Any", None),
        cast("Any", None),
        cast("Any", None),
        Counts(),
        Events(),
        Bounds(connections=4),
    )
    living, gone = [Guest("B:1"), Guest("B:2"), Guest("B:3")], Guest("C:1")
    for guest in (*living, gone):
        crowd.opened(cast("Session", guest))
    crowd._ended._steps = TurnSteps(0)
    refused = Guest("B:9")
    crowd.opened(cast("Session", refused))
    assert refused.aborted
    for guest in (refused, gone):
        crowd.closed(cast("Session", guest))
    newcomer = Guest("D:1")
    crowd.opened(cast("Session", newcomer))
    assert not any(guest.aborted for guest in (*living, newcomer))
