"""What left the front of a stream's list, as a property of the stream: who had read up to there has missed nothing.

::

    tallystick/gone   <position> <ledger>     nothing was stored from the position to the beginning of this ledger

A ledger of the list ends where the next one begins, but for ledgers that left it empty, as an owner that ends without
an append leaves one. When what was before them is gone as well, a position at their beginning is before the first
ledger, as one of a ledger that retention deleted unread is. Once the list begins with another ledger, as a Pulsar
broker has trimmed it, say, the property says nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.errors import UsageError

GONE_KEY = "tallystick/gone"


def gone_end(info: StreamInfo) -> Position:
    """Returns the end (excluded) of what left the front of the list, EARLIEST if nobody knows it."""
    if info.ledgers:
        position, _, first = info.properties.get(GONE_KEY, "").partition(" ")
        if first == str(info.ledgers[0].ledger):
            with contextlib.suppress(UsageError):
                return Position.parse(position).of_entry
    return EARLIEST


def with_gone(before: StreamInfo, after: StreamInfo, ended: Sequence[StreamLedger] = ()) -> StreamInfo:
    """Returns the list ``after``, with what is in ``before`` and gone from its front. ``ended`` are the ends of ledgers
    of which ``before`` has none; one without counts had entries that nobody knows."""
    if not after.ledgers:
        return after
    first, ends = after.ledgers[0].ledger, {each.ledger: each for each in ended}
    gone = [ends.get(each.ledger, each) for each in before.ledgers if each.ledger < first]
    if not gone or not all(each.is_closed and each.has_counts for each in gone):
        return after
    written = f"{_end(gone, gone_end(before))} {first}"
    return replace(after, properties={**after.properties, GONE_KEY: written})


def _end(gone: Sequence[StreamLedger], before: Position) -> Position:
    for each in reversed(gone):
        if each.entries:
            return Position(each.ledger, each.entries)
    return Position(gone[0].ledger, 0) if before == EARLIEST else before
