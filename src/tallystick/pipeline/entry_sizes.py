"""How many payload bytes entries have: each says how many its ledger has up to it, so two tell of all."""

from __future__ import annotations

from contextlib import aclosing

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.wire.values import EntryId, LedgerId, LedgerMetadata


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
