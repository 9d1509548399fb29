"""A cluster in this process: metadata in memory, and bookies that can be told to misbehave."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

from support.fake_bookie import FakeBookie
from support.machines import machine
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.runtime.events import Event, Events


class SmallCluster:
    """Bookies ``b0`` …, their metadata, and clients of both. ``close`` it."""

    _names = itertools.count()

    def __init__(self) -> None:
        self.name = f"small-{next(self._names)}"
        self.store = MemoryStore(self.name)
        self.driver = ClusterMetadata(self.store)
        self.bookies: dict[str, FakeBookie] = {}
        self.events: list[Event] = []
        self._registrations: dict[str, Any] = {}
        self._clients: list[BookKeeper] = []

    async def start(self, count: int) -> SmallCluster:
        await self.driver.init_cluster()
        for _ in range(count):
            await self.add()
        return self

    async def add(self) -> FakeBookie:
        bookie = self.bookies[f"b{len(self.bookies)}"] = FakeBookie(f"b{len(self.bookies)}")
        await self.up(bookie.id)
        return bookie

    async def up(self, *names: str) -> None:
        for name in names:
            self._registrations[name] = await self.driver.register(name, await self.bookies[name].start())

    async def unregister(self, name: str) -> None:
        """End a registration, as when the session of a process ended that goes on."""
        await self._registrations.pop(name).close()

    async def down(self, *names: str) -> None:
        for name in names:
            await self.unregister(name)
            await self.bookies[name].stop()
        await asyncio.sleep(0.002)  # virtual, or little: clients see the ends of their connections

    def client(self, seed: int = 1, /, streams: StreamClientSettings | None = None, **settings: Any) -> BookKeeper:
        outside = machine(Events(self.events.append), random=random.Random(seed))
        client = BookKeeper(ClusterMetadata(MemoryStore(self.name)), outside, ClientSettings(**settings), streams)
        self._clients.append(client)
        return client

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def holders(self, ledger: int, entry: int) -> set[str]:
        return {name for name, bookie in self.bookies.items() if (ledger, entry) in bookie.entries}

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for name in tuple(self._registrations):
            await self.down(name)
        await self.driver.close()
        await asyncio.sleep(0)  # let the aborted transports say good-bye
