"""The handle of a cursor: a place of its own in a stream, that is kept (``ManagedCursor``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import Self

from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.cursor_list import CursorList
from tallystick.bookkeeper.stream.cursor_places import CursorPlaces, others_turn
from tallystick.bookkeeper.stream.cursor_reading import CursorReading
from tallystick.bookkeeper.stream.cursor_saves import CursorSaves
from tallystick.bookkeeper.stream.expired import expired_in
from tallystick.bookkeeper.stream.leases import Lease, Leases
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.turn_work import TurnWork
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import NoSuchPosition, PositionTrimmed, StreamClosed, StreamFenced, TallyError, UsageError
from tallystick.runtime.arguments import instance, items, whole
from tallystick.runtime.loops import check_loop

MAX_READ_BYTES = 16 << 20
MOST_READ = 1_000_000  # messages in one call


class Cursor:
    """Reads a stream, and keeps what is acknowledged. Use it with ``async with``, or ``close`` it; on one event loop.

    What is read is not acknowledged: it is read again by the next who opens the cursor, or after ``rewind``.
    """

    def __init__(
        self,
        core: CursorCore,
        cursor_list: CursorList,
        places: CursorPlaces,
        reading: CursorReading,
        saves: CursorSaves,
        *,
        acks_turn: TurnWork,
        leases: Leases,
        lease: Lease | None,
        released: Callable[[Cursor], None],
    ) -> None:
        """``released`` is called when it is closed. Without a lease it is not durable."""
        self.stream, self.name = cursor_list.stream, cursor_list.cursor
        self._core, self._list, self._places, self._reading, self._saves = core, cursor_list, places, reading, saves
        self._acks_turn, self._leases, self._lease, self._released = acks_turn, leases, lease, released
        self._loop = asyncio.get_running_loop()
        self._refusal: TallyError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None  # at what is stored
        self._passing: asyncio.Task[None] | None = None  # what has expired
        if lease is not None:
            lease.lost, lease.regained = self._fence, self._lease_regained
            cursor_list.listen(self._list_changed)

    @property
    def is_durable(self) -> bool:
        """Whether its place is kept in the metadata; else it is in memory alone."""
        return self._lease is not None

    @property
    def mark(self) -> Position:
        """All up to this position, included, is acknowledged; entry -1 is before the first of a ledger."""
        return self._core.mark

    @property
    def read_position(self) -> Position:
        """What ``read`` delivers next, unless it is acknowledged by then."""
        return max(self._reading.at, self._core.after(self._core.mark))

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged, a batch being one, as far as is known here; ``refresh`` looks.

        Raises NoSuchStream, MetadataError once the list is gone or cannot be read.
        """
        self._list.update(self._core)
        return self._core.backlog

    async def refresh(self) -> int:
        """Look how far the stream is confirmed now. Returns the backlog. Raises NoSuchStream, Unavailable,
        MetadataError, StreamClosed, StreamFenced."""
        self._require_open()
        await self._list.look(self._core)
        return self._core.backlog

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(
        self, count: int = 100, *, wait: bool = True, max_bytes: int = MAX_READ_BYTES
    ) -> list[StreamMessage]:
        """Returns the next messages that are not acknowledged, ``count`` at most, and of ``max_bytes`` at most unless
        the first one has more.

        It waits until there is one, and returns an empty list at the end of a terminated stream. Not ``wait``: what is
        confirmed by now, which may be none. Several reads are served in the order of the calls; one that does not wait
        is not held up by one that does.

        An entry that is no message, or is damaged or lost on all bookies, raises CorruptEntry or NoSuchEntry after all
        messages before it, again and again: acknowledge ``error.position`` to read on behind it. Raises UsageError,
        StreamClosed, StreamFenced, NoSuchStream, MetadataError; Unavailable and NoSuchLedger as reading a ledger does.
        """
        self._require_open()
        count, max_bytes = whole(count, "count", least=1, most=MOST_READ), whole(max_bytes, "max_bytes", least=1)
        instance(wait, bool, "wait")
        try:
            messages = await self._reading.read(count, max_bytes, wait=wait)
        except StreamClosed:
            self._require_open()  # who took it over, if somebody did
            raise
        self._places.delivered(messages)
        return messages

    async def __aiter__(self) -> AsyncGenerator[StreamMessage, None]:
        """Yields all messages that are not acknowledged, as they come, until the stream is terminated. Raises as
        ``read``."""
        while messages := await self.read():
            for message in messages:
                if not self._core.is_acked(message.position):
                    yield message

    async def rewind(self) -> None:
        """Read what is not acknowledged once more, from the first on. Raises StreamClosed, StreamFenced."""
        self._require_open()
        await self._reading.set(self._core.after(self._core.mark))

    async def seek(self, position: Position | str | None = None, *, time: datetime | int | None = None) -> None:
        """Read on at ``position``, or at the first message published at ``time`` (ms since 1970, or a datetime with a
        time zone) or later; all before it is acknowledged, nothing from there on is. Returns when that is stored.

        ``position`` is a Position, written ``ledger:entry``, "beginning" or "end". Raises UsageError; NoSuchPosition,
        PositionTrimmed (``error.first`` is where there is more); and as ``ack``.
        """
        self._require_open()
        if (position is None) == (time is None):
            raise UsageError("give a position or a time")
        place = await (self._places.at_time(time) if position is None else self._places.at(position))
        self._require_open()
        self._core.reset(place.position, place.batch_size)
        await self._reading.set(place.position)
        await self._save()
        if position != "end":
            await self._look_what_is_kept(place.position, is_exact=position not in (None, "beginning"))

    async def _look_what_is_kept(self, position: Position, *, is_exact: bool) -> None:
        """See what was deleted before others saw the cursor there, so that none of it is read: from now on all is kept.

        Raises PositionTrimmed if that is what somebody asked for, and not merely the first that there is.
        """
        await self._list.look(self._core)
        if is_exact and position < self._list.list.trimmed:
            first = self._core.counts.first
            place = None if first is None else Position(first, 0)
            raise PositionTrimmed(stream=self.stream, position=position, first=place)

    # -- acknowledging ------------------------------------------------------------------------------------------------

    async def ack(self, what: Position | str | StreamMessage) -> None:
        """Acknowledge an entry, or a message: what ``read`` delivered, or its position. Returns when that is stored; a
        second time is no error.

        Of a message that came in chunks all are acknowledged. Raises NoSuchPosition; StreamFenced when another owner
        has the cursor; StreamFull when too many batches are acknowledged in part. Any other error may leave it stored
        or not: it is stored with the next one.
        """
        if self._acks_turn.did(1):  # thousands may be acknowledged at once, each by itself
            await self._acks_turn.wait()
        await self.ack_batch([what])

    async def ack_batch(self, what: Iterable[Position | str | StreamMessage]) -> None:
        """Acknowledge several: all, or none if there is no such position. Raises as ``ack``."""
        self._require_open()
        if isinstance(what, Position):  # which is a tuple
            raise UsageError("ack_batch takes several positions: give one to ack", given=str(what))
        try:
            places = await self._places.of(items(what, "what", "a list of messages or positions"))
            self._require_open()
            for number, place in enumerate(places, 1):
                await others_turn(number)
                self._core.require(place.position, place.batch_size)
        except NoSuchPosition as error:
            raise self._named(error) from None
        for number, place in enumerate(places, 1):
            await others_turn(number)
            self._core.ack(place.position, place.batch_size)
        await self._save()

    async def ack_up_to(self, what: Position | str | StreamMessage) -> None:
        """Acknowledge a message or an entry, and all before it; entry -1 is before the first of a ledger. Returns when
        that is stored. Raises as ``ack``."""
        if self._acks_turn.did(1):
            await self._acks_turn.wait()
        self._require_open()
        try:
            *_, last = await self._places.of([what])
            self._require_open()
            self._core.ack_up_to(last.position, last.batch_size)
        except NoSuchPosition as error:
            raise self._named(error) from None
        await self._save()

    def _named(self, error: NoSuchPosition) -> NoSuchPosition:
        """Returns the error of the core, which knows of no names, with those of stream and cursor."""
        return NoSuchPosition(error.message, **{**error.fields, "stream": self.stream, "cursor": self.name})

    def _list_changed(self) -> None:
        """The owner of the stream may have let messages expire."""
        with contextlib.suppress(TallyError):  # whoever reads is told
            expired = expired_in(self._list.list.info)
            if self._refusal is None and self._passing is None and self._core.mark < expired:
                self._passing = self._loop.create_task(self._pass_over(expired))

    async def _pass_over(self, expired: Position) -> None:
        try:
            while (mark := self.mark) < expired:
                await self.ack_up_to(expired)
                self._list.emit("cursor messages expired", mark=str(mark), to=str(expired))
                if (newly_expired := expired_in(self._list.list.info)) == expired:
                    break  # the mark may be before it again, by a seek
                expired = newly_expired
        except TallyError as error:  # the next acknowledgement stores it, or the next change of the list
            if self._refusal is None:
                self._list.emit("cursor not moved", reason=error)
        finally:
            self._passing = None

    async def _save(self) -> None:
        try:
            await self._saves.saved()
        except StreamFenced:
            self._fence()
            raise

    # -- ending -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Store what there is, and let others own the cursor. Repeated calls are one.

        Raises MetadataError, Unavailable when something could not be stored; StreamFenced when another owner has it, if
        nobody was told before.
        """
        check_loop(self._loop)
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        closed = StreamClosed("this cursor is closed", stream=self.stream, cursor=self.name)
        self._refusal = self._refusal or closed
        await self._reading.close()
        try:
            await self._saves.close(closed)
        finally:
            self._list.release()
            self._released(self)
            if self._lease is not None:
                await self._leases.give_back(self._lease)
        self._list.emit("cursor closed", mark=str(self.mark))

    def abort(self) -> None:
        """Stop at once, and let others own the cursor: what waits fails, and may be stored."""
        self.end_with_client()
        if self._lease is not None:
            self._leases.give_back_soon(self._lease)

    def end_with_client(self) -> None:
        """The same for a client that gives all its leases back."""
        self._stop(StreamClosed("this cursor was stopped", stream=self.stream, cursor=self.name))
        if self._closing is None:
            self._closing = self._loop.create_task(self._leave())

    async def _leave(self) -> None:
        await self._reading.close()
        self._list.release()
        self._released(self)

    def _lease_regained(self) -> None:
        """Another owner may have come and gone: then what is stored is another, and this one owns nothing."""
        self._looking = self._loop.create_task(self._look_at_store())

    async def _look_at_store(self) -> None:
        try:
            if not await self._saves.is_unchanged():
                self._fence()
        except TallyError as error:  # the next save finds out
            self._list.emit("cursor ledger failed", reason=error)

    def _fence(self) -> None:
        if self._refusal is None:
            self._list.emit("cursor fenced", mark=str(self.mark))
            self._stop(StreamFenced("another owner has this cursor", stream=self.stream, cursor=self.name))

    def _stop(self, refusal: TallyError) -> None:
        if self._refusal is None:
            self._refusal = refusal
            self._saves.abort(refusal)
            self._reading.stop()

    def _require_open(self) -> None:
        check_loop(self._loop)
        if self._refusal is not None:
            raise copy(self._refusal)

    def __repr__(self) -> str:
        refusal = self._refusal
        state = "open" if refusal is None else type(refusal).__name__.removeprefix("Stream").lower()
        return f"<Cursor {self.name} of {self.stream} mark={self.mark} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:  # which says more than whatever closing might meet
            with contextlib.suppress(TallyError):
                await self.close()
