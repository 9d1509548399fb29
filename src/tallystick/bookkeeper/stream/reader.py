"""Read a stream: anybody may, while its owner appends; nothing is fenced, and nothing unconfirmed is delivered.

What a reader gets is what ``entries.py`` reads, decoded by ``messages.py``. Of an open ledger that is idle the last
entries are known when its owner says so: ours do after 100 ms, a Pulsar broker only with its next append, unless its
``bookkeeperExplicitLacIntervalInMills`` is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.entries import BEGINNING, EntryWalk, LedgerGone
from tallystick.bookkeeper.stream.ledger_list import StreamList, StreamLists, count_of
from tallystick.bookkeeper.stream.messages import ENTRY_FORMATS, Decompressor, EntryDecoder, StreamMessage
from tallystick.bookkeeper.stream.names import stream_name
from tallystick.bookkeeper.stream.places import place, time_ms
from tallystick.bookkeeper.stream.reading import Reading, ReadRequest
from tallystick.bookkeeper.stream.search import first_published
from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.stream.turn_work import TurnWork
from tallystick.bookkeeper.wire.pulsar_messages import MOST_BYTES
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import CorruptEntry, EntryLost, NoSuchEntry, StreamClosed, TallyError, UsageError
from tallystick.runtime.arguments import instance
from tallystick.runtime.loops import check_loop
from tallystick.runtime.opening import Opening
from tallystick.runtime.worker import Workers

MAX_MESSAGE_BYTES = MOST_BYTES  # of an entry, or a message that came in chunks, when it is decompressed


class StreamReaders:
    """What all readers of one client share. ``close`` it with the client."""

    def __init__(self, ledgers: LedgerClient, catalog: StreamCatalog, workers: Workers) -> None:
        self.ledgers = ledgers
        self.lists = StreamLists(catalog, ledgers.context.bookies.wakes)
        self.turn = TurnWork()
        self.acks_turn = TurnWork(part_work=1)
        self.decompressor = Decompressor(SideThread(workers, "decompress"))

    def open(self, name: str, *, entry_format: str = "pulsar") -> Opening[StreamReader]:
        """Open a stream to read it: ``async with bk.read_stream(name) as reader``, or ``await`` it.

        ``entry_format`` "raw": a message is an entry, whatever its bytes are. Raises UsageError at once; when opened
        NoSuchStream, MetadataError.
        """
        stream = stream_name(name)
        if entry_format not in ENTRY_FORMATS:
            raise UsageError(f"entry_format is one of {', '.join(ENTRY_FORMATS)}", given=entry_format)

        async def open_() -> StreamReader:
            return StreamReader(self, await self.lists.open(stream), is_raw=entry_format == "raw")

        return Opening(open_, "bk.read_stream(…)")

    async def close(self) -> None:
        self.lists.close()
        await self.decompressor.close()


class StreamReader:
    """A stream to read from, made by ``read_stream``. ``close`` it, or use it with ``async with``."""

    def __init__(self, readers: StreamReaders, stream_list: StreamList, *, is_raw: bool) -> None:
        self.stream = stream_list.stream
        self._readers, self._list, self._is_raw = readers, stream_list, is_raw
        self._context = readers.ledgers.context
        self._walks: dict[EntryWalk, None] = {}
        self._is_closed = False

    async def first(self) -> Position:
        """Returns the position of the first entry that there is, or will be where none is yet.

        A stream without a ledger gives the position before all others. Raises NoSuchStream, MetadataError.
        """
        self._require_open()
        info = await self._list.sync()
        for listed in info.ledgers:
            if count_of(listed) != 0:
                return Position(listed.ledger, 0)
        return EARLIEST

    async def last_confirmed(self) -> Position:
        """Returns the position of the last entry that can be read, as of now; (first ledger):-1 if there is none.

        Raises NoSuchStream, MetadataError; Unavailable where too few bookies know the end of an open ledger.
        """
        self._require_open()
        walk = self._walk(skip=False)
        try:
            end = await walk.end()
            while not end.entry and (before := self._list.before(end.ledger)) is not None:
                with contextlib.suppress(LedgerGone):
                    end = await walk.end_of(before)
            if end.entry or self._list.find(end.ledger) is not None:
                return Position(end.ledger, end.entry - 1)
            return EARLIEST
        finally:
            await self._done(walk)

    async def position_at(self, time: datetime | int) -> Position:
        """Returns the position of the first entry that was published at ``time`` (ms since 1970, or a datetime with a
        time zone) or later; that after the last one if there is none yet. It takes some ten reads, however long the
        stream is. Raises UsageError for a raw stream, NoSuchStream, and as ``read``."""
        self._require_open()
        self._require_times("a time")
        sought = time_ms(time, "time")
        if sought is None:
            raise UsageError("time is a datetime, or a number of ms since 1970", given=None)
        walk = self._walk(skip=False)
        try:
            return await first_published(walk, self._list, sought)
        finally:
            await self._done(walk)

    def read(
        self,
        start: Position | str | None = None,
        *,
        end: Position | str | None = None,
        start_time: datetime | int | None = None,
        end_time: datetime | int | None = None,
        follow: bool = False,
        on_corrupt: str = "raise",
    ) -> AsyncGenerator[StreamMessage, None]:
        """Yields the messages from ``start`` (included) to ``end`` (excluded), in order.

        ``start`` is a Position or written ``ledger:entry``, also one entry behind the last of a ledger; without it
        reading begins at the first message that there is. ``start_time`` instead begins at the first that was published
        then or later, ``end_time`` ends at the first. Times are ms since 1970, or datetimes with a time zone.

        Without ``end`` it is read as far as it is confirmed at the call; or, with ``follow``, on and on, as messages
        come, until the stream is terminated. A follower may start in the open ledger beyond what is known to be
        confirmed.

        ``on_corrupt``: "raise" CorruptEntry for an entry that is no message or damaged on all bookies, NoSuchEntry for
        one that all bookies lost, after all messages before it; or "skip" it, with an event.

        Raises UsageError at once. When iterated: PositionTrimmed for what retention deleted, also while it is being
        read (``error.first`` is where there is more); NoSuchPosition, NoSuchStream, Unavailable and its kinds,
        MetadataError; StreamClosed once this reader is closed.
        """
        self._require_open()
        if (start is not None and start_time is not None) or (end is not None and end_time is not None):
            raise UsageError("give a position or a time, not both")
        if start_time is not None or end_time is not None:
            self._require_times("start_time" if start_time is not None else "end_time")
        if on_corrupt not in ("raise", "skip"):
            raise UsageError('on_corrupt is "raise" or "skip"', given=on_corrupt)
        request = ReadRequest(
            place(start, "start", "a time is given as start_time"),
            time_ms(start_time, "start_time"),
            None if end is None else place(end, "end", "a time is given as end_time") or BEGINNING,
            time_ms(end_time, "end_time"),
            instance(follow, bool, "follow"),
        )
        return self._read(request, skip=on_corrupt == "skip")

    def __aiter__(self) -> AsyncGenerator[StreamMessage, None]:
        """Yields all messages that there are now: ``async for message in reader``. Raises as ``read``."""
        return self.read()

    async def close(self) -> None:
        """End all that is being read with StreamClosed. Repeated calls are one."""
        if not self._is_closed:
            self._is_closed = True
            for walk in tuple(self._walks):
                await walk.close()
            self._list.release()

    def __repr__(self) -> str:
        return f"<StreamReader stream={self.stream} {'closed' if self._is_closed else 'open'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        check_loop(self._context.loop)
        if self._is_closed:
            raise StreamClosed("this reader is closed", stream=self.stream)

    def _require_times(self, what: str) -> None:
        if self._is_raw:
            raise UsageError(f"entries of a raw stream do not say when they were published: {what} finds nothing there")

    def _walk(self, *, skip: bool) -> EntryWalk:
        walk = EntryWalk(self._readers.ledgers, self._list, partial(self._damaged, skip))
        self._walks[walk] = None
        return walk

    async def _done(self, walk: EntryWalk) -> None:
        self._walks.pop(walk, None)
        await walk.close()

    def _damaged(self, skip: bool, position: Position, error: TallyError) -> None:
        if skip:
            reason = error.message
            self._context.events.emit("entry left out", stream=self.stream, position=str(position), reason=reason)
        elif isinstance(error, NoSuchEntry | EntryLost):
            raise error
        else:
            raise CorruptEntry(error.message, stream=self.stream, position=position) from error

    async def _read(self, request: ReadRequest, *, skip: bool) -> AsyncGenerator[StreamMessage, None]:
        self._require_open()
        walk = self._walk(skip=skip)
        decoder = EntryDecoder(
            self.stream,
            self._readers.decompressor,
            partial(self._damaged, skip),
            walk.entry,
            self._context.events,
            is_raw=self._is_raw,
            max_bytes=MAX_MESSAGE_BYTES,
        )
        try:
            async with aclosing(Reading(walk, self._list, decoder, self._readers.turn, request).messages()) as messages:
                async for message in messages:
                    if self._is_closed:  # of an entry that was read before there may be thousands more
                        self._require_open()
                    yield message
                    del message  # it may be long, and the next one is long in coming
        finally:
            await self._done(walk)
