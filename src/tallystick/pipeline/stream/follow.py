"""The streams of a streaming query, as its planner process follows them for as long as the query runs.

Their lists are read once and watched; of each stream the reader of the open ledger is kept, which asks the bookies anew
how far that is confirmed. So a look at a stream costs one round of requests, however many ledgers it has. ``Rounds``
says at which of many streams a trigger looks: those whose list has changed are among them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.entries import EntryWalk, LedgerGone
from tallystick.bookkeeper.stream.expired import expired_in
from tallystick.bookkeeper.stream.ledger_list import StreamList, count_of
from tallystick.bookkeeper.stream.search import first_published
from tallystick.bookkeeper.wire.ledger_runs import changed
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import (
    DigestMismatch,
    EntryLost,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchStream,
    TallyError,
    Unavailable,
)
from tallystick.pipeline.bookies import connect_here
from tallystick.pipeline.entry_sizes import size_of
from tallystick.pipeline.listing import Listing
from tallystick.pipeline.notes import note
from tallystick.pipeline.rounds import Rounds
from tallystick.pipeline.stream.bounds import StreamExtent
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.progress import QueryCursors
from tallystick.pipeline.stream.schema import FORMAT
from tallystick.pipeline.stream.survey import AT_ONCE, matching_streams

PATIENCE_S = 60.0  # a query goes on so long although too few bookies say how far a stream is confirmed


@dataclass
class _Followed:
    """``ledger`` is the one whose reader is open, ``seen_at`` the last time when the end was known."""

    stream_list: StreamList
    walk: EntryWalk
    seen_at: float
    changed: Callable[[], None]
    ledger: LedgerId | None = None

    async def close(self) -> None:
        self.stream_list.listeners.pop(self.changed, None)
        await self.walk.close()
        self.stream_list.release()


@dataclass(frozen=True)
class FollowedStreams:
    """What a planner process connects to."""

    options: StreamSourceOptions

    async def connect(self) -> StreamFollower:
        return StreamFollower(await connect_here(self.options.uri), self.options)


class StreamFollower:
    """Used on one running loop; ``close`` it."""

    def __init__(self, bk: BookKeeper, options: StreamSourceOptions) -> None:
        self.bk, self.options = bk, options
        self.cursors = None if options.cursor is None else QueryCursors(bk, options.cursor, is_raw=options.is_raw)
        self._followed: dict[str, _Followed] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._rounds: Rounds[str] = Rounds()
        self._seen: Mapping[str, StreamExtent] = {}  # as they were seen last
        self._listing = Listing(lambda: matching_streams(bk, options), bk.context.clock, FORMAT)

    async def streams(self) -> Collection[str]:
        """Returns the streams that the query reads: of a pattern as they were not long ago."""
        return await self._listing.names()

    async def extents(self, positions: Mapping[str, Position], *, is_patient: bool) -> dict[str, StreamExtent]:
        """Returns how far each stream can be read, of those whose next positions are given. Streams that are deleted
        are left out. Raises MetadataError, Unavailable and its kinds; ``is_patient``: the latter only when the end of a
        stream was not known for a while."""
        outcomes = await asyncio.gather(
            *(self._extent(stream, at, is_patient=is_patient) for stream, at in positions.items()),
            return_exceptions=True,
        )
        extents: dict[str, StreamExtent] = {}
        for stream, outcome in zip(positions, outcomes, strict=True):
            if isinstance(outcome, NoSuchStream):
                await self._leave(stream)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                extents[stream] = outcome
        return extents

    async def recent_extents(self, positions: Mapping[str, Position]) -> Mapping[str, StreamExtent]:
        """As ``extents``, patiently. Streams at which no trigger has to look now are as they were seen last; where
        nothing is new the same mapping is returned again."""
        clock, seen = self.bk.context.clock, self._seen
        due = self._rounds.due(clock.now())
        due_positions = {
            stream: at
            for stream, at in positions.items()
            if stream in due or (extent := seen.get(stream)) is None or at > extent.end
        }
        extents = await self.extents(due_positions, is_patient=True)
        news = {stream: extent for stream, extent in extents.items() if extent != seen.get(stream)}
        now = clock.now()
        for stream in extents:
            self._rounds.looked(stream, now, has_news=stream in news and stream in seen)
        if news or len(extents) < len(due_positions) or seen.keys() != positions.keys():
            latest = {**seen, **news}
            gone = due_positions.keys() - extents.keys()
            self._seen = {stream: latest[stream] for stream in positions if stream not in gone}
        return self._seen

    async def extent_to(self, stream: str, end: Position) -> StreamExtent:
        """Returns the ledgers of a stream up to a position that was its end. Raises NoSuchStream, MetadataError."""
        stream_list = (await self._follow(stream)).stream_list
        info = stream_list.info
        if not info.ledgers or info.ledgers[-1].ledger < end.ledger:
            info = await stream_list.sync()
        return StreamExtent(stream, info.ledgers, end, stream_list.deleted)

    def is_read(self, extent: StreamExtent, position: Position) -> bool:
        """Whether all that was deleted at and behind a position of the query was read by it: so its cursor says."""
        followed = self._followed.get(extent.stream)
        return (
            self.cursors is not None
            and followed is not None
            and self.cursors.kept_from(extent.stream) == extent.first.ledger
            and expired_in(followed.stream_list.info) < position
        )

    async def first_published(self, stream: str, time_ms: int) -> Position:
        """Returns the position of the first entry that was published at this time or later. Raises NoSuchStream, and as
        reading does."""
        followed = await self._follow(stream)
        return await first_published(followed.walk, followed.stream_list, time_ms)

    async def close(self) -> None:
        for stream in tuple(self._followed):
            await self._leave(stream)
        await self.bk.close()

    async def _extent(self, stream: str, start: Position, *, is_patient: bool) -> StreamExtent:
        async with self._gate:
            followed = await self._follow(stream)
            while True:
                try:
                    extent = await self._look(followed, start)
                except LedgerGone:
                    continue
                except Unavailable as error:
                    now = self.bk.context.clock.now()
                    if not is_patient or now > followed.seen_at + PATIENCE_S:
                        raise
                    note(FORMAT, f"the end of a stream is not known now: stream={stream} {error}")
                    extent = self._of_list(followed, end=start)
                    return replace(extent, end=max(start, extent.first))
                followed.seen_at = self.bk.context.clock.now()
                return _reaching(extent, start, followed.stream_list.info.ledgers)

    async def _look(self, followed: _Followed, start: Position) -> StreamExtent:
        """Raises LedgerGone: look again."""
        extent = self._of_list(followed, end=EARLIEST)
        first = min(extent.index(start.ledger), len(extent.ledgers) - 1)
        for index in range(max(first, 0), len(extent.ledgers)):
            listed = extent.ledgers[index]
            count = count_of(listed)
            if count is None:
                reader = await self._refreshed(followed, listed.ledger)
                count = reader.last_entry + 1
                if not reader.is_closed:
                    return await self._with_end(extent, start, reader)
                # Its owner has not said so in the list.
                counted = listed._replace(entries=count, size=reader.length, timestamp_ms=1, has_counts=True)
                extent = replace(extent, ledgers=changed(extent.ledgers, {listed.ledger: counted}))
            extent = replace(extent, end=Position(listed.ledger, count))
        return extent

    async def _refreshed(self, followed: _Followed, ledger: LedgerId) -> LedgerReader:
        """Returns the reader of a ledger, which knows how far that is confirmed now. Raises LedgerGone."""
        if followed.ledger not in (None, ledger):
            await followed.walk.leave(followed.ledger)
        followed.ledger = ledger
        reader = await followed.walk.reader(ledger)
        try:
            await reader.refresh()
        except NoSuchLedger:
            await followed.walk.leave(ledger)  # opening it again tells whether the list has it still
            raise LedgerGone from None
        return reader

    async def _with_end(self, extent: StreamExtent, start: Position, reader: LedgerReader) -> StreamExtent:
        """Returns the extent that ends in an open ledger: not before ``start``, since others may have been told more of
        what is confirmed."""
        end = Position(reader.id, reader.last_entry + 1)
        if start.ledger == end.ledger:
            end = max(start, end)
        first, entry_bytes = start.entry if start.ledger == end.ledger else 0, 0
        if self.options.trigger.bytes is not None and first < end.entry:
            with contextlib.suppress(NoSuchEntry, EntryLost, DigestMismatch):  # which whoever reads them will hear of
                size = await size_of(self.bk.context.bookies, reader.id, reader.metadata, first, end.entry - 1)
                entry_bytes = size // (end.entry - first)
        return replace(extent, end=end, end_entry_bytes=entry_bytes)

    def _of_list(self, followed: _Followed, end: Position) -> StreamExtent:
        stream_list = followed.stream_list
        info = stream_list.info
        return StreamExtent(stream_list.stream, info.ledgers, end, stream_list.deleted)

    async def _follow(self, stream: str) -> _Followed:
        followed = self._followed.get(stream)
        if followed is None:
            stream_list = await self.bk.stream_context.readers.lists.open(stream)
            walk, changed = EntryWalk(self.bk, stream_list, _raise), partial(self._rounds.changed, stream)
            stream_list.listeners[changed] = None
            followed = self._followed[stream] = _Followed(stream_list, walk, self.bk.context.clock.now(), changed)
        return followed

    async def _leave(self, stream: str) -> None:
        if (followed := self._followed.pop(stream, None)) is not None:
            await followed.close()
            self._rounds.forget(stream)


def _reaching(extent: StreamExtent, start: Position, listed: Sequence[StreamLedger]) -> StreamExtent:
    """Returns the extent that ends at ``start`` if that is the beginning of a ledger behind all that are listed, and
    these are closed: a hand-over has dropped it, as nothing was stored there, and no owner came since."""
    is_behind = not listed or (listed[-1].ledger < start.ledger and count_of(listed[-1]) is not None)
    return replace(extent, end=max(extent.end, start)) if is_behind and not start.entry else extent


def _raise(position: Position, error: TallyError) -> None:
    raise error
