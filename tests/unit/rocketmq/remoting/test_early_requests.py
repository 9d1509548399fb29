"""A client that makes many requests in one tick of its loop, over the sockets of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from support.remoting_links import surroundings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command, FrameReader, request

NewLoop = Callable[[], asyncio.AbstractEventLoop]

pytestmark = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])

COUNT, BODY = 100, bytes(2048)


async def connected(*, is_client: bool, reasons: list[str] | None = None) -> tuple[Link, socket.socket]:
    """A link, and the other end of its connection, which is read by nobody else; ``reasons`` gets why it ended."""
    ends = reasons if reasons is not None else []
    around = surroundings(reads_on=is_client, closed=lambda link, reason: ends.append(reason))
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, link = await asyncio.get_running_loop().create_connection(lambda: Link(around), *server.getsockname())
        peer, _ = server.accept()
    peer.setblocking(False)
    return link, peer


def came(peer: socket.socket) -> bytes:
    """What has come until now, without a turn of the loop."""
    data = b""
    try:
        while piece := peer.recv(1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return data


@pytest.mark.parametrize("is_client", [True, False])
def test_a_clients_requests_leave_before_their_tick_is_over(new_loop: NewLoop, is_client: bool) -> None:
    """A server works on the first ones while the client makes the others. A server's responses leave together."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        early_bytes, opaques = runner.run(_sends_many(is_client=is_client))
    assert (early_bytes > COUNT * len(BODY) // 2) is is_client
    assert opaques == list(range(COUNT)), "each once, in their order"


async def _sends_many(*, is_client: bool) -> tuple[int, list[int]]:
    """Return how much came within the tick, and the opaques of all requests in the order in which they came."""
    link, peer = await connected(is_client=is_client)
    with peer:
        for number in range(COUNT):
            command = request(10, {}, BODY)
            command.opaque = number
            link.send(command)
        early = came(peer)
        await asyncio.sleep(0.1)
        reader = FrameReader(None)
        reader.put(early + came(peer))
    link.abort("the test is over")
    return len(early), [command.opaque for command in reader.take()]


def test_a_client_whose_peer_takes_nothing_keeps_its_requests(new_loop: NewLoop) -> None:
    """They are encoded as the peer takes them, and sending them again and again is not tried for each new one."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        changes, left = runner.run(_sends_to_who_takes_nothing())
    assert changes == (0.0, COUNT), "nothing was written meanwhile"
    assert not left


async def _sends_to_who_takes_nothing() -> tuple[tuple[float, int], list[Command]]:
    """Return what changed by more requests (when something left last, how many wait), and what waits once the peer
    has taken all that it can get."""
    link, peer = await connected(is_client=True)
    with peer:
        while not link.full:
            link.send(request(10, {}, bytes(64 * 1024)))
            await asyncio.sleep(0)
        active, queued = link.last_active, len(link._queued_commands)
        for _ in range(COUNT):
            link.send(request(10, {}, BODY))
        changes = link.last_active - active, len(link._queued_commands) - queued
        for _ in range(1000):
            if came(peer):
                await asyncio.sleep(0.001)
            elif not link._queued_commands:
                break
            await asyncio.sleep(0)
    left = link._queued_commands
    link.abort("the test is over")
    return changes, left


def test_a_fault_in_writing_early_ends_the_link(new_loop: NewLoop) -> None:
    """Some of it may have left: what comes behind would be taken for the rest of a frame."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        is_alive, reasons = runner.run(_meets_a_fault())
    assert not is_alive and reasons == ["a fault here: ValueError('a fault of ours')"]


async def _meets_a_fault() -> tuple[bool, list[str]]:
    class Broken(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise ValueError("a fault of ours")

        def abort(self) -> None:
            whole.abort()

    reasons = list[str]()
    link, peer = await connected(is_client=True, reasons=reasons)
    with peer:
        assert link._transport is not None
        whole, link._transport = link._transport, Broken()
        link.send(request(10, {}, bytes(64 * 1024)))  # who sends hears of it as those do who sent before
        is_alive = link.alive
        await link.disconnected.wait()
    return is_alive, reasons
