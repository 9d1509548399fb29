"""What the driver looks up before a query is planned: the ledgers, how far each can be read, and where the bookies are.

The only part of a query that opens the metadata. An open ledger costs a question to its newest ensemble, never a fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.read import read_entries
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, LedgerId
from tallystick.errors import NoSuchLedger
from tallystick.pipeline.ledger.bookies import Address, bookie_client
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import Extent
from tallystick.pipeline.ledger.selection import Selection
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.events import Events
from tallystick.runtime.rng import system_random

AT_ONCE = 64  # ledgers looked up at the same time


@dataclass(frozen=True)
class Survey:
    """Ledgers in ascending order, and the addresses of all registered bookies."""

    extents: tuple[Extent, ...]
    addresses: Mapping[BookieId, Address]


async def survey(options: LedgerOptions) -> Survey:
    """Raises MetadataError, NoSuchLedger (of one named by its id), Unauthorized, Unavailable and its kinds."""
    driver = await open_driver(options.uri)
    try:
        return await survey_cluster(driver, options)
    finally:
        await driver.close()


async def survey_cluster(driver: MetadataDriver, options: LedgerOptions) -> Survey:
    """As ``survey``, over a driver that is open already."""
    await driver.instance_id()  # no cluster at all is an error, not an empty one
    found = await driver.bookies()
    infos = {**found.read_only, **found.writable}
    addresses = {bookie: info.address for bookie, info in infos.items() if info.address is not None}
    client = bookie_client(addresses)
    context = LedgerContext(driver, client, SystemClock(), system_random(), client.settings, Events())
    try:
        ledgers = await _ledgers(driver, options.selection)
        gate = asyncio.Semaphore(AT_ONCE)
        looked = await asyncio.gather(
            *(_look(context, gate, options, ledger) for ledger in ledgers), return_exceptions=True
        )
    finally:
        await client.close()
    for outcome in looked:
        if isinstance(outcome, BaseException):
            raise outcome
    return Survey(tuple(extent for extent in looked if isinstance(extent, Extent)), addresses)


async def _ledgers(driver: MetadataDriver, selection: Selection) -> list[LedgerId]:
    single = selection.single_ledgers
    if single is not None:
        return list(single)
    ledgers = [ledger async for ledger in driver.ledgers() if ledger in selection]
    missing = sorted(set(selection.named) - set(ledgers))
    if missing:
        raise NoSuchLedger("there is no such ledger", ledger=missing[0])
    return ledgers


async def _look(
    context: LedgerContext, gate: asyncio.Semaphore, options: LedgerOptions, ledger: LedgerId
) -> Extent | None:
    """None for a ledger that does not exist (any more) and that nobody named."""
    async with gate:
        try:
            reader = await LedgerReader.open(context, ledger, password=options.password_of(ledger))
        except NoSuchLedger:
            if ledger in options.selection.named:
                raise
            return None
        async with reader:
            length = reader.length if reader.is_closed else await _length(context, reader)
            return Extent(ledger, reader.metadata, reader.last_entry, length)


async def _length(context: LedgerContext, reader: LedgerReader) -> int:
    """Payload bytes of an open ledger: its last readable entry has the sum."""
    last = reader.last_entry
    if last == NO_ENTRY:
        return 0
    async with aclosing(read_entries(context.bookies, reader.metadata, reader.id, last, last)) as entries:
        return (await anext(entries)).length
