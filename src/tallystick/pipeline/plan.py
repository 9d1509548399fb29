"""From metadata to partitions: which entries one Spark task reads, and all it needs to know for that. Pure.

::

    ledgers     7: 0 ─────────── 99 | 8: 0 ── 9 | 9: 0 ── 4        (metadata, last readable entry, bytes)
    ranges      7: 0 ── 49, 50 ── 99 | 8: 0 ── 9 | 9: 0 ── 4       cut where the ensemble changes
    partitions  [7: 0-49, 7: 50-63] [7: 64-99, 8: 0-9, 9: 0-4]     cut where the bytes fill up: few and fat

A Python partition costs some 15 to 48 ms of CPU before its first row, so small ledgers share one, and only bytes (or the
caller's wish for more of them) make partitions. Nothing beyond a ledger's last readable entry is ever planned (Q6, Q17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.bookkeeper.wire.values import BookieId, DigestType, Ensemble, EntryId, Fragment, LedgerId, LedgerMetadata
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
class EntryRange:
    """Entries ``first`` to ``last`` of one ledger, all in one fragment: what a reader without metadata service needs."""

    ledger: LedgerId
    first: EntryId
    last: EntryId
    bookies: Ensemble
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest_type: DigestType
    password: bytes = field(repr=False)

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def metadata(self) -> LedgerMetadata:
        """The part of the ledger's metadata that reading these entries takes: one fragment, closed at ``last``."""
        return LedgerMetadata(
            self.ensemble_size, self.write_quorum, self.ack_quorum, (Fragment(0, self.bookies),), self.digest_type, self.password
        ).closed(self.last, 0)


@dataclass(frozen=True)
class Partition:
    """What one task reads, in order, and where the bookies listen. A bookie without address is not reachable now."""

    ranges: tuple[EntryRange, ...]
    addresses: Mapping[BookieId, Address]

    @property
    def count(self) -> int:
        return sum(entry_range.count for entry_range in self.ranges)


@dataclass(frozen=True)
class Limits:
    """How partitions are cut. ``min_partitions`` is a wish: an entry is never divided."""

    max_partition_bytes: int = 128 * 1024 * 1024
    min_partitions: int = 1


def plan(
    extents: Sequence[Extent], entries: Span, addresses: Mapping[BookieId, Address], limits: Limits
) -> list[Partition]:
    """Partitions that hold each wanted entry exactly once, in the order of ``extents``; an empty list for no entries."""
    weighed = [(found, _entry_bytes(extent)) for extent in extents for found in _ranges(extent, entries)]
    total = sum(found.count * entry_bytes for found, entry_bytes in weighed)
    wanted = max(limits.min_partitions, -(-total // limits.max_partition_bytes), 1)
    share = max(1, -(-total // wanted))
    cut: dict[int, list[EntryRange]] = {}
    start = 0
    for found, entry_bytes in weighed:
        for index, piece in _cut(found, entry_bytes, start, share):
            cut.setdefault(index, []).append(piece)
        start += found.count * entry_bytes
    return [Partition(tuple(ranges), addresses) for ranges in cut.values()]


def _entry_bytes(extent: Extent) -> int:
    return ENTRY_COST_BYTES + -(-extent.length // (extent.last + 1)) if extent.last >= 0 else ENTRY_COST_BYTES


def _ranges(extent: Extent, entries: Span) -> Iterator[EntryRange]:
    """The wanted entries of one ledger by fragment. A fragment may begin behind the last entry: it then holds none."""
    metadata = extent.metadata
    firsts = [fragment.first for fragment in metadata.fragments]
    for fragment, next_first in zip(metadata.fragments, [*firsts[1:], extent.last + 1], strict=True):
        span = Span(fragment.first, min(next_first - 1, extent.last)) & entries
        if not span.is_empty:
            yield EntryRange(
                extent.ledger, span.first, span.last, fragment.bookies,
                metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum,
                metadata.digest_type, _digest_password(metadata),
            )  # fmt: skip


def _digest_password(metadata: LedgerMetadata) -> bytes:
    """Only the keyed digest needs it to check entries; the others' passwords stay on the driver."""
    return metadata.password if metadata.digest_type is DigestType.HMAC else b""


def _cut(found: EntryRange, entry_bytes: int, start: int, share: int) -> Iterator[tuple[int, EntryRange]]:
    """Pieces of a range that begins at byte ``start`` of the whole query; an entry belongs where its first byte falls."""
    first = found.first
    while first <= found.last:
        index = (start + (first - found.first) * entry_bytes) // share
        end = found.first + -(-((index + 1) * share - start) // entry_bytes)  # the first entry of the next partition
        last = min(end - 1, found.last)
        yield index, replace(found, first=first, last=last)
        first = last + 1
