"""Places in a stream as a caller of a cursor gives them, looked up: is there such a position, and what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.cursor_list import CursorList, no_damage
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.places import place, position_of, time_ms
from tallystick.bookkeeper.stream.search import first_published
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import NoSuchPosition, PositionTrimmed, UsageError
from tallystick.runtime.arguments import MAX_INT32, whole

TURN_PLACES = 512  # that are looked up, or acknowledged, before others have a turn: some ms
MOST_KEPT = 10_000  # entries of which it is known how many messages they have
MOST_CHUNKS = 65_536  # that are known, of all messages that came in chunks: one may have as many

Given = Position | str | StreamMessage


class Place(NamedTuple):
    """``batch_size``: how many messages the entry has, if the position is that of one of them."""

    position: Position
    batch_size: int = 0


class CursorPlaces:
    """Looks up places for one cursor; what was delivered last is known without reading."""

    def __init__(self, core: CursorCore, cursor_list: CursorList, *, is_raw: bool) -> None:
        self._core, self._list, self._is_raw = core, cursor_list, is_raw
        self._sizes: dict[Position, int] = {}
        self._chunks: dict[Position, tuple[Position, ...]] = {}  # of a message, by its last one: the others
        self._chunk_count = 0

    def delivered(self, messages: Sequence[StreamMessage]) -> None:
        """These are acknowledged soon, probably."""
        for message in messages[-MOST_KEPT:]:  # earlier ones would be forgotten again, mostly
            if message.batch_size:
                _keep(self._sizes, message.position.of_entry, message.batch_size)
            if message.chunks:
                self._keep_chunks(message.position, message.chunks)

    def _keep_chunks(self, last: Position, chunks: tuple[Position, ...]) -> None:
        self._chunk_count += len(chunks) - len(self._chunks.get(last, ()))
        self._chunks[last] = chunks
        while self._chunk_count > MOST_CHUNKS and len(self._chunks) > 1:
            self._chunk_count -= len(self._chunks.pop(next(iter(self._chunks))))

    async def of(self, what: Sequence[Given]) -> list[Place]:
        """Returns what is to be acknowledged; chunks before the last one of their message.

        Raises UsageError, NoSuchPosition, and as reading does.
        """
        places: list[Place] = []
        for number, each in enumerate(what, 1):
            await others_turn(number)
            if isinstance(each, StreamMessage):
                places += [*map(Place, each.chunks), Place(each.position, each.batch_size)]
            else:
                position = _position(each)
                places += [*map(Place, self._chunks.get(position, ())), Place(position)]
        core = self._core
        self._list.update(core)
        for number, (position, _) in enumerate(places, 1):
            await others_turn(number)
            if not core.exists(position) and position.of_entry > core.mark:
                await self._list.look(core)
                break
        for number, (position, size) in enumerate(places, 1):
            await others_turn(number)
            if not size:
                places[number - 1] = Place(position, await self._size(position))
        return places

    async def at(self, where: Position | str, what: str = "position") -> Place:
        """Returns where to read, which may be behind the last entry of a ledger. Raises UsageError, PositionTrimmed,
        NoSuchPosition, and as reading does."""
        if where == "end":
            return Place(await self._end())
        await self._list.look(self._core)
        counts = self._core.counts
        first = Position(counts.first, 0) if counts.first is not None else EARLIEST._replace(entry=0)
        position = (
            None if where == "beginning" else place(where, what, 'or "beginning", "end"; seek takes a time as time')
        )
        if position is None:
            return Place(first)
        if position.ledger not in counts:
            if position < first and self._list.list.leads_to_first(position):
                return Place(first)
            if position < first:
                raise PositionTrimmed(stream=self._list.stream, position=position, first=first)
            following = counts.ledger_after(position.ledger)
            if following is None or position.entry or position.batch_index > 0:
                raise NoSuchPosition(stream=self._list.stream, position=position)
            return Place(Position(following, 0))  # of a ledger in which nothing was stored
        if position.batch_index <= 0:
            position = position.of_entry
            if position.entry and not self._core.exists(position._replace(entry=position.entry - 1)):
                raise NoSuchPosition(stream=self._list.stream, position=position)
            return Place(position)
        if not self._core.exists(position):
            raise NoSuchPosition(stream=self._list.stream, position=position)
        size = await self._read_size(position)
        if position.batch_index >= size:
            raise NoSuchPosition(
                "this entry has not so many messages",
                stream=self._list.stream,
                position=position,
                messages=max(size, 1),
            )
        return Place(position, size)

    async def at_time(self, time: datetime | int | None) -> Place:
        """Returns the first entry that was published at this time or later. Raises UsageError, and as reading does."""
        sought = time_ms(time, "time")
        assert sought is not None, "one of both was given"
        if self._is_raw:
            raise UsageError("entries of a raw stream do not say when they were published")
        walk = self._list.walk(no_damage)
        try:
            position = await first_published(walk, self._list.list, sought)
        finally:
            await walk.close()
        await self._list.look(self._core)
        return Place(position if self._list.counts.first is not None else EARLIEST._replace(entry=0))

    async def _end(self) -> Position:
        walk = self._list.walk(no_damage)
        try:
            end = await walk.end()
        finally:
            await walk.close()
        await self._list.look(self._core)
        return end if self._list.counts.first is not None else EARLIEST._replace(entry=0)

    async def _size(self, position: Position) -> int:
        if position.batch_index < 0 or self._core.is_acked(position.of_entry):
            return 0
        return await self._read_size(position)

    async def _read_size(self, position: Position) -> int:
        entry = position.of_entry
        self._core.require(entry)
        if entry not in self._sizes and not self._is_raw:
            _keep(self._sizes, entry, await self._list.batch_size(entry))
        return self._sizes.get(entry, 0)


async def others_turn(number: int) -> None:
    """Let others run after so many of what is done one by one."""
    if number % TURN_PLACES == 0:
        await asyncio.sleep(0)


def _position(given: Position | str) -> Position:
    ledger, entry, index = position_of(given, 'give a message, a Position, or a text "ledger:entry"')
    return Position(
        whole(ledger, "the ledger of a position", least=-1, most=MAX_ID),
        whole(entry, "the entry of a position", least=-1, most=MAX_ID),
        whole(index, "the batch index of a position", least=-1, most=MAX_INT32),
    )


def _keep(known: dict[Position, int], position: Position, value: int) -> None:
    """Remember it, and forget what was remembered longest."""
    if position not in known and len(known) >= MOST_KEPT:
        del known[next(iter(known))]
    known[position] = value
