"""A bookie whose every answer a test can choose, and the client's parts around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.fake_bookie import FakeBookie
from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory, machine
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.identity import Identify
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.runtime.events import Event, Events
from tallystick.runtime.outside import Outside
from tallystick.sim.virtual.loop import VirtualLoop


@dataclass
class Bench:
    """Scripted bookies ``b1`` … and one client of them."""

    bookies: dict[str, FakeBookie] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    clients: list[BookieClient] = field(default_factory=list)

    async def bookie(self, *names: str) -> list[FakeBookie]:
        made = [FakeBookie(name) for name in names]
        for bookie in made:
            await bookie.start()
            self.bookies[bookie.id] = bookie
        return made

    async def resolve(self, bookie: str) -> tuple[str, int]:
        return self.bookies[bookie].address

    def outside(self, **instead: Any) -> Outside:
        """A machine, with another network or clock in its place where one is given."""
        return machine(Events(self.events.append), **instead)

    def client(self, identify: Identify | None = None, **settings: Any) -> BookieClient:
        client = BookieClient(self.outside(), self.resolve, ClientSettings(**settings), identify=identify)
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


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Clients and scripted bookies run in virtual time; real bookies, with threads and disks, do not."""
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture(autouse=True)
async def no_errors_in_callbacks() -> AsyncIterator[None]:
    """A callback of production raises nothing; a virtual loop keeps what it raised."""
    loop = asyncio.get_running_loop()
    yield
    errors = loop.errors if isinstance(loop, VirtualLoop) else []
    assert [error for error in errors if not error.startswith("Future exception was never retrieved")] == []


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


@pytest.fixture
def make_bench() -> type[Bench]:
    """For tests that run an event loop of their own; ``close`` it there."""
    return Bench
