"""Streams without ``async``: see ``tallystick.BookKeeper.open_stream``."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from tallystick.bookkeeper.stream import cursor, reader, stream
from tallystick.bookkeeper.stream.cursor import MAX_READ_BYTES
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import Buffer
from tallystick.runtime.arguments import payload_bytes
from tallystick.sync.loop import LoopThread, alone


def _message_weight(message: StreamMessage) -> float:
    return 1 / 512 + len(message.data) / (1024 * 1024)


class Stream:
    """Appends to a stream that this client owns; may be used from several threads. ``close`` it, or use ``with``."""

    def __init__(self, loop: LoopThread, wrapped: stream.Stream) -> None:
        self._loop, self._stream = loop, wrapped

    def __repr__(self) -> str:
        return repr(self._stream)

    @property
    def name(self) -> str:
        """The stream's name, as the metadata has it."""
        return self._stream.name

    @property
    def settings(self) -> StreamSettings:
        """How it is written and kept."""
        return self._stream.settings

    @property
    def last_confirmed(self) -> Position:
        """The position of the newest entry that is stored; ``-1:-1`` when there is none."""
        return self._loop.call(lambda: self._stream.last_confirmed)

    @property
    def terminated(self) -> Position | None:
        """The last position, once the stream takes no more entries."""
        return self._stream.terminated

    @property
    def owner(self) -> str:
        """Who others are told owns it."""
        return self._stream.owner

    def append(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Position:
        """Append one message and return its position when it is safe. Other threads may append meanwhile.

        ``event_time`` is in ms since 1970. Waits first while ``max_pending_bytes`` are not stored yet. Raises
        UsageError: nothing was appended. Raises StreamFenced when another owner took the stream over, StreamTerminated,
        StreamClosed; MetadataUnavailable or NotEnoughBookies when no ledger took or stored it in the time that
        ``max_pending_s`` says: the stream goes on, and ``error.ambiguous`` says whether it may be stored.
        """
        return self._loop.run(
            self._stream.append(
                data, key=key, event_time=event_time, properties=properties, producer=producer, sequence=sequence
            )
        )

    def append_nowait(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> concurrent.futures.Future[Position]:
        """A future of the position; errors of the call itself come through it too, and StreamFull beyond
        ``max_pending_bytes``. Messages keep the order of the calls."""
        payload = payload_bytes(data, "a message")

        async def append() -> Position:
            return await self._stream.append_nowait(
                payload, key=key, event_time=event_time, properties=properties, producer=producer, sequence=sequence
            )

        return self._loop.submit(append())

    def append_batch(
        self, messages: Iterable[Buffer | OutMessage], *, producer: str | None = None, sequence: int | None = None
    ) -> list[Position]:
        """Append messages as one entry and return their positions, which have a batch index, when it is safe.

        ``sequence`` is that of the first. Raises as ``append``, and UsageError for a raw stream.
        """
        return self._loop.run(self._stream.append_batch(messages, producer=producer, sequence=sequence))

    def state(self) -> dict[str, Any]:
        """The state as JSON, with the fields and words of a Pulsar broker (Q18); its cursors are not in it."""
        return self._loop.call(self._stream.state)

    def roll_over(self) -> None:
        """Close the newest ledger and go on in another one; nothing if it is empty. Raises as ``append``."""
        self._loop.run(self._stream.roll_over())

    def trim(self) -> list[LedgerId]:
        """Let messages expire whose time is over, and delete the ledgers that retention does not keep. Returns those
        that left the list; bookies give their space back later. Raises StreamFenced, StreamClosed, Unavailable,
        MetadataError."""
        return self._loop.run(self._stream.trim())

    def terminate(self) -> Position:
        """Take no more appends, for good: what was appended before is stored, and the stream has an end. Returns the
        last position.

        Raises StreamFenced, StreamClosed; MetadataUnavailable when that could not be stored: a later call tries again.
        """
        return self._loop.run(self._stream.terminate())

    def close(self) -> None:
        """Take no more appends, wait for those under way, close the ledger and give the stream to whoever opens it
        next. Repeated calls are one.

        Raises MetadataError when that could not be stored: the next owner recovers the ledger, once the lease ended.
        """
        self._loop.run(self._stream.close())

    def abort(self) -> None:
        """Stop at once, as if the process died: pending appends fail and may have taken effect."""
        self._loop.call(self._stream.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._stream.__aexit__(kind, error, trace))


class StreamReader:
    """A stream to read from, beside its owner. Never fences, never writes. ``close`` it, or use ``with``."""

    def __init__(self, loop: LoopThread, wrapped: reader.StreamReader) -> None:
        self._loop, self._reader = loop, wrapped
        self.stream = wrapped.stream

    def __repr__(self) -> str:
        return repr(self._reader)

    def first(self) -> Position:
        """The position of the first entry that there is, or will be where none is yet.

        A stream without a ledger gives the position before all others. Raises NoSuchStream, MetadataError.
        """
        return self._loop.run(self._reader.first())

    def last_confirmed(self) -> Position:
        """The position of the last entry that can be read, as of now; (first ledger):-1 if there is none.

        Raises NoSuchStream, MetadataError; Unavailable where too few bookies know the end of an open ledger.
        """
        return self._loop.run(self._reader.last_confirmed())

    def position_at(self, time: datetime | int) -> Position:
        """The position of the first entry that was published at ``time`` (ms since 1970, or a datetime with a time
        zone) or later; that after the last one if there is none yet. Raises UsageError for a raw stream, NoSuchStream,
        and as ``read``."""
        return self._loop.run(self._reader.position_at(time))

    def read(
        self,
        start: Position | str | None = None,
        *,
        end: Position | str | None = None,
        start_time: datetime | int | None = None,
        end_time: datetime | int | None = None,
        follow: bool = False,
        on_corrupt: str = "raise",
    ) -> Iterator[StreamMessage]:
        """The messages from ``start`` (included) to ``end`` (excluded), in order; without ``end`` up to what is
        confirmed at the call, or, with ``follow``, as they come until the stream is terminated.

        Positions are a Position or written ``ledger:entry``; times, in their place, ms since 1970 or datetimes with a
        time zone. ``on_corrupt``: "raise" CorruptEntry or NoSuchEntry for an entry that cannot be read, or "skip" it.
        Raises UsageError at once; in the loop PositionTrimmed, NoSuchPosition, NoSuchStream, StreamClosed, Unavailable
        and its kinds, MetadataError.
        """
        return self._loop.iterate(
            lambda: self._reader.read(
                start, end=end, start_time=start_time, end_time=end_time, follow=follow, on_corrupt=on_corrupt
            ),
            alone if follow else _message_weight,
        )

    def __iter__(self) -> Iterator[StreamMessage]:
        """All messages that there are now. Raises as ``read``."""
        return self.read()

    def close(self) -> None:
        """End all that is being read with StreamClosed. Repeated calls are one."""
        self._loop.run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    """A place of its own in a stream, that is kept; may be used from several threads. ``close`` it, or use ``with``."""

    def __init__(self, loop: LoopThread, wrapped: cursor.Cursor) -> None:
        self._loop, self._cursor = loop, wrapped
        self.stream, self.name = wrapped.stream, wrapped.name

    def __repr__(self) -> str:
        return repr(self._cursor)

    @property
    def is_durable(self) -> bool:
        """Whether its place is kept in the metadata; else it is in memory alone."""
        return self._cursor.is_durable

    @property
    def mark(self) -> Position:
        """All up to this position, included, is acknowledged; entry -1 is before the first of a ledger."""
        return self._cursor.mark

    @property
    def read_position(self) -> Position:
        """What ``read`` delivers next, unless it is acknowledged by then."""
        return self._loop.call(lambda: self._cursor.read_position)

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged, a batch being one, as far as is known here; ``refresh`` looks.

        Raises NoSuchStream, MetadataError once the list is gone or cannot be read.
        """
        return self._loop.call(lambda: self._cursor.backlog)

    def refresh(self) -> int:
        """Look how far the stream is confirmed now. Returns the backlog. Raises NoSuchStream, Unavailable,
        MetadataError, StreamClosed, StreamFenced."""
        return self._loop.run(self._cursor.refresh())

    def read(self, count: int = 100, *, wait: bool = True, max_bytes: int = MAX_READ_BYTES) -> list[StreamMessage]:
        """Returns the next messages that are not acknowledged, ``count`` at most, and of ``max_bytes`` at most unless
        the first one has more.

        It waits until there is one, and returns an empty list at the end of a terminated stream. Not ``wait``: what is
        confirmed by now, which may be none. An entry that cannot be read raises CorruptEntry or NoSuchEntry, again and
        again: acknowledge ``error.position`` to read on behind it. Raises UsageError, StreamClosed, StreamFenced,
        NoSuchStream, MetadataError, Unavailable and its kinds.
        """
        return self._loop.run(self._cursor.read(count, wait=wait, max_bytes=max_bytes))

    def __iter__(self) -> Iterator[StreamMessage]:
        """Yields all messages that are not acknowledged, as they come, until the stream is terminated. Raises as
        ``read``."""
        return self._loop.iterate(self._cursor.__aiter__, alone)

    def rewind(self) -> None:
        """Read what is not acknowledged once more, from the first on. Raises StreamClosed, StreamFenced."""
        self._loop.run(self._cursor.rewind())

    def seek(self, position: Position | str | None = None, *, time: datetime | int | None = None) -> None:
        """Read on at ``position``, or at the first message published at ``time`` (ms since 1970, or a datetime with a
        time zone) or later; all before it is acknowledged, nothing from there on is. Returns when that is stored.

        ``position`` is a Position, written ``ledger:entry``, "beginning" or "end". Raises UsageError; NoSuchPosition,
        PositionTrimmed (``error.first`` is where there is more); and as ``ack``.
        """
        self._loop.run(self._cursor.seek(position, time=time))

    def ack(self, what: Position | str | StreamMessage) -> None:
        """Acknowledge an entry, or a message: what ``read`` delivered, or its position. Returns when that is stored; a
        second time is no error.

        Raises NoSuchPosition; StreamFenced when another owner has the cursor; StreamFull when too many batches are
        acknowledged in part. Any other error may leave it stored or not: it is stored with the next one.
        """
        self._loop.run(self._cursor.ack(what))

    def ack_batch(self, what: Iterable[Position | str | StreamMessage]) -> None:
        """Acknowledge several: all, or none if there is no such position. Raises as ``ack``."""
        self._loop.run(self._cursor.ack_batch(what))

    def ack_up_to(self, what: Position | str | StreamMessage) -> None:
        """Acknowledge a message or an entry, and all before it; entry -1 is before the first of a ledger. Returns when
        that is stored. Raises as ``ack``."""
        self._loop.run(self._cursor.ack_up_to(what))

    def close(self) -> None:
        """Store what there is, and let others own the cursor. Repeated calls are one.

        Raises MetadataError, Unavailable when something could not be stored; StreamFenced when another owner has it, if
        nobody was told before.
        """
        self._loop.run(self._cursor.close())

    def abort(self) -> None:
        """Stop at once, and let others own the cursor: what waits fails, and may be stored."""
        self._loop.call(self._cursor.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._cursor.__aexit__(kind, error, trace))
