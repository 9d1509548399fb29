"""The numbers of appends as they are stored: in the cursor ``pulsar.dedup``, and in the entries behind its mark.

A stream on which nobody numbers appends has no such cursor. It holds no entry: before entries leave a stream their
numbers are saved, by its owner or by whoever lets sinks write it, who know no numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.cursor_store import CursorStore
from tallystick.bookkeeper.stream.dedup_core import DedupCore
from tallystick.bookkeeper.stream.entries import EntryWalk
from tallystick.bookkeeper.stream.leases import Lease
from tallystick.bookkeeper.stream.producers import has_numbers
from tallystick.bookkeeper.stream.retention import DEDUPLICATION
from tallystick.bookkeeper.stream.trim import stored_state
from tallystick.bookkeeper.wire.managed_ledgers import encode_cursor_state
from tallystick.bookkeeper.wire.pulsar_messages import open_entry
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, CursorInfo, CursorState, Position
from tallystick.errors import CorruptEntry, NoSuchCursor, NoSuchStream, PositionTrimmed

READ_A_TURN = 256  # entries, before others run


@dataclass(frozen=True)
class NumbersImage:
    """What is saved: a ``CursorImage``."""

    kept: CursorState
    ranges: int = 0
    resets: int = 0

    @classmethod
    def of(cls, core: DedupCore, mark: Position) -> NumbersImage:
        """All entries up to ``mark`` count in the core."""
        return cls(CursorState(mark, properties=core.highest))

    def state(self) -> CursorState:
        return self.kept

    def snapshot(self, most_ranges: int) -> CursorState:
        return self.kept

    def prepare(self) -> Iterator[None]:
        return iter(())

    def encoded(self) -> bytes:
        return encode_cursor_state(self.kept)


async def recover_numbers(context: StreamContext, stream: str, lease: Lease) -> tuple[CursorStore, CursorState]:
    """Returns where the numbers are kept from now on, and what was saved. For who has the ``lease`` of the stream."""
    catalog = context.catalog
    try:
        node = await catalog.read_cursor(stream, DEDUPLICATION)
    except NoSuchCursor:
        await catalog.write_cursor(stream, DEDUPLICATION, CursorInfo(NO_LEDGER, CursorState(EARLIEST)), MISSING)
        node = await catalog.read_cursor(stream, DEDUPLICATION)
        context.context.events.emit("numbers read from entries", stream=stream)
    store = CursorStore(context, stream, DEDUPLICATION, lease, node)
    return store, await store.recover()


async def read_numbers(
    context: StreamContext, stream: str, core: DedupCore, mark: Position, until: Position | None
) -> None:
    """Take up the numbers of the entries behind ``mark`` and before ``until``, which is in the newest ledger, None: of
    all that there are. Raises NoSuchStream, also if neither that ledger nor a newer one is listed any more,
    Unavailable, MetadataError."""
    stream_list = await context.readers.lists.open(stream)
    walk = EntryWalk(context.ledgers, stream_list, lambda position, error: None)
    start = None if mark == EARLIEST else Position(mark.ledger, mark.entry + 1)
    try:
        await stream_list.sync()
        while True:
            try:
                await _read_on(core, walk, start, until)
                break
            except PositionTrimmed as error:  # meanwhile
                start = error.first
        if until is not None and stream_list.at_or_after(until.ledger) is None:  # the newest never leaves
            raise NoSuchStream("its ledgers are being deleted", stream=stream)
    finally:
        await walk.close()
        stream_list.release()


async def save_numbers(context: StreamContext, stream: str, lease: Lease, last: Position) -> None:
    """Save the numbers of all entries up to the ``last`` one, of a stream on which somebody numbered appends. Raises
    StreamFenced, Unavailable, MetadataError."""
    try:
        if (await stored_state(context, stream, DEDUPLICATION)).mark >= last:
            return
    except NoSuchCursor:
        return
    store, state = await recover_numbers(context, stream, lease)
    try:
        core = DedupCore()
        core.restored(state.properties)
        await read_numbers(context, stream, core, state.mark, None)
        await store.close(NumbersImage.of(core, last), is_saved=False)
    finally:
        store.abort()


async def _read_on(core: DedupCore, walk: EntryWalk, start: Position | None, until: Position | None) -> None:
    count = 0
    async with contextlib.aclosing(walk.entries(start, until, is_exact=False, follow=False)) as entries:
        async for entry in entries:
            _take_up(core, entry)
            count += 1
            if count % READ_A_TURN == 0:
                await asyncio.sleep(0)


def _take_up(core: DedupCore, entry: Entry) -> None:
    position = Position(entry.ledger, entry.id)
    try:
        opened = open_entry(entry.data, position=position)
    except CorruptEntry:
        return  # it is no message, and has no number
    if opened.chunk is not None and opened.chunk.index + 1 < opened.chunk.count:
        return  # a message is there with its last chunk, and each has its number
    if has_numbers(opened.producer):
        core.stored(opened.producer, opened.sequence, opened.last_sequence, position)
