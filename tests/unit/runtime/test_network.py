"""TCP as a server has it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from support.waiting import until
from tallystick.runtime import tcp
from tallystick.runtime.network import KEEP_ALIVE_IDLE_S
from tallystick.runtime.tcp import ACCEPTS, TcpNetwork

CROWD = 128
LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Arrivals:
    """A port, and how many connections were made in the turn that had most of them."""

    def __init__(self) -> None:
        self.made = self.most = self.turns = self._before = 0

    def protocol(self) -> asyncio.Protocol:
        self.made += 1
        return asyncio.Protocol()

    def all_came(self) -> bool:
        self.turns += 1
        self.most, self._before = max(self.most, self.made - self._before), self.made
        return self.made == CROWD


def come(stack: contextlib.ExitStack, address: tuple[str, int], count: int) -> None:
    for _ in range(count):
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        sock.connect_ex(address)


@LOOPS
@pytest.mark.parametrize("serving", [True, False])
def test_a_crowd_is_accepted_some_in_each_turn_and_nobody_is_lost(
    make_loop: Callable[[], asyncio.AbstractEventLoop], serving: bool
) -> None:
    """All of it at once would take the process's files before a server could close those beyond its bound; one in a
    turn, as uvloop does it, kept newcomers of a busy server waiting for 20 s behind 900 others."""

    async def crowd() -> Arrivals:
        arrivals = Arrivals()
        listener = await TcpNetwork().listen("127.0.0.1", 0, arrivals.protocol, serving=serving)
        if not serving:
            await listener.serve()
        with contextlib.ExitStack() as stack:
            come(stack, listener.address, CROWD)
            await until(arrivals.all_came, pause=0)
        await listener.close()
        return arrivals

    with asyncio.Runner(loop_factory=make_loop) as runner:
        arrivals = runner.run(crowd())
    assert 1 < arrivals.most <= 2 * ACCEPTS
    assert arrivals.turns < CROWD // 2


async def test_when_there_are_no_files_the_next_are_accepted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop neither ends nor spins meanwhile."""
    monkeypatch.setattr(tcp, "PAUSE_S", 0.2)
    accept, refused = socket.socket.accept, list[float]()

    def exhausted(sock: socket.socket) -> object:
        if len(refused) < 2:
            refused.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    arrivals = Arrivals()
    listener = await TcpNetwork().listen("127.0.0.1", 0, arrivals.protocol)
    with contextlib.ExitStack() as stack:
        come(stack, listener.address, 1)
        await until(lambda: arrivals.made == 1)
    assert refused[1] - refused[0] >= 0.19
    await listener.close()


async def test_a_port_that_is_closed_is_free_and_accepts_nobody() -> None:
    arrivals = Arrivals()
    listener = await TcpNetwork().listen("127.0.0.1", 0, arrivals.protocol)
    with contextlib.ExitStack() as stack:
        come(stack, listener.address, 3)
        for _ in range(2):
            await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await TcpNetwork().connect(*listener.address, asyncio.Protocol, 1.0)
    assert arrivals.made == 0


@pytest.mark.parametrize("keep_alive", [True, False])
async def test_both_ends_of_a_connection_are_probed_unless_told_otherwise(keep_alive: bool) -> None:
    network, accepted = TcpNetwork(keep_alive=keep_alive), list[asyncio.BaseTransport]()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    listener = await network.listen("127.0.0.1", 0, Server)
    connected = await network.connect(*listener.address, asyncio.Protocol, 1.0)
    await until(lambda: bool(accepted))
    for transport in (connected, accepted[0]):
        sock = transport.get_extra_info("socket")
        assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) is keep_alive
        idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert (idle_s == KEEP_ALIVE_IDLE_S) is keep_alive
        transport.close()
    await listener.close()
