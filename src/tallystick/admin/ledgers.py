"""The ledgers of a cluster as their metadata tells of them; no bookie is asked and nothing is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.errors import NoSuchLedger

READS_AT_ONCE = 64


@dataclass(frozen=True)
class Ledger:
    id: LedgerId
    metadata: LedgerMetadata


async def list_ledgers(driver: MetadataDriver) -> AsyncIterator[Ledger]:
    """All ledgers, ids ascending. One that is deleted meanwhile is left out; any other failure raises."""
    window: list[LedgerId] = []
    async for ledger in driver.ledgers():
        window.append(ledger)
        if len(window) == READS_AT_ONCE:
            for found in await _read(driver, window):
                yield found
            window = []
    for found in await _read(driver, window):
        yield found


async def _read(driver: MetadataDriver, ledgers: list[LedgerId]) -> list[Ledger]:
    answers = await asyncio.gather(*(driver.read_ledger(ledger) for ledger in ledgers), return_exceptions=True)
    found = []
    for ledger, answer in zip(ledgers, answers, strict=True):
        if isinstance(answer, NoSuchLedger):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found.append(Ledger(ledger, answer.value))
    return found
