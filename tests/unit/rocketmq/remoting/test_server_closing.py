"""A server closes very many connections some at a time, and hears no more of those that have ended."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from support.waiting import until
from tallystick.rocketmq.remoting.intake import _REQUESTS_AT_ONCE
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import encode, request
from tallystick.runtime.turn_steps import TurnSteps

if TYPE_CHECKING:
    from unit.rocketmq.remoting.conftest import Bench


class Never:
    """A turn in which there is no time."""

    def run(self, steps: Iterator[object]) -> None: ...

    def close(self) -> None: ...


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


async def test_connections_that_end_together_are_forgotten_over_many_turns(bench: Bench) -> None:
    """6,000 of a broker were one turn of 0.1 s."""
    for _ in range(7):
        await bench.peer()
    await until(lambda: bench.server.connections == 7)
    links = list(bench.server._links)
    bench.server._ended._steps = TurnSteps(4)
    for link in links:
        link.connection_lost(None)
    assert bench.server.connections == 0 and not any(link.alive for link in links)
    assert bench.heard.closed_links == links[:2], "for each alone there is a step in which nothing is left"
    await until(lambda: bench.heard.closed_links == links)


async def test_who_has_gone_and_is_not_forgotten_yet_takes_nobodys_place(bench: Bench) -> None:
    await bench.restart(RemotingSettings(max_connections=3))
    living, *gone = [await bench.peer() for _ in range(3)]
    await until(lambda: bench.server.connections == 3)
    bench.server._ended._steps = cast(TurnSteps, Never())
    for peer in gone:
        peer.writer.close()
    await until(lambda: bench.server.connections == 1)
    for peer in (await bench.peer(), await bench.peer(), living):
        peer.send(request(34))
        await peer.answers(1)
    assert bench.server.connections == 3 and len(bench.heard.closed_links) == 2


async def test_a_server_that_stops_has_forgotten_all(bench: Bench) -> None:
    for _ in range(7):
        await bench.peer()
    await until(lambda: bench.server.connections == 7)
    bench.server._ended._steps = cast(TurnSteps, Never())
    await bench.server.close()
    assert len(bench.heard.closed_links) == 7


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


async def test_a_peer_in_the_middle_of_its_next_request_is_none_that_never_asked(bench: Bench) -> None:
    """Newcomers take the places of those."""
    await bench.restart(RemotingSettings(max_connections=2))
    peers = [await bench.peer() for _ in range(2)]
    frame = encode(request(34))
    for peer in peers:
        peer.send(request(34))
        await peer.answers(1)
        peer.writer.write(frame[: len(frame) // 2])
    await until(lambda: all(link._reader.buffered_bytes for link in bench.server._links))
    assert await (await bench.peer()).ended(), "the newcomer goes"
    for peer in peers:
        peer.writer.write(frame[len(frame) // 2 :])
        await peer.answers(1)


async def test_no_request_of_a_peer_comes_once_it_has_ended(bench: Bench) -> None:
    """What a handler had noted for it would stay: nobody says again that it has ended."""
    came: list[bool] = []  # for each request, whether its peer had ended
    bench.heard.react = lambda link, command: came.append(link in bench.heard.closed_links)
    bad = await bench.peer()
    whole = b"".join(encode(request(34)) for _ in range(3 * _REQUESTS_AT_ONCE))
    bad.writer.write(whole + struct.pack(">I", 2**31 - 1) + bytes(4))
    assert await bad.ended()
    await until(lambda: bool(bench.heard.closed_links))
    assert not any(came)
