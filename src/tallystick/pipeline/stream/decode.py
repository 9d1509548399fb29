"""The messages of some entries of a stream, wherever the reading began: a message that came in chunks is in the entry
of its last one, and those before it are looked for behind the beginning.

What is read so is what a reader of the whole stream gets, row by row: what becomes of a last chunk hangs on the chunks
of its message since the newest first one, in whatever entries these are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.stream.chunks import ChunksCore, Joined
from tallystick.bookkeeper.stream.reader import MAX_MESSAGE_BYTES
from tallystick.bookkeeper.wire.pulsar_messages import (
    Buffer,
    Chunk,
    InMessage,
    OpenEntry,
    iter_messages,
    open_entry,
    plain_chunks,
    plain_payload,
)
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.codec.reads import EntryRun
from tallystick.errors import CorruptEntry
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.stream.block import take_block
from tallystick.pipeline.stream.block_arrays import BlockRun
from tallystick.pipeline.stream.earlier_chunks import EarlierChunks
from tallystick.pipeline.stream.plan import StreamRange
from tallystick.pipeline.stream.rows import Row, RowRun, bytes_of, row_of, row_of_raw
from tallystick.pipeline.stream.usual import take_usual

FEWEST_ONE_BY_ONE = 8


class Pace:
    """How many entries are decoded one by one where the next one is not usual: more and more while usual ones are rare,
    since to look for a block of them costs as much as to decode one."""

    def __init__(self) -> None:
        self.one_by_one = FEWEST_ONE_BY_ONE

    def took(self, entry_count: int, value_bytes: int) -> None:
        """A block had so many entries, 0 for none."""
        if entry_count >= self.one_by_one or value_bytes >= BATCH_BYTES // 2:
            self.one_by_one = FEWEST_ONE_BY_ONE
        elif not entry_count:
            self.one_by_one = min(2 * self.one_by_one, BATCH_ROWS)


class RangeDecoder:
    """The rows of one range."""

    def __init__(self, client: BookieClient, range_: StreamRange, *, is_raw: bool) -> None:
        self._client, self._range, self._is_raw = client, range_, is_raw
        self._chunks = ChunksCore(MAX_MESSAGE_BYTES)
        self._earlier = EarlierChunks(client, range_.before, range_.ranges)
        self._pace = Pace()

    async def steps(self, run: EntryRun) -> AsyncGenerator[RowRun | BlockRun, None]:
        """Yields the rows of the next entries, some thousands at a time, or those of a megabyte.

        Raises CorruptEntry for bytes that are no messages, and as ``fetch_runs`` for chunks that are looked for.
        """
        at = 0
        while at < len(run.payloads):
            end = len(run.payloads)
            if not self._is_raw:
                stop, block = take_block(run.payloads, at, run.first)
                self._pace.took(stop - at, 0 if block is None else block.size)
                if block is not None:
                    yield BlockRun(self._range.stream, run.ledger, block)
                    at = stop
                    continue
                end = min(end, at + self._pace.one_by_one)
            async with aclosing(self._row_steps(run, at, end)) as steps:
                async for rows in steps:
                    yield rows
            at = end

    async def _row_steps(self, run: EntryRun, at: int, end: int) -> AsyncGenerator[RowRun, None]:
        """Yields the rows of some entries, one entry after another."""
        take = _take_raw if self._is_raw else take_usual
        payloads, size = run.payloads[:end], 0
        rows: list[Row] = []
        while at < end:
            stop, taken = take(rows, payloads, at, run.first)
            size += taken
            if stop == at:  # it is not usual
                async for step in self._any_entry(Position(run.ledger, run.first + at), payloads[at]):
                    rows += step
                    size += bytes_of(step)
                    if len(rows) >= BATCH_ROWS:
                        yield RowRun(self._range.stream, run.ledger, rows, size)
                        rows, size = [], 0
                stop = at + 1
            at = stop
            if size >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
                yield RowRun(self._range.stream, run.ledger, rows, size)
                rows, size = [], 0
        if rows:
            yield RowRun(self._range.stream, run.ledger, rows, size)

    async def _any_entry(self, position: Position, payload: Buffer) -> AsyncGenerator[list[Row], None]:
        try:
            opened = open_entry(payload, position=position)
            if opened.chunk is not None:
                yield [row_of(message) for message in await self._joined(opened, opened.chunk)]
                return
            for step in iter_messages(opened, plain_payload(opened, max_bytes=MAX_MESSAGE_BYTES)):
                yield [row_of(message) for message in step]
        except CorruptEntry as error:
            raise self._with_remedy(error) from error

    def _with_remedy(self, error: CorruptEntry) -> CorruptEntry:
        return CorruptEntry(
            f"{error.message}; the option entryFormat=raw reads entries as they are stored, startingOffsets and "
            "endingOffsets leave this one out",
            **{"stream": self._range.stream, **error.fields},
        )

    async def _joined(self, opened: OpenEntry, chunk: Chunk) -> list[InMessage]:
        """Returns the message that a chunk ends, if it does and all of it is there."""
        position = opened.position
        if (size := max(chunk.size, chunk.total_bytes)) > MAX_MESSAGE_BYTES:
            reason = f"its chunks have {size} bytes, and {MAX_MESSAGE_BYTES} are the most"
            raise CorruptEntry(reason, position=position)
        [part] = _parts(opened)
        joined = self._chunks.arrived(part, chunk)
        self._chunks.take_dropped()
        self._chunks.take_strays()
        if isinstance(joined, Joined):
            self._earlier.ended(opened, chunk)
        else:
            joined = await self._joined_with_earlier(part, opened, chunk)
        if not isinstance(joined, Joined):
            return []
        data = plain_chunks(joined.parts, chunk, position=position, max_bytes=MAX_MESSAGE_BYTES)
        return [part._replace(data=data)]

    async def _joined_with_earlier(self, last: InMessage, opened: OpenEntry, chunk: Chunk) -> Joined | None:
        """Returns the message whose last chunk this is, if its first one is among the entries before."""
        core = ChunksCore(MAX_MESSAGE_BYTES)
        async with aclosing(self._earlier.since_first(opened, chunk)) as entries:
            async for earlier in entries:
                if earlier.chunk is not None:
                    [part] = _parts(earlier)
                    core.arrived(part, earlier.chunk)
        joined = core.arrived(last, chunk)
        return joined if isinstance(joined, Joined) else None


def _take_raw(rows: list[Row], payloads: Sequence[Buffer], at: int, first: int) -> tuple[int, int]:
    """As ``take_usual``, for entries as they are stored."""
    size = 0
    for place in range(at, len(payloads)):
        if size >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
            return place, size
        rows.append(row_of_raw(first + place, payloads[place]))
        size += len(payloads[place])
    return len(payloads), size


def _parts(opened: OpenEntry) -> list[InMessage]:
    return [part for step in iter_messages(opened, opened.payload) for part in step]
