"""How many bytes a stream has behind a cursor, and from where on it has no more than so many.

As ``ManagedLedgerImpl.estimateBacklogFromPosition`` does it: whole ledgers count what they have, and a part of one its
share of the entries. The list is given with what its open ledger has by now.
"""

from __future__ import annotations

from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo


def backlog_bytes(info: StreamInfo, mark: Position) -> int:
    """Returns the bytes of what is behind this position."""
    total = 0
    for listed in info.ledgers:
        if listed.ledger > mark.ledger:
            total += listed.size
        elif listed.ledger == mark.ledger and listed.entries:
            behind = max(listed.entries - mark.entry - 1, 0)
            total += listed.size * behind // listed.entries
    return total


def last_beyond(info: StreamInfo, most_bytes: int) -> Position:
    """Returns the last entry behind which there are no more than so many bytes, EARLIEST if the stream has no more."""
    left = most_bytes
    for listed in reversed(info.ledgers):
        if listed.size > left:
            kept = listed.entries * left // listed.size
            return Position(listed.ledger, listed.entries - kept - 1)
        left -= listed.size
    return EARLIEST
