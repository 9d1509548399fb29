"""How far a streaming query is behind its streams: what is not read, and how old that is.

The entry that is read next says when it was published, and about how many messages an entry has and how large it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple

from tallystick.bookkeeper.ledger.fetch import fetch_runs
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.errors import CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry, Unavailable
from tallystick.pipeline.lag import Lag, age_s, mean, most_behind
from tallystick.pipeline.stream.admit import backlog
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.stream.offsets import Positions
from tallystick.pipeline.stream.spans import stored_ledgers
from tallystick.runtime.tasks import together


class _Next(NamedTuple):
    """An entry that is read next. ``rows`` and ``time_ms`` of a raw one are not known."""

    size: int
    rows: int = 1
    time_ms: int | None = None


async def lag_of(bk: BookKeeper, positions: Positions, extents: Mapping[str, StreamExtent], *, is_raw: bool) -> Lag:
    """Returns what there is from some positions on. Raises MetadataError."""
    behind = {stream: backlog(extents[stream], at) for stream, at in positions.items() if stream in extents}
    counts = {stream: sum(piece.entries for piece in pieces) for stream, pieces in behind.items() if pieces}
    if not counts:
        return Lag()
    places = {stream: Position(behind[stream][0].ledger, behind[stream][0].first) for stream in most_behind(counts)}
    following = await _next_entries(bk, places, is_raw=is_raw)
    usual = _Next(mean(each.size for each in following.values()), mean(each.rows for each in following.values()))
    rows = size = 0
    for stream, count in counts.items():
        one, extent = following.get(stream, usual), extents[stream]
        sized = replace(extent, end_entry_bytes=extent.end_entry_bytes or one.size)
        rows += count * one.rows
        size += sum(piece.size for piece in backlog(sized, positions[stream]))
    times = [each.time_ms for each in following.values() if each.time_ms is not None]
    return Lag(rows, size, age_s(times, bk.context.clock.wall_ms()))


async def _next_entries(bk: BookKeeper, places: Positions, *, is_raw: bool) -> dict[str, _Next]:
    """Returns the entries at some positions, those that can be read."""
    ledgers = await stored_ledgers(bk, sorted({at.ledger for at in places.values()}))
    places = {stream: at for stream, at in places.items() if at.ledger in ledgers}
    entries = await together(_next_entry(bk, ledgers[at.ledger].metadata, at, is_raw=is_raw) for at in places.values())
    return {stream: each for stream, each in zip(places, entries, strict=True) if each is not None}


async def _next_entry(bk: BookKeeper, metadata: LedgerMetadata, at: Position, *, is_raw: bool) -> _Next | None:
    """Returns None if it cannot be read, which whoever reads it will hear of."""
    with contextlib.suppress(CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry, Unavailable):
        async with aclosing(fetch_runs(bk.context.bookies, ranges_of(at.ledger, metadata, at.entry, at.entry))) as runs:
            async for run in runs:
                size = len(run.payloads[0])
                if is_raw:
                    return _Next(size)
                entry = open_entry(run.payloads[0], position=at)
                return _Next(size, max(entry.count, 1), entry.publish_time_ms)
    return None
