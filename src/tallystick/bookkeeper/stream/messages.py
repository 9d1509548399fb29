"""What users read of a stream, and how it is made of entries: lazily, in steps, beside the loop where it is much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream.chunks import ChunksCore, KeptChunks, Scattered
from tallystick.bookkeeper.stream.entries import Damaged, LedgerGone
from tallystick.bookkeeper.stream.plain_payloads import PlainPayload, PlainPayloads
from tallystick.bookkeeper.stream.side_thread import SideThread, decompress_us, join_us
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import (
    STEP_BYTES,
    BatchPlace,
    Buffer,
    Chunk,
    InMessage,
    OpenEntry,
    batch_step,
    iter_messages,
    open_entry,
    plain_chunks,
    plain_payload,
)
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_PROPERTIES, Position
from tallystick.errors import CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry, NoSuchPosition, UsageError
from tallystick.runtime.events import Events

T = TypeVar("T")
ReadAgain = Callable[[Position], Awaitable[Entry]]  # raises LedgerGone, and as reading does

ENTRY_FORMATS = ("pulsar", "raw")
TURN_GIVEN_UP = 512  # chunks: a cursor acknowledges each


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message of a stream; of one whose format is "raw" only ``position`` and ``data``, which are the entry's.

    ``position`` has a batch index where the message is one of a batch, of ``batch_size`` messages. Of a message that
    came in chunks it is that of the last one, and ``chunks`` are those of the others: all are to be acknowledged. Times
    are in ms since 1970, the producer's. ``is_null``: it has no value, and says that what was under its key is gone.
    """

    position: Position
    data: bytes
    key: str | bytes | None = None
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    publish_time: int | None = None
    event_time: int | None = None
    producer: str | None = None
    sequence: int | None = None
    batch_size: int = 0
    is_null: bool = False
    ordering_key: bytes = b""
    schema_version: bytes = b""
    chunks: tuple[Position, ...] = ()


class Decompressor:
    """Decompresses what takes long beside the loop; shared by all readers of a client. ``close`` it."""

    def __init__(self, thread: SideThread) -> None:
        self._thread = thread
        self._is_closed = False
        self.payloads = PlainPayloads()
        self.chunks_kept = KeptChunks()

    async def payload(self, entry: OpenEntry, *, max_bytes: int) -> Buffer:
        """Returns ``plain_payload``. Raises as that does."""
        is_plain = entry.compression is Compression.NONE or entry.chunk is not None
        if is_plain or not self._thread.takes(decompress_us(entry.size, entry.compression)):
            return plain_payload(entry, max_bytes=max_bytes)
        return await self._beside(partial(plain_payload, entry, max_bytes=max_bytes))

    async def chunks(self, parts: Sequence[bytes], chunk: Chunk, position: Position, *, max_bytes: int) -> bytes:
        """Returns ``plain_chunks``. Raises as that does."""
        plain = partial(plain_chunks, parts, chunk, position=position, max_bytes=max_bytes)
        if not self._thread.takes(join_us(chunk.total_bytes) + decompress_us(chunk.size, chunk.compression)):
            return plain()
        return await self._beside(plain)

    async def close(self) -> None:
        self._is_closed = True
        await self._thread.close()

    async def _beside(self, call: Callable[[], T]) -> T:
        """Call it on the thread, if somebody still waits for it when its turn comes: 128 MiB take some 100 ms."""
        waiting = [call]

        def run() -> T:
            calls = () if self._is_closed else tuple(waiting)
            if not calls:
                raise UsageError("this client is closed")  # or nobody hears this
            return calls[0]()

        try:
            return await self._thread.worker().run(run)
        finally:
            waiting.clear()


class _Rest:
    """An entry that is being decoded, from ``place`` on."""

    __slots__ = ("first_index", "opened", "place", "plain")

    def __init__(self, opened: OpenEntry, first_index: int) -> None:
        self.opened, self.first_index, self.place, self.plain = opened, first_index, BatchPlace(), PlainPayload()


