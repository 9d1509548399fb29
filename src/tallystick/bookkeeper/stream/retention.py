"""Which ledgers of a stream are deleted: those at its front that no cursor needs and that are too old or too many.

Follows ``ManagedLedgerImpl.internalTrimLedgers``: a ledger goes when it is too old *or* the ledgers behind it have so
many bytes without it. The newest one always stays.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from itertools import islice

from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.bookkeeper.wire.ledger_runs import total_size
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId

DEDUPLICATION = "pulsar.dedup"  # a cursor that keeps state, and holds nothing


def trimmable(
    info: StreamInfo, marks: Collection[Position], settings: StreamSettings, now_ms: int, *, most: int = sys.maxsize
) -> list[LedgerId]:
    """Returns the ledgers to delete, from the first on, so many at ``most``. ``marks``: how far the durable cursors
    have acknowledged."""
    total = 0 if settings.retention_bytes == UNLIMITED else total_size(info.ledgers)
    before, dropped = 0, list[LedgerId]()
    for ledger in islice(_unneeded(info, min(marks, default=None)), most):
        before += ledger.size
        is_old = settings.retention_s != UNLIMITED and now_ms - ledger.timestamp_ms > settings.retention_s * 1000
        is_much = settings.retention_bytes != UNLIMITED and total - before >= settings.retention_bytes
        if not (is_old or is_much):
            break
        dropped.append(ledger.ledger)
    return dropped


def _unneeded(info: StreamInfo, mark: Position | None) -> Iterator[StreamLedger]:
    """Yields the closed ledgers at the front all of whose entries are acknowledged by every cursor."""
    for ledger in islice(info.ledgers, max(len(info.ledgers) - 1, 0)):
        needed = mark is not None and mark < Position(ledger.ledger, ledger.entries - 1)
        # What was moved to another storage is Pulsar's to delete there.
        if needed or not ledger.is_closed or ledger.offload:
            return
        yield ledger
