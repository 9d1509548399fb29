"""The entries of a stream, one ledger after another, as far as they are confirmed: what readers of messages read.

A ledger is opened without recovery and never fenced. An open one is followed to its end by long polls; then the list
says which is next, at once or when its owner has written it. A ledger that is gone was either cut off by a trim,
which the reader is told if it had not read all of it, or nothing was stored there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream.ledger_list import StreamList, count_of
from tallystick.bookkeeper.wire.stream_values import Position, StreamLedger
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import (
    DigestMismatch,
    EntryLost,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchPosition,
    PositionTrimmed,
    StreamClosed,
    TallyError,
    UsageError,
)

# A listed ledger that is deleted leaves the list at once, or its whole stream is being deleted, which takes a while.
MISSING_S = 5.0

BEGINNING = Position(0, 0)

Damaged = Callable[[Position, TallyError], None]  # an entry cannot be read; raises unless it is to be left out


class LedgerGone(Exception):
    """A ledger that was to be read is deleted, and the list lacks it by now: look at the list again."""


class EntryWalk:
    """One reading of a stream. ``close`` it."""

    def __init__(self, ledgers: LedgerClient, stream_list: StreamList, damaged: Damaged) -> None:
        self._ledgers, self._list, self._damaged = ledgers, stream_list, damaged
        self._open_readers: dict[LedgerId, LedgerReader] = {}
        self._is_closed = False

    async def end(self) -> Position:
        """Returns the position after the last one that can be read now. Raises NoSuchStream, MetadataError and as the
        opening of a ledger does."""
        while True:
            info = await self._list.sync()
            if not info.ledgers:
                return BEGINNING
            with contextlib.suppress(LedgerGone):
                return await self.end_of(info.ledgers[-1])

    async def end_of(self, listed: StreamLedger) -> Position:
        """Returns the position after the last one of a ledger. Raises LedgerGone, and as ``end``."""
        count = count_of(listed)
        if count is None:
            count = (await self.reader(listed.ledger)).last_entry + 1  # which is kept: what it knows of the LAC
        return Position(listed.ledger, count)

    async def entries(
        self, start: Position | None, until: Position | None, *, is_exact: bool, follow: bool
    ) -> AsyncGenerator[Entry, None]:
        """Yields the entries from ``start`` (None: the first that there is) and before ``until``, in order.

        Not ``is_exact``: if ``start`` is gone, the first that is left will do. ``follow``: it waits for what comes, and
        ends with ``until`` or a terminated stream. Without it all before ``until`` is confirmed. Raises
        PositionTrimmed, NoSuchPosition, NoSuchStream, StreamClosed, and as a reader of ledgers does.
        """
        at = start or BEGINNING
        while until is None or at < until:
            listed = await self._next(at, is_exact=is_exact, follow=follow)
            if listed is None:
                return
            if listed.ledger > at.ledger:
                at = Position(listed.ledger, 0)
                continue
            try:
                async with aclosing(self._of_listed(listed, at.entry, until)) as entries:
                    async for entry in entries:
                        yield entry
                        at, is_exact = Position(entry.ledger, entry.id + 1), True
            except LedgerGone:
                continue
            at = Position(listed.ledger + 1, 0)

    async def close(self) -> None:
        """What is being read or awaited raises StreamClosed."""
        self._is_closed = True
        for ledger in tuple(self._open_readers):
            await self.leave(ledger)
        self._list.wake()

    def _require_open(self) -> None:
        if self._is_closed:
            raise StreamClosed("this reader is closed", stream=self._list.stream)

    async def _next(self, at: Position, *, is_exact: bool, follow: bool) -> StreamLedger | None:
        """Returns the ledger of this position, or the one after it; None if there is none, and none is waited for.

        Not ``is_exact``: nothing was asked for that could be gone.
        """
        while True:
            self._require_open()
            seen, info = self._list.changes, self._list.info
            is_trimmed = is_exact and at < self._list.trimmed
            if is_trimmed and (info.ledgers or not follow):  # an empty list may be that of a stream that is deleted now
                first = Position(info.ledgers[0].ledger, 0) if info.ledgers else None
                raise PositionTrimmed(stream=self._list.stream, position=at, first=first)
            listed = self._list.at_or_after(at.ledger)
            if listed is not None or not follow or info.terminated is not None:
                return listed
            await self._list.wait(seen)

    async def _of_listed(
        self, listed: StreamLedger, first: EntryId, until: Position | None
    ) -> AsyncGenerator[Entry, None]:
        """Yields what there is of a ledger before ``until``, or will be. Raises LedgerGone."""
        count = count_of(listed)
        if count is not None and first >= count:
            return
        try:
            reader = await self.reader(listed.ledger)
            try:
                async with aclosing(self._of_ledger(reader, first, self._last(listed, until))) as entries:
                    async for entry in entries:
                        yield entry
            finally:
                await self.leave(listed.ledger)
        except NoSuchLedger as error:
            raise await self._gone(listed.ledger, error) from error
        except UsageError:
            self._require_open()  # it was closed: that is the reason
            raise

    def _last(self, listed: StreamLedger, until: Position | None) -> EntryId | None:
        """Returns the last entry to be read of a ledger, None if it is the last that there will be."""
        ends = [] if until is None or until.ledger != listed.ledger else [until.entry - (until.batch_index <= 0)]
        terminated = self._list.info.terminated
        if terminated is not None and terminated.ledger == listed.ledger:
            ends.append(terminated.entry)
        return min(ends, default=None)

    async def _of_ledger(
        self, reader: LedgerReader, first: EntryId, last: EntryId | None
    ) -> AsyncGenerator[Entry, None]:
        """Yields the entries of a ledger to ``last``, included, or to its end; for damaged ones see ``Damaged``."""
        broken: tuple[EntryId, TallyError] | None = None  # to be told when those before it are delivered
        while True:
            stop = last if broken is None else broken[0] - 1
            if stop is not None and first > stop:
                if broken is None:
                    return
                self._damaged(Position(reader.id, broken[0]), broken[1])
                first, broken = broken[0] + 1, None
                continue
            is_there = stop is not None and stop <= reader.last_entry
            source = reader.read(first, stop) if stop is not None and is_there else reader.follow(first)
            try:
                async with aclosing(source) as entries:
                    async for entry in entries:
                        yield entry
                        first = entry.id + 1
                        if entry.id == stop:
                            break
                    else:
                        if first > reader.last_entry + 1:  # it is closed, and ends before what was asked for
                            raise self.beyond(Position(reader.id, first), Position(reader.id, reader.last_entry))
                        return
            except (NoSuchEntry, EntryLost, DigestMismatch) as error:
                if error.entry is None or error.entry < first:
                    raise
                broken = error.entry, error

    async def entry(self, position: Position) -> Entry:
        """Returns an entry that was read before. Raises LedgerGone, NoSuchEntry, and as reading does."""
        is_read_now = position.ledger in self._open_readers
        reader = await self.reader(position.ledger)
        try:
            async with aclosing(reader.read(position.entry, position.entry)) as entries:
                return await anext(entries)
        except NoSuchLedger as error:
            raise await self._gone(position.ledger, error) from error
        finally:
            if not is_read_now:
                await self.leave(position.ledger)

    def beyond(self, position: Position, last: Position) -> NoSuchPosition:
        """Returns the error for a position that is beyond the last one."""
        return NoSuchPosition(
            "this position is beyond the last one that is known to be confirmed",
            stream=self._list.stream,
            position=position,
            last=last,
        )

    # Ledgers

    async def reader(self, ledger: LedgerId) -> LedgerReader:
        """Returns the open reader of a ledger; ``leave`` it. Raises LedgerGone, and as an opening."""
        self._require_open()
        if ledger not in self._open_readers:
            try:
                reader = await self._ledgers.open_ledger(ledger)
            except NoSuchLedger as error:
                raise await self._gone(ledger, error) from error
            if self._is_closed:
                await reader.close()
            self._require_open()
            self._open_readers[ledger] = reader
        return self._open_readers[ledger]

    async def leave(self, ledger: LedgerId) -> None:
        """A ledger is read no more."""
        if (reader := self._open_readers.pop(ledger, None)) is not None:
            await reader.close()

    async def _gone(self, ledger: LedgerId, error: NoSuchLedger) -> LedgerGone | NoSuchLedger:
        """Returns what to raise of a ledger that is deleted, when the list lacks it, or after a while. Raises
        NoSuchStream."""
        await self._list.sync()
        try:
            async with asyncio.timeout(MISSING_S):
                while (listed := self._list.find(ledger)) is not None and not listed.is_offloaded:
                    self._require_open()
                    await self._list.wait(self._list.changes)
        except TimeoutError:
            return NoSuchLedger("the stream lists a ledger that is deleted", stream=self._list.stream, ledger=ledger)
        if listed is None:
            return LedgerGone()
        reason = "this ledger was moved to other storage (offloaded), which only its Pulsar broker reads"
        return NoSuchLedger(reason, stream=self._list.stream, ledger=ledger)
