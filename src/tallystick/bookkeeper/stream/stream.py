"""The handle of a stream's owner (Q18, Q19): an unbounded log that this client appends to, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.dedup import Deduplication
from tallystick.bookkeeper.stream.due_times import DueTimes
from tallystick.bookkeeper.stream.encoding import Batch, EntryEncoder
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.opening import OpenedStream
from tallystick.bookkeeper.stream.owned_list import terminated
from tallystick.bookkeeper.stream.owner import StreamOwner
from tallystick.bookkeeper.stream.producers import owner_producer
from tallystick.bookkeeper.stream.rollover import Phase
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.state import stream_state
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import Buffer
from tallystick.errors import StreamClosed, StreamTerminated, TallyError, UsageError
from tallystick.runtime.arguments import items
from tallystick.runtime.loops import check_loop

POSITIONS_A_TURN = 4096  # that are returned of one batch


class Stream:
    """Appends to a stream that this client owns. Use it with ``async with``, or ``close`` it; on one event loop."""

    __slots__ = (
        "__weakref__",
        "_closing",
        "_context",
        "_dedup",
        "_encoder",
        "_loop",
        "_owner",
        "_released",
        "name",
        "settings",
    )

    def __init__(
        self,
        context: StreamContext,
        name: str,
        settings: StreamSettings,
        opened: OpenedStream,
        due_times: DueTimes,
        released: Callable[[Stream], None],
    ) -> None:
        """``released`` is called when it is closed."""
        self._context, self.name, self.settings, self._released = context, name, settings, released
        self._loop = context.context.loop
        producer = owner_producer(context.context.random)
        self._encoder = EntryEncoder(settings, producer, context.context.clock, context.encoding_thread)
        self._owner = StreamOwner(context, name, settings, opened, due_times)
        if self._owner.stored_list.info.terminated is not None:
            self._owner.flow.refuse(StreamTerminated(stream=name))
        self._closing: asyncio.Future[None] | None = None
        self._dedup: Deduplication | None = None  # once there was a numbered append, or entries are deleted
        self._owner.keep = self._keep_numbers

    @property
    def last_confirmed(self) -> Position:
        """The position of the newest entry that is stored; ``-1:-1`` when there is none."""
        return self._owner.flow.last_confirmed

    @property
    def terminated(self) -> Position | None:
        """The last position, once the stream takes no more entries."""
        return self._owner.stored_list.info.terminated

    @property
    def owner(self) -> str:
        """Who others are told owns it."""
        return self._context.leases.owner

    async def append(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Position:
        """Append one message and wait until it is safe. Returns its position.

        ``event_time`` is in ms since 1970. Waits first while ``max_pending_bytes`` are not stored yet. Raises
        UsageError: nothing was appended. Raises StreamFenced when another owner took the stream over, StreamTerminated,
        StreamClosed; MetadataUnavailable or NotEnoughBookies when no ledger took or stored it in the time that
        ``max_pending_s`` says: the stream goes on, and ``error.ambiguous`` says whether it may be stored.
        """
        await self._owner.flow.room()
        try:
            future = self.append_nowait(
                data, key=key, event_time=event_time, properties=properties, producer=producer, sequence=sequence
            )
        finally:
            self._owner.flow.wake()
        return await future

    def append_nowait(
        self,
        data: Buffer,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        properties: Mapping[str, str] | None = None,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> asyncio.Future[Position]:
        """Append one message without waiting for anything. Returns a future of its position; raises and fails as
        ``append``, and raises StreamFull beyond ``max_pending_bytes``."""
        check_loop(self._loop)
        encoder = self._encoder
        if encoder.is_raw:
            return self._owner.flow.append(encoder.raw(data, key, event_time, properties, producer, sequence))
        message = encoder.message(data, key, event_time, properties)
        return self._append(Batch([message], is_checked=True), producer, sequence)

    def _append(self, batch: Batch, producer: str | None, sequence: int | None) -> asyncio.Future[Position]:
        """Append the messages as one entry, but for those whose numbers are stored already."""
        encoder = self._encoder
        if producer is None and sequence is None:
            return self._append_entry(encoder.encode_batch(batch, None, None))
        name, first = encoder.numbered(producer, sequence, len(batch.messages))
        return self._numbers().append(
            name,
            first,
            first + len(batch.messages) - 1,
            lambda number: encoder.encode_batch(batch.behind(number - first), name, number),
            batch.data_bytes,
        )

    def _append_entry(self, entry: bytes | LateEntry) -> asyncio.Future[Position]:
        dedup = self._dedup
        if dedup is not None and dedup.holds:
            size = entry.size if isinstance(entry, LateEntry) else len(entry)
            return dedup.hold(lambda: self._owner.flow.append(entry), size)
        return self._owner.flow.append(entry)

    def check_size(self, size: int) -> None:
        """Check the size of an entry, in bytes. Raises UsageError where no ledger takes so many."""
        self._owner.flow.check_size(size)

    async def append_encoded(self, entry: bytes) -> asyncio.Future[Position]:
        """Append an entry whose messages somebody has encoded as the settings say, when there is room for it. Returns a
        future of its position. Raises and fails as ``append``."""
        await self._owner.flow.room()
        try:
            return self._append_entry(entry)
        finally:
            self._owner.flow.wake()

    def _numbers(self) -> Deduplication:
        if self._dedup is None:
            max_bytes = self.settings.max_pending_bytes
            self._dedup = Deduplication(self._context, self.name, self._owner, max_bytes)
        return self._dedup

    async def _keep_numbers(self, up_to: Position) -> None:
        await self._numbers().keep(up_to)

    async def append_batch(
        self,
        messages: Iterable[Buffer | OutMessage],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> list[Position]:
        """Append messages as one entry, and wait until it is safe. Returns their positions, which have a batch index.

        ``sequence`` is that of the first. Raw streams, whose entries have no messages, raise UsageError; else raises as
        ``append``.
        """
        check_loop(self._loop)
        encoder = self._encoder
        if encoder.is_raw:
            raise UsageError("raw entries have no messages: append each of them", stream=self.name)
        batch = encoder.batch(items(messages, "messages"))
        if not batch.messages:
            return []
        await self._owner.flow.room()
        try:
            future = self._append(batch, producer, sequence)
        finally:
            self._owner.flow.wake()
        position, batch_size = await future, len(batch.messages)
        positions = list[Position]()
        for start in range(0, batch_size, POSITIONS_A_TURN):
            if start:
                await asyncio.sleep(0)
            indexes = range(start, min(start + POSITIONS_A_TURN, batch_size))
            if producer is not None and sequence is not None:
                positions += self._numbers().positions_of(producer, sequence + start, len(indexes))
            elif batch_size > 1:
                positions += [Position(position.ledger, position.entry, index) for index in indexes]
            else:
                positions.append(position)
        return positions

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON, with the fields and words of a Pulsar broker (Q18); its cursors are not in it."""
        return stream_state(self._owner.counts())

    async def roll_over(self) -> None:
        """Close the newest ledger and go on in another one; nothing if it is empty. Raises as ``append``."""
        check_loop(self._loop)
        await self._owner.roll_over()

    async def trim(self) -> list[LedgerId]:
        """Let messages expire whose time is over, and delete the ledgers that retention does not keep. Returns those
        that left the list; bookies give their space back later. Raises StreamFenced, StreamClosed, Unavailable,
        MetadataError."""
        check_loop(self._loop)
        self._require_open()
        return await self._owner.alone(self._owner.trim)

    async def terminate(self) -> Position:
        """Take no more appends, for good: what was appended before is stored, and the stream has an end. Returns the
        last position.

        Raises StreamFenced, StreamClosed; MetadataUnavailable when that could not be stored: a later call tries again.
        """
        check_loop(self._loop)
        if (last := self.terminated) is not None:
            return last
        self._require_open()
        owner = self._owner
        owner.flow.refuse(StreamTerminated(stream=self.name))
        await owner.flow.all_encoded()
        return await owner.alone(self._terminate)

    async def _terminate(self) -> Position:
        owner = self._owner
        if (last := self.terminated) is None:
            await owner.end()
            last = owner.flow.ledger_end
            await owner.stored_list.change(terminated(last))
            self._context.context.events.emit("stream terminated", stream=self.name, last=last)
        return last

    async def close(self) -> None:
        """Take no more appends, wait for those under way, close the ledger and give the stream to whoever opens it
        next. Repeated calls are one; after ``abort`` there is nothing to do.

        Raises MetadataError when that could not be stored: the next owner recovers the ledger, once the lease ended.
        """
        check_loop(self._loop)
        if self._closing is None:
            self._owner.flow.refuse(StreamClosed(stream=self.name))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        owner = self._owner
        await owner.flow.all_encoded()
        owner.hurry()
        try:
            if owner.phase is not Phase.FENCED:
                await owner.alone(owner.end_unless_fenced)
                if self._dedup is not None:
                    await self._dedup.close()
        finally:
            self.end_with_client()
            await self._context.leases.give_back(owner.lease)
        self._context.context.events.emit("stream closed", stream=self.name, last=owner.flow.last_confirmed)

    def abort(self) -> None:
        """Stop at once: pending appends fail and may have taken effect, and whoever opens the stream next recovers its
        ledger."""
        check_loop(self._loop)
        self.end_with_client()
        self._context.leases.give_back_soon(self._owner.lease)

    def end_with_client(self) -> None:
        """The same for a client that gives all its leases back."""
        closed = StreamClosed(stream=self.name)
        if self._dedup is not None:
            self._dedup.abort(closed)
        self._owner.release(closed)
        self._released(self)
        if self._closing is None:
            self._closing = self._loop.create_future()
            self._closing.set_result(None)

    def _require_open(self) -> None:
        refusal = self._owner.flow.refusal
        if refusal is not None and not isinstance(refusal, StreamTerminated):
            raise refusal

    def __repr__(self) -> str:
        refusal = self._owner.flow.refusal
        state = self._owner.phase.value if refusal is None else type(refusal).__name__.removeprefix("Stream").lower()
        return f"<Stream {self.name} last={self.last_confirmed} {state}>"

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
