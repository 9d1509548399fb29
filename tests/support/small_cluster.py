"""A cluster in this process: metadata in memory, and bookies that store in dicts and can be told to misbehave."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tallystick.bookkeeper.ledger.client import BookKeeper
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.codec.frames import next_frame
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Event, Events
from tallystick.runtime.network import Listener, TcpNetwork

HANG = -1  # as a code: no answer at all
Misbehave = Callable[[v2.Request], int | None]  # a code to answer with instead, or None for the usual


@dataclass
class PlainBookie:
    """The rules of a bookie, without a disk. It survives ``stop`` and ``start`` as a real one does."""

    id: str
    entries: dict[int, dict[int, bytes]] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    requests: list[v2.Request] = field(default_factory=list)
    misbehave: Misbehave | None = None
    held: list[Callable[[], None]] | None = None  # a list: answers to adds wait here
    listener: Listener | None = None
    connections: list[asyncio.Transport] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        assert self.listener is not None, f"{self.id} is down"
        return self.listener.address

    async def start(self) -> BookieInfo:
        self.listener = await TcpNetwork().listen("127.0.0.1", 0, lambda: _Connection(self))
        return BookieInfo.at(*self.listener.address)

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.close()
            self.listener = None
        for transport in tuple(self.connections):
            transport.abort()

    def release(self) -> None:
        """Send the answers that were held, and hold no more."""
        held, self.held = self.held or [], None
        for send in held:
            send()

    def answer(self, request: v2.Request) -> bytes | None:
        self.requests.append(request)
        code = self.misbehave(request) if self.misbehave else None
        if code == HANG:
            return None
        if isinstance(request, v2.Add):
            return v2.encode_answer(request, self._add(request) if code is None else code)
        if isinstance(request, v2.Read):
            found = self._read(request) if code is None else (code, b"")
            return v2.encode_answer(request, *found)
        assert isinstance(request, v2.BatchRead)
        stored = self.entries.get(request.ledger, {})
        run = list(itertools.takewhile(stored.__contains__, itertools.count(request.first)))[: request.max_count]
        found_entries: list[v2.Buffer] = [stored[entry] for entry in run]
        code = code if code is not None else v2.Code.OK if run else v2.Code.NO_ENTRY
        return v2.encode_batch_answer(request, code, found_entries)

    def _add(self, request: v2.Add) -> int:
        if self.keys.setdefault(request.ledger, request.master_key) != request.master_key:
            return v2.Code.UNAUTHORIZED
        if request.ledger in self.fenced and not request.flags & v2.Flag.RECOVERY_ADD:
            return v2.Code.FENCED
        self.entries.setdefault(request.ledger, {})[request.entry] = bytes(request.body)
        return v2.Code.OK

    def _read(self, request: v2.Read) -> tuple[int, bytes]:
        if request.flags & v2.Flag.FENCE:
            assert request.master_key is not None
            if self.keys.setdefault(request.ledger, request.master_key) != request.master_key:
                return v2.Code.UNAUTHORIZED, b""
            self.fenced.add(request.ledger)
        stored = self.entries.get(request.ledger)
        if not stored:
            return v2.Code.NO_LEDGER, b""
        entry = max(stored) if request.entry == -1 else request.entry
        return (v2.Code.OK, stored[entry]) if entry in stored else (v2.Code.NO_ENTRY, b"")


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: PlainBookie) -> None:
        self.bookie, self.data = bookie, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.bookie.connections.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bookie.connections.remove(self.transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        position = 0
        while (bounds := next_frame(self.data, position, len(self.data))) is not None:
            request = v2.decode_request(self.data[bounds[0] : bounds[1]])
            answer = self.bookie.answer(request)
            if answer is not None and isinstance(request, v2.Add) and self.bookie.held is not None:
                self.bookie.held.append(partial(self.transport.write, answer))
            elif answer is not None:
                self.transport.write(answer)
            position = bounds[1]
        self.data = self.data[position:]


class SmallCluster:
    """Bookies ``b0`` …, their metadata, and clients of both. ``close`` it."""

    _names = itertools.count()

    def __init__(self) -> None:
        self.name = f"small-{next(self._names)}"
        self.store = MemoryStore(self.name)
        self.driver = ClusterMetadata(self.store)
        self.bookies: dict[str, PlainBookie] = {}
        self.events: list[Event] = []
        self._registrations: dict[str, Any] = {}
        self._clients: list[BookKeeper] = []

    async def start(self, count: int) -> SmallCluster:
        await self.driver.init_cluster()
        for _ in range(count):
            await self.add()
        return self

    async def add(self) -> PlainBookie:
        bookie = self.bookies[f"b{len(self.bookies)}"] = PlainBookie(f"b{len(self.bookies)}")
        await self.up(bookie.id)
        return bookie

    async def up(self, *names: str) -> None:
        for name in names:
            self._registrations[name] = await self.driver.register(name, await self.bookies[name].start())

    async def down(self, *names: str) -> None:
        for name in names:
            await self._registrations.pop(name).close()
            await self.bookies[name].stop()

    def client(self, seed: int = 1, /, **settings: Any) -> BookKeeper:
        client = BookKeeper(
            ClusterMetadata(MemoryStore(self.name)), TcpNetwork(), SystemClock(), random.Random(seed),
            ClientSettings(**settings),
            Events(self.events.append),
        )  # fmt: skip
        self._clients.append(client)
        return client

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def holders(self, ledger: int, entry: int) -> set[str]:
        return {name for name, bookie in self.bookies.items() if entry in bookie.entries.get(ledger, {})}

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for name in tuple(self._registrations):
            await self.down(name)
        await self.driver.close()
        await asyncio.sleep(0)  # let the aborted transports say good-bye
