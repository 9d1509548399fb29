"""How many payload bytes entries have: each says how many its ledger has up to it, so two tell of all."""

from __future__ import annotations

from contextlib import aclosing

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.wire.values import EntryId, LedgerId, LedgerMetadata
from tallystick.errors import EntryLost, NoSuchEntry

UNKNOWN_BYTES = 1024  # of an entry where the ends of some are lost: the same whenever they are planned


async def size_of(
    bookies: BookieClient, ledger: LedgerId, metadata: LedgerMetadata, first: EntryId, last: EntryId
) -> int:
    """Returns the payload bytes of the entries ``first`` … ``last``. Raises as reading them does."""
    ends = ranges_of(ledger, metadata, first, first) if first else []
    if last > first or not ends:
        ends += ranges_of(ledger, metadata, last, last)
    start = length = 0
    async with aclosing(fetch_runs(bookies, ends)) as runs:
        async for run in runs:
            if run.first == first and first:
                start = run.lengths[0] - len(run.payloads[0])
            length = run.lengths[-1]
    return length - start


async def planned_size(
    bookies: BookieClient,
    ledger: LedgerId,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    *,
    fail_on_data_loss: bool,
) -> int:
    """As ``size_of``; but not ``fail_on_data_loss`` an estimate if one of the ends is lost: the others are to be read.
    Whoever reads them says what is left out."""
    try:
        return await size_of(bookies, ledger, metadata, first, last)
    except (EntryLost, NoSuchEntry):
        if fail_on_data_loss:
            raise
        return (last - first + 1) * UNKNOWN_BYTES
