"""From metadata to partitions: which entries one Spark task reads, and all it needs to know for that. Pure.

Ledgers are cut where their ensemble changes, and then by bytes (``pipeline/cuts.py``). Nothing beyond a ledger's last
readable entry is ever planned (Q6, Q17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tallystick.bookkeeper.ledger.ranges import Range, ranges_of
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.pipeline.bookies import Address
from tallystick.pipeline.cuts import Limits, Stretch, cut
from tallystick.pipeline.ledger.selection import IdSpan

ENTRY_COST_BYTES = 64  # what an entry weighs beside its payload: headers on the wire and on the disk, columns in Arrow


class LedgerExtent(NamedTuple):
    """Entries ``first`` … ``last`` of a ledger as the planner sees them: to the last entry of a closed one, the LAC of
    an open one, -1 for none.

    ``length``: their payload bytes; only an estimate for the cuts, never a claim about the rows. ``metadata``: where
    the entries are, and how they are checked; no end, since closed ledgers that are alike share it.
    """

    ledger: LedgerId
    metadata: LedgerMetadata
    last: EntryId
    length: int
    first: EntryId = 0


@dataclass(frozen=True)
class LedgerPartition:
    """What one task reads, in order, and where the bookies listen. A bookie without address is not reachable now."""

    ranges: tuple[Range, ...]
    addresses: Mapping[BookieId, Address]
    fail_on_data_loss: bool = True

    @property
    def count(self) -> int:
        return sum(range_.last - range_.first + 1 for range_ in self.ranges)


def plan(
    extents: Sequence[LedgerExtent],
    entries: IdSpan,
    addresses: Mapping[BookieId, Address],
    limits: Limits,
    *,
    fail_on_data_loss: bool = True,
) -> list[LedgerPartition]:
    """Partitions that hold each wanted entry exactly once, in the order of ``extents``; none without entries."""
    weighed = [(range_, _entry_bytes(extent)) for extent in extents for range_ in _ranges(extent, entries)]
    partitions = cut([Stretch(range_.first, range_.last, entry_bytes) for range_, entry_bytes in weighed], limits)
    return [
        LedgerPartition(
            tuple(_part(weighed[number][0], piece) for number, piece in pieces),
            addresses,
            fail_on_data_loss,
        )
        for pieces in partitions
    ]


def _part(range_: Range, piece: Stretch) -> Range:
    if (piece.first, piece.last) == (range_.first, range_.last):
        return range_
    return range_._replace(first=piece.first, last=piece.last)


def _entry_bytes(extent: LedgerExtent) -> int:
    return ENTRY_COST_BYTES + -(-extent.length // max(extent.last - extent.first + 1, 1))


def _ranges(extent: LedgerExtent, entries: IdSpan) -> list[Range]:
    """The wanted entries of one ledger by fragment, without its password: who reads them has that from elsewhere."""
    first, last = max(extent.first, entries.first), min(extent.last, entries.last)
    if first > last:
        return []
    return ranges_of(extent.ledger, replace(extent.metadata, password=b""), first, last)
