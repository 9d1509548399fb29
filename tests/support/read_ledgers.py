"""Ledgers for readers: what a writer does is done by hand, on scripted bookies."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Events

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench

ABC = ("b1", "b2", "b3")


class Cluster:
    """Scripted bookies, a metadata driver, and a writer's doings by hand."""

    def __init__(self, bench: Bench, driver: MetadataDriver) -> None:
        self.bench, self.driver = bench, driver
        self.version = 0
        self.total = 0

    async def create(self, ensemble: tuple[str, ...] = ABC, quorum: int = 2, **fields: Any) -> int:
        await self.bench.bookie(*(name for name in ensemble if name not in self.bench.bookies))
        self.metadata = LedgerMetadata(
            len(ensemble), quorum, quorum, (Fragment(0, ensemble),), DigestType.CRC32C, **fields
        )
        created = await self.driver.create_ledger(self.metadata)
        self.ledger, self.version = created.value, created.version
        return self.ledger

    async def store(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.version = await self.driver.write_ledger(self.ledger, metadata, self.version)

    def append(self, first: int, last: int, lac: int | None = None) -> None:
        """Each entry with the LAC of a writer that waits for each; or all with ``lac``."""
        striping = Striping.of(self.metadata)
        for entry in range(first, last + 1):
            self.total += len(payload(entry))
            ensemble = self.metadata.ensemble_of(entry)
            for slot in striping.slots(entry):
                self.bench.bookies[ensemble[slot]].entries[self.ledger, entry] = self.bench.entry(
                    self.ledger, entry, payload(entry), lac=entry - 1 if lac is None else lac, length=self.total
                )

    async def close(self, last: int) -> None:
        await self.store(self.metadata.closed(last, self.total))

    def context(self, **settings: Any) -> LedgerContext:
        client = self.bench.client(**settings)
        return LedgerContext(
            self.driver, client, SystemClock(), random.Random(1), client.settings, Events(self.bench.events.append)
        )


def payload(entry: int) -> bytes:
    return f"entry {entry} ".encode() * (entry % 7)
