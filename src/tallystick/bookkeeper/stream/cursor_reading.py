"""What a cursor reads: the messages from its read position on that are not acknowledged.

A stream is read by one generator, which follows it; it is asked only for entries that are known to be confirmed, unless
somebody waits. It begins anew behind a long run of acknowledged entries, after an error, and when the position is set.
A message whose chunks were read in part before that is read from its first chunk on; one that will never be complete
holds the cursor no longer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from tallystick.bookkeeper.stream.cursor_core import CursorCore
from tallystick.bookkeeper.stream.cursor_list import CursorList, reader_of
from tallystick.bookkeeper.stream.entries import Damaged
from tallystick.bookkeeper.stream.messages import EntryDecoder, ReadAgain, StreamMessage
from tallystick.bookkeeper.stream.read_turns import ReadTurns
from tallystick.bookkeeper.stream.turn_work import TurnWork, step_work
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    CorruptEntry,
    EntryLost,
    NoSuchEntry,
    PositionTrimmed,
    StreamClosed,
    TallyError,
    UsageError,
)

FAR = 64  # acknowledged entries that are not worth reading


class NewDecoder(Protocol):
    """Makes what decodes the entries of one generator; see ``EntryDecoder``."""

    def __call__(self, damaged: Damaged, read_again: ReadAgain, *, read_before: Position) -> EntryDecoder:
        """Returns it."""
        ...


class _Step(NamedTuple):
    """Some messages of an entry; ``is_end``: there are no more of it."""

    entry: Position
    messages: list[StreamMessage]
    is_end: bool


class CursorReading:
    """The reads of one cursor. ``at`` is the next message or entry to be delivered. ``close`` it."""

    def __init__(
        self,
        core: CursorCore,
        cursor_list: CursorList,
        new_decoder: NewDecoder,
        turn: TurnWork,
    ) -> None:
        self.at = core.after(core.mark)
        self._core, self._list, self._new_decoder, self._turn = core, cursor_list, new_decoder, turn
        self._turns = ReadTurns()
        self._walk = cursor_list.walk(self._damaged)
        self._decoder = new_decoder(self._damaged, self._walk.entry, read_before=self.at)
        self._steps: AsyncGenerator[_Step, None] | None = None
        self._messages: deque[StreamMessage] = deque()  # that were read, and are not delivered yet
        self._next = self.at  # what is read next
        self._is_decoding = False  # an entry: some of it, and not all, is in the decoder
        self._set_count = self._started_count = 0  # how often ``at`` was set, and what the generator knows of
        self._stopping: asyncio.Task[None] | None = None

    async def read(self, count: int, max_bytes: int, *, wait: bool) -> list[StreamMessage]:
        """Returns up to ``count`` messages, of ``max_bytes`` in all unless the first one has more.

        Without ``wait`` the list may be empty; with it only at the end of a terminated stream.
        """
        if not await self._turns.take(wait=wait):
            return []
        try:
            while True:
                self._require_open()
                set_count = self._set_count
                try:
                    return await self._take(count, max_bytes, wait)
                except (StreamClosed, UsageError):  # what was read with is closed
                    self._require_open()
                    if set_count == self._set_count:
                        raise
        finally:
            self._turns.give_back()

    async def set(self, at: Position) -> None:
        """Go on reading here. A read that is under way begins anew."""
        self.at = at
        self._set_count += 1
        walk, self._walk = self._walk, self._list.walk(self._damaged)
        await walk.close()

    async def close(self) -> None:
        """A read that is under way raises StreamClosed."""
        self.stop()
        assert self._stopping is not None
        await asyncio.shield(self._stopping)

    def stop(self) -> None:
        """The same for who cannot wait."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        await self._walk.close()
        await self._turns.take(wait=True)
        await self._end_generator()
        self._turns.give_back()

    # -- messages -----------------------------------------------------------------------------------------------------

    async def _take(self, count: int, max_bytes: int, wait: bool) -> list[StreamMessage]:
        if self._started_count != self._set_count:
            await self._begin_anew()
        taken: list[StreamMessage] = []
        size = 0
        try:
            while len(taken) < count and (self._messages or await self._fill(wait=wait, is_first=not taken)):
                if self._started_count != self._set_count:
                    raise StreamClosed(stream=self._list.stream)
                message = self._messages[0]
                if not self._core.is_acked(message.position) and message.position >= self.at:
                    size += len(message.data)
                    if taken and size > max_bytes:
                        break
                    taken.append(message)
                self._messages.popleft()
        except BaseException as error:
            is_failure = isinstance(error, TallyError) and self._started_count == self._set_count
            if taken and is_failure:
                self.at = _behind(taken[-1])
            await self._begin_anew(() if is_failure else taken)
            if not taken or not is_failure:
                raise
            return taken
        if taken:
            self.at = _behind(taken[-1])
        return taken

    async def _begin_anew(self, undelivered: Sequence[StreamMessage] = ()) -> None:
        """Read from ``at`` on, and before it what messages need that are not complete, or not delivered.

        Whoever waited for an entry, and no longer does, has them all: what was begun may never be complete, and very
        many entries ago. Then only the reading ends.
        """
        await self._end_generator()
        is_same = self._started_count == self._set_count
        if is_same and not (self._is_decoding or self._messages or undelivered):
            return
        firsts: list[Position] = []
        if is_same:
            firsts = [message.chunks[0] for message in (*undelivered, *self._messages) if message.chunks]
            firsts += [] if self._decoder.first_chunk is None else [self._decoder.first_chunk]
            firsts = [each for each in firsts if not self._core.is_acked(each)]
        self._messages.clear()
        self._is_decoding = False
        self._decoder = self._new_decoder(self._damaged, self._walk.entry, read_before=self.at)
        self._next, self._started_count = min([self.at, *firsts]), self._set_count

    # -- entries ------------------------------------------------------------------------------------------------------

    async def _fill(self, *, wait: bool, is_first: bool) -> bool:
        """Read until there are messages. Returns False if there are none now, or ever.

        Only for the first one that is delivered others are waited for, or asked.
        """
        while not self._messages:
            if self._turn.is_over:
                await self._turn.wait()
            try:
                step = await self._step(wait=wait and is_first, look=is_first)
            except PositionTrimmed as error:
                if error.first is None:
                    raise
                await self._end_generator()
                await self._list.look(self._core)
                continue
            if step is None:
                return False
            self._messages.extend(step.messages)
            if step.is_end:
                self._next = self._core.after(step.entry)
            elif step.messages:
                self._next = _behind(step.messages[-1])
            if self._turn.did(1 if step.is_end else step_work(step.messages)):
                await self._turn.wait()
        return True

    async def _step(self, *, wait: bool, look: bool) -> _Step | None:
        """Returns None if there is nothing to be read now, or ever."""
        steps = await self._generator()
        if not wait and not await self._is_confirmed(look=look):
            return None
        if not self._core.exists(self._next):
            self._turns.waits()
        try:
            step = await anext(steps, None)
        finally:
            self._turns.goes_on()
        if step is None:  # the stream is terminated
            await self._end_generator()
        return step

    async def _is_confirmed(self, *, look: bool) -> bool:
        """Returns whether the generator has a next step without waiting for an append, as far as is known without
        asking anybody, or (``look``) as of now."""
        core = self._core
        if not core.exists(self._next) and self._next.ledger in core.counts.open_ledgers:
            reader = await reader_of(
                self._walk, self._next.ledger
            )  # it is open mostly, and has heard how far it can read
            if reader is not None:
                core.learned(reader.id, reader.last_entry + 1)
        if not core.exists(self._next) and look:
            await self._list.look(core)
            self._next = self._existing(self._next)
        return core.exists(self._next)

    async def _generator(self) -> AsyncGenerator[_Step, None]:
        """Returns the generator that reads next: the one there is, unless it would read much that is acknowledged."""
        core = self._core
        self._list.update(core)
        self._next = self._existing(self._next)
        unacked = core.first_unacked(self._next)
        if unacked.ledger > self._next.ledger or unacked.entry > self._next.entry + FAR:
            await self._end_generator()
        if self._steps is None:
            if unacked > self._next.of_entry:
                self._next = unacked
            self._steps = self._read(self._next)
        return self._steps

    def _existing(self, at: Position) -> Position:
        """Returns the position, or where the next ledger begins if this one has ended before."""
        following = self._core.after(Position(at.ledger, at.entry - 1))
        return at if following == at.of_entry else following

    async def _read(self, start: Position) -> AsyncGenerator[_Step, None]:
        core, decoder = self._core, self._decoder
        async with aclosing(self._walk.entries(start, None, is_exact=True, follow=True)) as entries:
            async for entry in entries:
                at = Position(entry.ledger, entry.id)
                core.learned(entry.ledger, entry.id + 1)
                if not core.is_acked(at):
                    first_index = max(start.batch_index, 0) if at == start.of_entry else 0
                    has_messages, self._is_decoding = False, True
                    steps = await decoder.steps(entry, first_index)
                    while True:
                        for messages in steps:
                            has_messages = True
                            yield _Step(at, messages, False)
                        if not decoder.has_more:
                            break
                        steps = await decoder.more()
                    steps, messages = (), []  # not kept while the next entry is waited for
                    if not has_messages and not first_index:
                        core.ack(at)  # a marker of a broker: nobody gets it, so nobody acknowledges it
                    self._is_decoding = False
                del entry
                yield _Step(at, [], True)

    async def _end_generator(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            await steps.aclose()

    def _damaged(self, position: Position, error: TallyError) -> None:
        """An entry cannot be read. It is left out if it is acknowledged, and raises what tells of it else."""
        if self._core.is_acked(position):
            return
        if isinstance(error, NoSuchEntry):
            raise error
        if isinstance(error, EntryLost):  # whoever wants to go on acknowledges it
            raise EntryLost(error.message, **{**error.fields, "position": position}) from error
        raise CorruptEntry(error.message, stream=self._list.stream, position=position) from error

    def _require_open(self) -> None:
        if self._stopping is not None:
            raise StreamClosed("this cursor is closed", stream=self._list.stream)


def _behind(message: StreamMessage) -> Position:
    """Returns where reading goes on behind a message."""
    ledger, entry, index = message.position
    if 0 <= index < message.batch_size - 1:
        return Position(ledger, entry, index + 1)
    return Position(ledger, entry + 1)
