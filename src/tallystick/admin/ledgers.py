"""The ledgers of a cluster as their metadata tells of them, and how far the bookies of an open one have come.

Nothing is fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import NoSuchLedger, RequestTimeout, TallyError

READS_AT_ONCE = 64
REPLICA_S = 2.0


@dataclass(frozen=True)
class LedgerStatus:
    id: LedgerId
    metadata: LedgerMetadata


@dataclass(frozen=True)
class Replica:
    """A bookie of a ledger's newest ensemble: the last entry that it has, -1 for none; None and why it did not say."""

    bookie: BookieId
    last_entry: EntryId | None
    why: str = ""

    def __str__(self) -> str:
        if self.last_entry is None:
            return f"{self.bookie}: missing, {self.why}"
        return f"{self.bookie}: " + ("no entry" if self.last_entry == NO_ENTRY else f"last entry {self.last_entry}")


async def replicas(client: BookieClient, ledger: LedgerId, metadata: LedgerMetadata) -> list[Replica]:
    """How far each bookie of the newest ensemble is: one that is missing or behind shows a degraded ledger."""

    digest = Digest.of(metadata.digest_type, metadata.password)

    async def ask(bookie: BookieId) -> Replica:
        try:
            async with asyncio.timeout(REPLICA_S):
                reply = await client.read(bookie, ledger, NO_ENTRY)
            if reply.code == Code.OK:
                return Replica(bookie, digest.decode(ledger, None, reply.entry)[0].entry)
        except TimeoutError:
            return Replica(bookie, None, str(RequestTimeout("no answer in time")))
        except TallyError as error:
            return Replica(bookie, None, str(error))
        if reply.code in NO_CODES:
            return Replica(bookie, NO_ENTRY)
        return Replica(bookie, None, f"code {reply.code.name}")

    return list(await asyncio.gather(*map(ask, metadata.ensemble)))


async def list_ledgers(driver: MetadataDriver) -> AsyncIterator[LedgerStatus]:
    """All ledgers, ids ascending. One that is deleted meanwhile is left out; any other failure raises."""
    window: list[LedgerId] = []
    async for ledger in driver.ledgers():
        window.append(ledger)
        if len(window) == READS_AT_ONCE:
            for status in await _read(driver, window):
                yield status
            window = []
    for status in await _read(driver, window):
        yield status


async def _read(driver: MetadataDriver, ledgers: list[LedgerId]) -> list[LedgerStatus]:
    outcomes = await asyncio.gather(*(driver.read_ledger(ledger) for ledger in ledgers), return_exceptions=True)
    statuses = []
    for ledger, outcome in zip(ledgers, outcomes, strict=True):
        if isinstance(outcome, NoSuchLedger):
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        statuses.append(LedgerStatus(ledger, outcome.value))
    return statuses
