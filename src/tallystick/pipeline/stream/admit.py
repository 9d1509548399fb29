"""How much of what is new the next batch of a streaming query gets. Pure.

Each stream has a part of the limits that is as large as its part of what is not read, and one entry at least: no stream
waits for the others. Sizes are estimates, since entries are not all of one size; what was decided is in the offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tallystick.bookkeeper.stream.ledger_list import count_of
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.stream.offsets import Positions
from tallystick.pipeline.trigger import TriggerLimits, share


class LedgerBacklog(NamedTuple):
    """Entries of a ledger, from ``first`` to before ``stop``, that are not read."""

    ledger: LedgerId
    first: EntryId
    stop: EntryId
    entry_bytes: int

    @property
    def entries(self) -> int:
        return self.stop - self.first

    @property
    def size(self) -> int:
        return self.entries * self.entry_bytes


def admit(starts: Positions, extents: Mapping[str, StreamExtent], limits: TriggerLimits) -> dict[str, Position]:
    """Returns where the batch that begins at ``starts`` ends in each stream; ``StreamExtent.next`` gave the starts."""
    backlogs = {stream: backlog(extent, starts[stream]) for stream, extent in extents.items()}
    entries = sum(piece.entries for pieces in backlogs.values() for piece in pieces)
    size = sum(piece.size for pieces in backlogs.values() for piece in pieces)
    ends = {}
    for stream, pieces in backlogs.items():
        most_entries = share(limits.items, sum(piece.entries for piece in pieces), entries)
        most_bytes = share(limits.bytes, sum(piece.size for piece in pieces), size)
        end = _end(pieces, most_entries, most_bytes)
        ends[stream] = extents[stream].next(end) if end is not None else starts[stream]
    return ends


def entries_behind(starts: Positions, extents: Mapping[str, StreamExtent]) -> int:
    """Returns how many entries there are to be read from ``starts`` on."""
    return sum(piece.entries for stream, at in starts.items() for piece in backlog(extents[stream], at))


def backlog(extent: StreamExtent, start: Position) -> list[LedgerBacklog]:
    """Returns what is to be read from ``start``, which is a position of the stream, to the extent's end."""
    pieces = []
    for listed in extent.ledgers[extent.index(start.ledger) : extent.index(extent.end.ledger + 1)]:
        is_last = listed.ledger == extent.end.ledger
        stop = extent.end.entry if is_last else count_of(listed) or 0
        first = start.entry if listed.ledger == start.ledger else 0
        entry_bytes = -(-listed.size // listed.entries) if listed.entries else extent.end_entry_bytes
        if first < stop:
            pieces.append(LedgerBacklog(listed.ledger, first, stop, max(entry_bytes, 1)))
    return pieces


def _end(pieces: Sequence[LedgerBacklog], entries: int | None, size: int | None) -> Position | None:
    """Returns the end of so many entries and bytes, of one entry at least; None if there is none."""
    end = None
    for piece in pieces:
        count = piece.entries if entries is None else min(piece.entries, entries)
        if size is not None:
            count = min(count, size // piece.entry_bytes)
        if count < piece.entries:
            return Position(piece.ledger, piece.first + (max(count, 1) if end is None else count))
        end = Position(piece.ledger, piece.stop)
        entries = None if entries is None else entries - count
        size = None if size is None else size - piece.size
    return end
