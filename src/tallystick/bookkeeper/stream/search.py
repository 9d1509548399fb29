"""Find a place in a stream by time: O(log n) ledgers by their first entries, then O(log n) entries of one of them.

Producers stamp messages by clocks of their own, so times may run backwards here and there. Then what is found is some
place before which an entry is older, and at which one is not; as everywhere with times.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream.entries import EntryWalk, LedgerGone
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.stream_values import Position, StreamLedger
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.errors import CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry, NoSuchLedger

MOST_DAMAGED = 64  # entries one behind the other that say no time


async def first_published(walk: EntryWalk, stream_list: StreamList, time_ms: int) -> Position:
    """Returns the position of the first entry that was published at this time or later; that after the last one if
    there is none yet. Raises NoSuchStream, CorruptEntry for a stream of other entries, and as reading does."""
    while True:
        with contextlib.suppress(LedgerGone):
            return await _search(walk, stream_list, time_ms)


async def _search(walk: EntryWalk, stream_list: StreamList, time_ms: int) -> Position:
    end = await walk.end()
    ledgers = stream_list.info.ledgers
    low, high = 0, len(ledgers)  # all before ``low`` begin earlier, none from ``high`` on does
    while low < high:
        middle = (low + high) // 2
        async with _opened(walk, ledgers[middle]) as reader:
            begins = await _next_time(reader, 0, reader.last_entry)
        if begins is not None and begins.time_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    if low:
        async with _opened(walk, ledgers[low - 1]) as reader:
            entry = await _search_ledger(reader, time_ms)
        if entry is not None:
            return Position(ledgers[low - 1].ledger, entry)
    return Position(ledgers[low].ledger, 0) if low < len(ledgers) else end


async def _search_ledger(reader: LedgerReader, time_ms: int) -> EntryId | None:
    """Returns the first entry that was published at this time or later, None if there is none."""
    best, low, high = None, 0, reader.last_entry + 1
    while low < high:
        middle = (low + high) // 2
        published = await _next_time(reader, middle, high - 1)
        if published is not None and published.time_ms < time_ms:
            low = published.entry + 1
        else:
            best, high = best if published is None else published.entry, middle
    return best


class _Published(NamedTuple):
    entry: EntryId
    time_ms: int


async def _next_time(reader: LedgerReader, first: EntryId, last: EntryId) -> _Published | None:
    """Returns when the first entry that can be read was published, None if none of these can."""
    for entry in range(first, last + 1):
        position = Position(reader.id, entry)
        try:
            async with aclosing(reader.read(entry, entry)) as entries:
                async for read in entries:
                    return _Published(entry, open_entry(read.data, position=position).publish_time_ms)
        except (CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry) as error:
            if entry - first >= MOST_DAMAGED:
                raise CorruptEntry(
                    f"{MOST_DAMAGED} entries one behind the other do not say when they were published",
                    position=position,
                ) from error
    return None


@asynccontextmanager
async def _opened(walk: EntryWalk, listed: StreamLedger) -> AsyncIterator[LedgerReader]:
    """Raises LedgerGone."""
    reader = await walk.reader(listed.ledger)
    try:
        yield reader
    except NoSuchLedger:
        raise LedgerGone from None
    finally:
        await walk.leave(listed.ledger)