class EntryDecoder:
    """Makes the messages of one reading of a stream out of its entries."""

    def __init__(
        self,
        stream: str,
        decompressor: Decompressor,
        damaged: Damaged,
        read_again: ReadAgain,
        events: Events,
        *,
        is_raw: bool,
        max_bytes: int,
        given_up: Callable[[Position], None] | None = None,
        read_before: Position = EARLIEST,
    ) -> None:
        """``max_bytes``: the most that an entry, or a message that came in chunks, may have when it is decompressed.

        ``given_up`` hears of chunks of which no message will come. What is before ``read_before`` is read once more:
        a chunk there whose first one is not is of a message that was delivered, or was told of.
        """
        self._stream, self._decompressor, self._damaged, self._events = stream, decompressor, damaged, events
        self._read_again, self._is_raw, self._max_bytes = read_again, is_raw, max_bytes
        self._chunks = ChunksCore(max_bytes, decompressor.chunks_kept)
        self._rest: _Rest | None = None
        self._given_up, self._read_before = given_up or _needs_none, read_before
        self._joining: Position | None = None  # the first chunk of a message that is whole, and not yet returned

    @property
    def first_chunk(self) -> Position | None:
        """Returns the first chunk of all messages that are not complete, or are being joined, None if there is none."""
        firsts = [each for each in (self._joining, self._chunks.first) if each is not None]
        return min(firsts, default=None)

    async def steps(self, entry: Entry, first_index: int = 0) -> Iterable[list[StreamMessage]]:
        """Returns the messages of an entry from ``first_index`` on, which are decoded some thousands at a time. Next:
        ``more``, while it ``has_more``.

        Raises NoSuchPosition if it has not so many; for bytes that are no messages see ``Damaged``.
        """
        position, self._rest = Position(entry.ledger, entry.id), None
        if self._is_raw:
            self._require(position, first_index, 1)
            return ([StreamMessage(position, entry.data)],)
        self._chunks.passed()
        await self._tell_given_up(position)
        try:
            opened = open_entry(entry.data, position=position)
            self._require(position, first_index, max(opened.count, 1))
            payload = await self._decompressor.payload(opened, max_bytes=self._max_bytes)
            if opened.is_batch and opened.compression is not Compression.NONE and len(payload) > STEP_BYTES:
                self._rest = _Rest(opened, first_index)
                return (self._next_step(self._rest, payload),)
            if opened.chunk is None:
                return self._decoded(opened, payload, first_index)
            parts = [part for step in iter_messages(opened, payload) for part in step]
            return [await self._joined(part, opened.chunk) for part in parts]
        except CorruptEntry as error:
            self._rest = None
            self._damaged(position, error)
            return ()

    def _decoded(self, opened: OpenEntry, payload: Buffer, first_index: int) -> Iterator[list[StreamMessage]]:
        try:
            for step in iter_messages(opened, payload):
                yield [_message(each) for each in step if each.position.batch_index >= first_index or not first_index]
        except CorruptEntry as error:
            self._damaged(opened.position, error)

    @property
    def has_more(self) -> bool:
        """Whether the entry has more messages than those that were returned: its payload may be let go meanwhile."""
        return self._rest is not None

    async def more(self) -> Iterable[list[StreamMessage]]:
        """Returns the next messages of the entry. Raises as ``steps``."""
        rest = self._rest
        assert rest is not None, "it has more"
        try:
            payload = rest.plain.payload
            if payload is None:
                payload = await self._decompressor.payload(rest.opened, max_bytes=self._max_bytes)
            return (self._next_step(rest, payload),)
        except CorruptEntry as error:
            self._rest = None
            self._damaged(rest.opened.position, error)
            return ()

    def _next_step(self, rest: _Rest, payload: Buffer) -> list[StreamMessage]:
        step, place = batch_step(rest.opened, payload, rest.place)
        if place is None:
            self._rest = None
            self._decompressor.payloads.drop(rest.plain)
        else:
            rest.place = place
            self._decompressor.payloads.keep(rest.plain, payload)
        first_index = rest.first_index
        return [_message(each) for each in step if each.position.batch_index >= first_index or not first_index]

    def _require(self, position: Position, index: int, count: int) -> None:
        if index >= count:
            raise NoSuchPosition(
                "this entry has not so many messages",
                stream=self._stream,
                position=position._replace(batch_index=index),
                messages=count,
            )

    async def _joined(self, part: InMessage, chunk: Chunk) -> list[StreamMessage]:
        """Returns the message that a chunk ends, if it does."""
        if max(chunk.size, chunk.total_bytes) > self._max_bytes:
            reason = f"its chunks have {max(chunk.size, chunk.total_bytes)} bytes, and {self._max_bytes} are the most"
            raise CorruptEntry(reason, position=part.position)
        joined = self._chunks.arrived(part, chunk)
        await self._tell_given_up(part.position)
        if joined is None:
            return []
        self._joining = joined.positions[0]  # stays so when this ends by what may be over the next time
        try:
            parts = await self._scattered(joined, part.position) if isinstance(joined, Scattered) else joined.parts
            data = await self._decompressor.chunks(parts, chunk, part.position, max_bytes=self._max_bytes)
        except LedgerGone:
            self._events.emit(
                "chunks left out", stream=self._stream, first=str(joined.positions[0]), now=str(part.position)
            )
            await self._give_up([*joined.positions, part.position])
            self._joining = None
            return []
        except CorruptEntry:  # which is told of the last one
            await self._give_up(joined.positions)
            self._joining = None
            raise
        self._joining = None
        return [_message(part._replace(data=data), joined.positions)]

    async def _scattered(self, message: Scattered, last: Position) -> list[bytes]:
        """Returns the chunks of a message of which too many others were begun to keep them. Raises LedgerGone."""
        parts = []
        for place in message.parts:
            try:
                opened = open_entry((await self._read_again(place)).data, position=place)
                payload = plain_payload(opened, max_bytes=self._max_bytes)
                parts += [part.data for step in iter_messages(opened, payload) for part in step]
            except (CorruptEntry, DigestMismatch, EntryLost, NoSuchEntry) as error:
                raise CorruptEntry(f"its chunk at {place} cannot be read: {error.message}", position=last) from error
        return parts

    async def _tell_given_up(self, now: Position) -> None:
        dropped = self._chunks.take_dropped()
        strays = [each for each in self._chunks.take_strays() if each >= self._read_before]
        for positions in dropped:
            self._events.emit("chunks left out", stream=self._stream, first=str(positions[0]), now=str(now))
        if dropped or strays:
            await self._give_up([*chain.from_iterable(dropped), *strays])

    async def _give_up(self, positions: Sequence[Position]) -> None:
        """Tell of all, however many chunks a message has: also where nobody waits for this any more."""
        told_count = 0
        try:
            for position in positions:
                self._given_up(position)
                told_count += 1
                if told_count % TURN_GIVEN_UP == 0:
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            for position in positions[told_count:]:
                self._given_up(position)
            raise


def _needs_none(position: Position) -> None:
    """For who acknowledges nothing."""


def _message(read: InMessage, chunks: tuple[Position, ...] = ()) -> StreamMessage:
    return StreamMessage(
        read.position,
        read.data,
        read.key,
        read.properties,
        read.publish_time_ms,
        read.event_time_ms,
        read.producer,
        read.sequence,
        read.batch_size,
        read.is_null,
        read.ordering_key,
        read.schema_version,
        chunks,
    )
