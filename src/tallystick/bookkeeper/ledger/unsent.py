"""What a writer says when it closes a ledger that some bookies lack entries of: replicators look at those first.

They were missing while it was degraded, or failed an entry that had its ack quorum without them, or have not answered
yet: for those the end waits a moment, as each would cost short ledgers a write more.

It is a finding of ours (``FindingTree``), written before the end of the ledger is: a writer that dies in between has
said too much, and what is not missing costs a read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataError


async def note_unsent(context: LedgerContext, ledger: LedgerId, bookies: Sequence[BookieId]) -> None:
    """Say that these bookies may lack entries. The audit after the close finds them, too, so nothing fails for want of
    this."""
    if bookies:
        now_ms = context.clock.wall_ms()
        with suppress(MetadataError):
            faults = [CopyFault(FaultKind.UNSENT, bookie, (), now_ms) for bookie in bookies]
            await FindingTree(context.driver).note(ledger, faults)
