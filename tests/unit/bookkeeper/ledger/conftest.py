"""A bookie whose every answer a test can choose, and the client's parts around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pytest

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.identity import Identify
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import next_frame
from tallystick.errors import BookieUnavailable
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Event, Events
from tallystick.runtime.network import Listener, TcpNetwork

Script = Callable[[v2.Request], bytes | None]


@dataclass
class ScriptedBookie:
    """Answers READ and BATCH_READ from ``entries`` and any ADD with OK, unless ``script`` decides otherwise.

    A script gets the request and returns the bytes to answer with, None to say nothing, or ``CLOSE``.
    """

    CLOSE: ClassVar[bytes] = b"close the connection"

    id: str
    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    script: Script | None = None
    requests: list[v2.Request] = field(default_factory=list)
    connections: list[asyncio.Transport] = field(default_factory=list)
    opened: int = 0
    listener: Listener | None = None

    async def start(self) -> None:
        self.listener = await TcpNetwork().listen("127.0.0.1", 0, lambda: _Connection(self))

    async def stop(self) -> None:
        """As a killed process: no listener, no connections."""
        if self.listener is not None:
            await self.listener.close()
            self.listener = None
        for transport in self.connections:
            transport.abort()

    @property
    def address(self) -> tuple[str, int]:
        if self.listener is None:
            raise BookieUnavailable("not registered", bookie=self.id)
        return self.listener.address

    def answer(self, request: v2.Request) -> bytes | None:
        self.requests.append(request)
        return self.script(request) if self.script else self.default(request)

    def default(self, request: v2.Request) -> bytes | None:
        if isinstance(request, v2.Add):
            return v2.encode_answer(request, v2.Code.OK)
        if isinstance(request, v2.Read):
            return self._read(request)
        assert isinstance(request, v2.BatchRead)
        found: list[v2.Buffer] = []
        size = 36
        for entry in range(request.first, request.first + (request.max_count or 1 << 30)):
            data = self.entries.get((request.ledger, entry))
            if data is None or (found and size + len(data) + 4 > request.max_bytes):
                break
            found.append(data)
            size += len(data) + 4
        return v2.encode_batch_answer(request, v2.Code.OK if found else v2.Code.NO_ENTRY, found)

    def _read(self, request: v2.Read) -> bytes:
        entry = request.entry
        known = [number for ledger, number in self.entries if ledger == request.ledger]
        if not known:
            return v2.encode_answer(request, v2.Code.NO_LEDGER)
        data = self.entries.get((request.ledger, max(known) if entry == -1 else entry))
        return v2.encode_answer(request, v2.Code.OK, data) if data else v2.encode_answer(request, v2.Code.NO_ENTRY)

    def say(self, data: bytes) -> None:
        """Bytes on the newest connection, asked for or not."""
        self.connections[-1].write(data)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: ScriptedBookie) -> None:
        self.bookie, self.data = bookie, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.bookie.connections.append(self.transport)
        self.bookie.opened += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.bookie.connections.remove(self.transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        position, answers = 0, []
        while (bounds := next_frame(self.data, position, len(self.data))) is not None:
            answer = self.bookie.answer(v2.decode_request(self.data[bounds[0] : bounds[1]]))
            if answer is ScriptedBookie.CLOSE:
                self.transport.abort()
                return
            answers.append(answer or b"")
            position = bounds[1]
        self.data = self.data[position:]
        self.transport.write(b"".join(answers))


@dataclass
class Bench:
    """Scripted bookies ``b1`` … and one client of them."""

    bookies: dict[str, ScriptedBookie] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    clients: list[BookieClient] = field(default_factory=list)

    async def bookie(self, *names: str) -> list[ScriptedBookie]:
        made = [ScriptedBookie(name) for name in names]
        for bookie in made:
            await bookie.start()
            self.bookies[bookie.id] = bookie
        return made

    async def resolve(self, bookie: str) -> tuple[str, int]:
        return self.bookies[bookie].address

    def client(self, identify: Identify | None = None, **settings: Any) -> BookieClient:
        client = BookieClient(
            TcpNetwork(), SystemClock(), self.resolve, ClientSettings(**settings), Events(self.events.append),
            identify=identify,
        )  # fmt: skip
        self.clients.append(client)
        return client

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    @staticmethod
    def entry(ledger: int, entry: int, payload: bytes, *, lac: int | None = None, length: int = 0) -> bytes:
        """As stored, with CRC32C."""
        header = EntryHeader(ledger, entry, entry - 1 if lac is None else lac, length or len(payload))
        return Digest.of(DigestType.CRC32C).encode(header, payload)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for bookie in self.bookies.values():
            await bookie.stop()
        await asyncio.sleep(0)  # let the aborted transports say good-bye


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


@pytest.fixture
def make_bench() -> type[Bench]:
    """For tests that run an event loop of their own; ``close`` it there."""
    return Bench
