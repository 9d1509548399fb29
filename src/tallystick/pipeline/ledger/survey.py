"""What the driver looks up before a query is planned: the ledgers, how far each can be read, and where the bookies are.

The only part of a query that opens the metadata. An open ledger costs a question to its newest ensemble, never a fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.password import with_password
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Versioned
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.wire.metadata import closed_end, decode
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, LedgerId, LedgerMetadata
from tallystick.errors import NoSuchLedger, Unauthorized
from tallystick.pipeline.bookies import Address, addresses_of, bookie_client, keys_of
from tallystick.pipeline.entry_sizes import size_of
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerExtent
from tallystick.pipeline.ledger.selection import Selection
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.rng import system_random

AT_ONCE = 64  # open ledgers whose bookies are asked at the same time
TOGETHER = 1000  # ledgers whose metadata are read in one call
PROGRESS_S = 5.0  # how often a long survey says how far it is


@dataclass(frozen=True)
class LedgerSurvey:
    """Ledgers in ascending order, and the addresses of all registered bookies."""

    extents: tuple[LedgerExtent, ...]
    addresses: Mapping[BookieId, Address]

    def __repr__(self) -> str:  # asyncio.run() asks its task for it: with every ledger in it that takes seconds
        return f"Survey({len(self.extents)} ledgers, {len(self.addresses)} bookies)"


Report = Callable[[int, int], None]  # so many of all so many ledgers have been looked up


async def survey(options: LedgerOptions, report: Report | None = None) -> LedgerSurvey:
    """Raises MetadataError, NoSuchLedger (of one named by its id), Unauthorized, Unavailable and its kinds.

    ``report`` is called every ``PROGRESS_S`` seconds; without it nobody hears how far a long survey is.
    """
    driver = await open_driver(options.uri)
    try:
        return await survey_cluster(driver, options, report)
    finally:
        await driver.close()


async def survey_cluster(driver: MetadataDriver, options: LedgerOptions, report: Report | None = None) -> LedgerSurvey:
    """As ``survey``, over a driver that is open already."""
    await driver.instance_id()  # no cluster at all is an error, not an empty one
    addresses = addresses_of(await driver.bookies())
    client = bookie_client(addresses, keys_of(options.uri))
    context = LedgerContext(driver, client, SystemClock(), system_random(), client.settings, Events(log_listener()))
    extents: list[LedgerExtent] = []
    progress = _Progress(context.clock, report)
    try:
        ledgers = await matching_ledgers(driver, options.selection)
        _require_named(options.selection, ledgers)
        for at in range(0, len(ledgers), TOGETHER):
            extents += await _look(context, options, ledgers[at : at + TOGETHER])
            progress.reached(at + TOGETHER, len(ledgers))
    finally:
        await client.close()
    return LedgerSurvey(tuple(extents), addresses)


class _Progress:
    """When to report."""

    def __init__(self, clock: Clock, report: Report | None) -> None:
        self._clock, self._report = clock, report
        self._next = clock.now() + PROGRESS_S

    def reached(self, count: int, total: int) -> None:
        if self._report is not None and count < total and self._clock.now() >= self._next:
            self._next = self._clock.now() + PROGRESS_S
            self._report(count, total)


async def matching_ledgers(driver: MetadataDriver, selection: Selection) -> list[LedgerId]:
    """Returns the ledgers that a query reads, ascending; single ones are not looked for."""
    single = selection.single_ledgers
    if single is not None:
        return list(single)
    ledgers = [ledger async for ledger in driver.ledgers()]
    return ledgers if selection.has_all_ledgers else [ledger for ledger in ledgers if ledger in selection]


def _require_named(selection: Selection, ledgers: Collection[LedgerId]) -> None:
    """Raises NoSuchLedger for one that the option names one by one and that is not among some ledgers."""
    missing_ledgers = sorted(set(selection.named_ledgers).difference(ledgers)) if selection.named_ledgers else []
    if missing_ledgers:
        raise NoSuchLedger("there is no such ledger", ledger=missing_ledgers[0])


async def _look(context: LedgerContext, options: LedgerOptions, ledgers: Sequence[LedgerId]) -> list[LedgerExtent]:
    """Closed ledgers are known from their metadata. One that does not exist (any more) is an error if it was named."""
    nodes = await context.driver.read_ledgers(ledgers)
    missing_ledgers = sorted(set(options.selection.named_ledgers).intersection(ledgers).difference(nodes))
    if missing_ledgers:
        raise NoSuchLedger(ledger=missing_ledgers[0])
    extents: dict[LedgerId, LedgerExtent] = {}
    still_open: dict[LedgerId, Versioned[LedgerMetadata]] = {}
    for ledger, node in nodes.items():
        state = state_of(options, ledger, node)
        if isinstance(state, LedgerExtent):
            extents[ledger] = state
        else:
            still_open[ledger] = state
    gate = asyncio.Semaphore(AT_ONCE)
    outcomes = await asyncio.gather(
        *(_look_at_open(context, gate, ledger, each) for ledger, each in still_open.items()), return_exceptions=True
    )
    for ledger, outcome in zip(still_open, outcomes, strict=True):
        if isinstance(outcome, LedgerExtent):
            extents[ledger] = outcome
        elif not isinstance(outcome, NoSuchLedger) or ledger in options.selection.named_ledgers:
            raise outcome
    return [extents[ledger] for ledger in ledgers if ledger in extents]


def state_of(options: LedgerOptions, ledger: LedgerId, node: Znode) -> LedgerExtent | Versioned[LedgerMetadata]:
    """Returns a closed ledger, or the metadata of an open one. Raises Unauthorized, MetadataError."""
    password = options.password_of(ledger)
    if (end := closed_end(node.data)) is not None:
        return LedgerExtent(ledger, _unlocked(ledger, end.common, password), end.last_entry, end.length)
    stored_metadata = decode(node.data, where=f"the metadata of ledger {ledger}", ctime_ms=node.ctime_ms)
    metadata = _unlocked(ledger, stored_metadata, password)
    if metadata.is_closed:
        return LedgerExtent(ledger, metadata, metadata.last_entry, metadata.length)
    return Versioned(metadata, node.version)


def _unlocked(ledger: LedgerId, metadata: LedgerMetadata, password: bytes) -> LedgerMetadata:
    """As ``with_password``, with words for whoever wrote a query."""
    try:
        return with_password(ledger, metadata, password)
    except Unauthorized as error:
        how = 'the options passwordFile and passwords give them, ledgers ("1,2,5-9") says which to read'
        raise Unauthorized(f"{error.message}; {how}", **error.fields) from None


async def _look_at_open(
    context: LedgerContext, gate: asyncio.Semaphore, ledger: LedgerId, metadata: Versioned[LedgerMetadata]
) -> LedgerExtent:
    async with gate, LedgerReader(context, ledger, metadata) as reader:
        await reader.refresh()
        length = reader.length if reader.is_closed else await _length(context, reader)
        return LedgerExtent(ledger, reader.metadata, reader.last_entry, length)


async def _length(context: LedgerContext, reader: LedgerReader) -> int:
    """Payload bytes of an open ledger, as far as it can be read."""
    last = reader.last_entry
    return 0 if last == NO_ENTRY else await size_of(context.bookies, reader.id, reader.metadata, 0, last)
