"""A server whose handler does what a test says, and a bare socket to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import cast

import pytest

from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory, connection, machine
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command, FrameReader, encode
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.events import Event, Events
from tallystick.runtime.network import Network


class Heard:
    """A handler: keeps the batches, and answers by ``react``."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Link, Command]]] = []
        self.closed_links: list[Link] = []
        self.react: Callable[[Link, Command], None] = lambda link, command: link.send(command.response(0))

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        self.batches.append(requests)
        for link, command in requests:
            self.react(link, command)

    def closed(self, link: Link) -> None:
        self.closed_links.append(link)

    @property
    def requests(self) -> list[Command]:
        return [command for batch in self.batches for _, command in batch]


class Peer:
    """A client of a few lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.transport = cast(asyncio.Transport, writer.transport)
        self._frames = FrameReader()

    def send(self, *commands: Command) -> None:
        self.writer.write(b"".join(encode(command) for command in commands))

    async def answers(self, count: int) -> list[Command]:
        found: list[Command] = []
        async with asyncio.timeout(10):
            while len(found) < count:
                data = await self.reader.read(1 << 20)
                assert data, f"closed after {len(found)} answers"
                found += self._frames.take(data)
        return found

    async def ended(self) -> bool:
        """The server closed the connection, after whatever it still sent."""
        async with asyncio.timeout(10):
            try:
                while await self.reader.read(1 << 20):
                    pass
            except ConnectionResetError:
                pass
        return True


class StoppedClock(SystemClock):
    """However slow the machine is, no turn of a server is over for it."""

    def now(self) -> float:
        return 1.0


class Bench:
    """A running server and peers of it."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.told: list[Event] = []
        self.peers: list[Peer] = []
        self._peers_network = machine().network

    async def start(self, settings: RemotingSettings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or RemotingSettings()
        outside = machine(Events(self.told.append), **({} if clock is None else {"clock": clock}))
        self.server = RemotingServer(outside, self.heard, self.settings)
        self.host, self.port = await self.server.start("127.0.0.1", 0)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def peer(self, network: Network | None = None) -> Peer:
        """From the machine of all others, or another one."""
        peer = Peer(*await connection(self.host, self.port, network or self._peers_network))
        self.peers.append(peer)
        return peer

    async def stop_time(self) -> None:
        await self.stop()
        await self.start(clock=StoppedClock())

    async def restart(self, settings: RemotingSettings) -> None:
        await self.stop()
        await self.start(settings)

    async def stop(self) -> None:
        await self.server.close()
        for peer in self.peers:
            peer.writer.close()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Servers, clients and raw peers run in virtual time; what needs the sockets of this machine does not."""
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.stop()
