"""From metadata to partitions: which entries one Spark task reads, and all it needs to know for that. Pure.

::

    ledgers     7: 0 ─────────── 99 | 8: 0 ── 9 | 9: 0 ── 4        (metadata, last readable entry, bytes)
    ranges      7: 0 ── 49, 50 ── 99 | 8: 0 ── 9 | 9: 0 ── 4       cut where the ensemble changes
    partitions  [7: 0-49, 7: 50-63] [7: 64-99, 8: 0-9, 9: 0-4]     cut where the bytes fill up: few and fat

A Python partition costs some 15 to 48 ms of CPU before its first row, so small ledgers share one, and only bytes (or
the caller's wish for more) make partitions. Nothing beyond a ledger's last readable entry is ever planned (Q6, Q17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.ledger.fetch import Range, ranges_of
from tallystick.bookkeeper.wire.values import BookieId, DigestType, EntryId, LedgerId, LedgerMetadata
from tallystick.pipeline.selection import Span

ENTRY_COST_BYTES = 64  # what an entry weighs beside its payload: headers on the wire and on the disk, columns in Arrow
Address = tuple[str, int]


@dataclass(frozen=True)
class Extent:
    """A ledger as the planner sees it. ``last``: the last entry of a closed one, the LAC of an open one, -1 for none.

    ``length``: payload bytes up to ``last``; only an estimate for the cuts, never a claim about the rows.
    """

    ledger: LedgerId
    metadata: LedgerMetadata
    last: EntryId
    length: int


@dataclass(frozen=True)
class Partition:
    """What one task reads, in order, and where the bookies listen. A bookie without address is not reachable now."""

    ranges: tuple[Range, ...]
    addresses: Mapping[BookieId, Address]

    @property
    def count(self) -> int:
        return sum(map(_count, self.ranges))


@dataclass(frozen=True)
class Limits:
    """How partitions are cut. ``min_partitions`` is a wish: an entry is never divided."""

    max_partition_bytes: int = 128 * 1024 * 1024
    min_partitions: int = 1


def plan(
    extents: Sequence[Extent], entries: Span, addresses: Mapping[BookieId, Address], limits: Limits
) -> list[Partition]:
    """Partitions that hold each wanted entry exactly once, in the order of ``extents``; none without entries."""
    weighed = [(found, _entry_bytes(extent)) for extent in extents for found in _ranges(extent, entries)]
    total = sum(_count(found) * entry_bytes for found, entry_bytes in weighed)
    wanted = max(limits.min_partitions, -(-total // limits.max_partition_bytes), 1)
    share = max(1, -(-total // wanted))
    cut: dict[int, list[Range]] = {}
    start = 0
    for found, entry_bytes in weighed:
        for index, piece in _cut(found, entry_bytes, start, share):
            cut.setdefault(index, []).append(piece)
        start += _count(found) * entry_bytes
    return [Partition(tuple(ranges), addresses) for ranges in cut.values()]


def _count(found: Range) -> int:
    return found.last - found.first + 1


def _entry_bytes(extent: Extent) -> int:
    return ENTRY_COST_BYTES + -(-extent.length // (extent.last + 1)) if extent.last >= 0 else ENTRY_COST_BYTES


def _ranges(extent: Extent, entries: Span) -> Iterator[Range]:
    """The wanted entries of one ledger by fragment. Only the keyed digest takes the password to the executors."""
    span = Span(0, extent.last) & entries
    if span.is_empty:
        return
    for found in ranges_of(extent.ledger, extent.metadata, span.first, span.last):
        yield found if found.digest_type is DigestType.HMAC else replace(found, password=b"")


def _cut(found: Range, entry_bytes: int, start: int, share: int) -> Iterator[tuple[int, Range]]:
    """Pieces of a range that begins at byte ``start`` of the query; an entry belongs where its first byte falls."""
    first = found.first
    while first <= found.last:
        index = (start + (first - found.first) * entry_bytes) // share
        end = found.first + -(-((index + 1) * share - start) // entry_bytes)  # the first entry of the next partition
        last = min(end - 1, found.last)
        yield index, replace(found, first=first, last=last)
        first = last + 1
