"""A server closes very many connections some at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from support.waiting import until
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import request
from tallystick.runtime.turn_steps import TurnSteps

if TYPE_CHECKING:
    from unit.rocketmq.remoting.conftest import Bench


async def test_very_many_idle_connections_are_closed_over_many_turns(bench: Bench) -> None:
    """4,000 of them were one turn of 60 ms."""
    await bench.restart(RemotingSettings(idle_s=100.0))
    peers = [await bench.peer() for _ in range(7)]
    await until(lambda: bench.server.connections == len(peers))
    links = list(bench.server._links)
    bench.server._closing = TurnSteps(3)
    for link in links:
        link.last_active -= 101.0
    bench.server._sweep()
    assert [link.alive for link in links] == [False] * 3 + [True] * 4
    links[4].last_active += 101.0  # something comes
    for peer in [*peers[:4], *peers[5:]]:
        assert await peer.ended()
    peers[4].send(request(34))
    await peers[4].answers(1)


async def test_very_many_that_take_nothing_are_closed_over_many_turns(bench: Bench) -> None:
    """They are all found by one look at the clock."""
    peers = [await bench.peer() for _ in range(7)]
    await until(lambda: bench.server.connections == len(peers))
    links = list(bench.server._links)
    bench.server._closing = TurnSteps(4)  # each is two
    for link in links:
        link.condemn("it took none of its answers")
    await asyncio.sleep(0)
    assert not any(link.alive for link in links) and bench.heard.closed_links == links[:2]
    for peer in peers:
        assert await peer.ended()
    assert bench.heard.closed_links == links
