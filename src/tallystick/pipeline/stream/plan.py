"""From the ledgers of streams to partitions: which entries one Spark task reads, and all it needs to know for that.

Pure. The partitions hang on the entries alone, which are the same whenever a query is planned again: neither on how
many bookies there are now, nor on what has been appended since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tallystick.bookkeeper.ledger.ranges import Range, ranges_of
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.pipeline.bookies import Address
from tallystick.pipeline.cuts import Limits, Stretch, cut

ENTRY_COST_BYTES = 64  # what an entry weighs beside its payload: headers on the wire and on the disk, columns in Arrow


class LedgerSpan(NamedTuple):
    """Entries of one ledger of a stream. ``size``: their payload bytes.

    ``before`` are entries of ledgers before it in the stream: a message that came in chunks may begin there.
    """

    stream: str
    ledger: LedgerId
    metadata: LedgerMetadata
    first: EntryId
    last: EntryId
    size: int
    before: tuple[Range, ...] = ()


@dataclass(frozen=True)
class StreamRange:
    """Entries of one ledger of a stream, by fragment. ``before`` are those before them, the oldest first."""

    stream: str
    ranges: tuple[Range, ...]
    before: tuple[Range, ...]


@dataclass(frozen=True)
class StreamPartition:
    """What one task reads, in order, and where the bookies listen. A bookie without address is not reachable now."""

    ranges: tuple[StreamRange, ...]
    addresses: Mapping[BookieId, Address]
    is_raw: bool = False
    fail_on_data_loss: bool = True


def plan(
    spans: Sequence[LedgerSpan],
    addresses: Mapping[BookieId, Address],
    limits: Limits,
    *,
    is_raw: bool = False,
    fail_on_data_loss: bool = True,
) -> list[StreamPartition]:
    """Partitions that hold each entry exactly once, in the order of ``spans``; none without entries."""
    stretches = [Stretch(span.first, span.last, _entry_bytes(span)) for span in spans]
    return [
        StreamPartition(
            tuple(_range(spans[number], piece) for number, piece in pieces), addresses, is_raw, fail_on_data_loss
        )
        for pieces in cut(stretches, limits)
    ]


def _entry_bytes(span: LedgerSpan) -> int:
    return ENTRY_COST_BYTES + -(-span.size // (span.last - span.first + 1))


def _range(span: LedgerSpan, piece: Stretch) -> StreamRange:
    before = ranges_of(span.ledger, span.metadata, 0, piece.first - 1) if piece.first else []
    return StreamRange(
        span.stream,
        tuple(ranges_of(span.ledger, span.metadata, piece.first, piece.last)),
        (*span.before, *before),
    )
