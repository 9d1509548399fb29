"""What left the front of a stream's list, as a property of the stream: who had read up to there has missed nothing.

::

    tallystick/gone   <position> <ledger>     nothing was stored from the position to the beginning of this ledger
    tallystick/gone   <position> v<version>   nothing was stored from the position on, and this list has no ledger

A ledger of the list ends where the next one begins, but for ledgers that left it empty, as an owner that ends without
an append leaves one. When what was before them is gone as well, a position at their beginning is before the first
ledger, as one of a ledger that retention deleted unread is. Once the list begins with another ledger, as a Pulsar
broker has trimmed it, say, the property says nothing.

A stream that is handed over before anything is stored in it has no ledger, and nobody knows which one a broker will
make. But each ledger that is listed takes a write of the list, and so does each that is dropped: while there were as
many writes as there are ledgers, none was.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.errors import UsageError

GONE_KEY = "tallystick/gone"

_UNKNOWN: Version = -1
_LEDGER = attrgetter("ledger")


def gone_end(info: StreamInfo, version: Version = _UNKNOWN) -> Position:
    """Returns the end (excluded) of what left the front of the list, EARLIEST if nobody knows it. ``version`` is that
    of the list."""
    position, _, since = info.properties.get(GONE_KEY, "").partition(" ")
    begins_so = bool(info.ledgers) and since == str(info.ledgers[0].ledger)
    if begins_so or since == f"v{version - len(info.ledgers)}":
        with contextlib.suppress(UsageError):
            return Position.parse(position).of_entry
    return EARLIEST


def with_gone(
    before: StreamInfo, after: StreamInfo, ended: Sequence[StreamLedger] = (), version: Version = _UNKNOWN
) -> StreamInfo:
    """Returns the list ``after``, with what is in ``before`` and gone from its front. ``ended`` are the ends of ledgers
    of which ``before`` has none; one without counts had entries that nobody knows. ``version`` is that of ``before``:
    it is needed where one of both has no ledger."""
    if version == _UNKNOWN and not (before.ledgers and after.ledgers):
        return after
    ends, gone_until = {each.ledger: each for each in ended}, gone_end(before, version)
    gone = [ends.get(each.ledger, each) for each in _front(before, after)]
    is_known = gone or (after.ledgers and gone_until > EARLIEST)
    if not is_known or not all(each.is_closed and each.has_counts for each in gone):
        return after
    since = after.ledgers[0].ledger if after.ledgers else f"v{version + 1}"
    return replace(after, properties={**after.properties, GONE_KEY: f"{_end(gone, gone_until)} {since}"})


def _front(before: StreamInfo, after: StreamInfo) -> Sequence[StreamLedger]:
    """Returns what is gone from the front."""
    if not after.ledgers:
        return before.ledgers
    return before.ledgers[: bisect_left(before.ledgers, after.ledgers[0].ledger, key=_LEDGER)]


def _end(gone: Sequence[StreamLedger], before: Position) -> Position:
    for each in reversed(gone):
        if each.entries:
            return Position(each.ledger, each.entries)
    return Position(gone[0].ledger, 0) if before == EARLIEST else before
