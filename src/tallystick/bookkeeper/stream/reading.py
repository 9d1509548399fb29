"""One reading of a stream: from where to where, and its messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream.entries import EntryWalk
from tallystick.bookkeeper.stream.ledger_list import StreamList, count_of
from tallystick.bookkeeper.stream.messages import EntryDecoder, StreamMessage
from tallystick.bookkeeper.stream.search import first_published
from tallystick.bookkeeper.stream.turn_work import MOST_WORK, PART_WORK, PIECE_BITS, TurnWork, message_work
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import NoSuchPosition, PositionTrimmed

NO_INDEX = -1


@dataclass(frozen=True)
class ReadRequest:
    """What a caller of ``read`` wants. None: from the beginning, and as far as the stream is confirmed now."""

    start: Position | None
    start_ms: int | None
    end: Position | None  # excluded
    end_ms: int | None  # excluded
    follow: bool


class Reading:
    """Yields the messages that were asked for: ``messages``, once."""

    def __init__(
        self, walk: EntryWalk, stream_list: StreamList, decoder: EntryDecoder, turn: TurnWork, request: ReadRequest
    ) -> None:
        self._walk, self._list, self._decoder, self._turn, self._request = walk, stream_list, decoder, turn, request

    async def messages(self) -> AsyncGenerator[StreamMessage, None]:
        """See ``StreamReader.read``."""
        request = self._request
        start = request.start
        if request.start_ms is not None:
            start = await first_published(self._walk, self._list, request.start_ms)
        end = request.end
        if not request.follow:
            confirmed = await self._walk.end()
            end = confirmed if end is None else min(end, confirmed)
            if start is not None and start.ledger == confirmed.ledger and start.entry > confirmed.entry:
                raise self._walk.beyond(start, confirmed._replace(entry=confirmed.entry - 1))
        if request.start is not None:
            start = await self._existing(request.start)
        walked = self._walk.entries(start, end, is_exact=request.start is not None, follow=request.follow)
        async with aclosing(walked) as entries, aclosing(self._between(entries, start, end)) as messages:
            async for message in messages:
                yield message
                del message

    async def _existing(self, start: Position) -> Position:
        """Returns where to begin. Raises PositionTrimmed, NoSuchPosition."""
        if self._list.find(start.ledger) is None:
            await self._list.sync()
        listed, ledgers = self._list.at_or_after(start.ledger), self._list.info.ledgers
        if ledgers and start.ledger < ledgers[0].ledger:
            first = Position(ledgers[0].ledger, 0)
            if self._list.leads_to_first(start):
                return first
            raise PositionTrimmed(stream=self._list.stream, position=start, first=first)
        if listed is not None and listed.ledger == start.ledger:
            count = count_of(listed)
            if count is not None and start.entry > count:
                raise self._walk.beyond(start, Position(listed.ledger, count - 1))
            return start
        if listed is None or start.entry or start.batch_index > 0:
            raise NoSuchPosition(stream=self._list.stream, position=start)
        return Position(listed.ledger, 0)  # a ledger that left the list as nothing was stored there

    async def _between(
        self, entries: AsyncGenerator[Entry, None], start: Position | None, end: Position | None
    ) -> AsyncGenerator[StreamMessage, None]:
        """Yields the messages of entries, without those that are not wanted of the first and the last."""
        request, is_late, work = self._request, self._request.start_ms is None, 0
        first_index, end_index, first, last = 0, NO_INDEX, None, None
        if start is not None:
            first, first_index = start[:2], max(start.batch_index, 0)
        if end is not None:
            last, end_index = end[:2], end.batch_index
        async for entry in entries:
            at, data_bytes = (entry.ledger, entry.id), len(entry.data)
            most = end_index if at == last else NO_INDEX
            if self._turn.is_over:
                await self._turn.wait()
            steps = await self._decoder.steps(entry, first_index if at == first else 0)
            del entry  # what was read is not kept while the next is waited for, which may be long
            while True:
                for step in steps:
                    if not step:  # thousands were decoded, and none of them is wanted
                        await self._did(MOST_WORK)
                    for message in step:
                        work += message_work(message)
                        if work >= PART_WORK:
                            await self._did(work)
                            work = 0
                        if most != NO_INDEX and max(message.position.batch_index, 0) >= most:
                            return
                        published = message.publish_time
                        if published is not None:
                            is_late = is_late or published >= (request.start_ms or 0)
                            if not is_late:
                                continue
                            if request.end_ms is not None and published >= request.end_ms:
                                return
                        yield message
                step, message = [], None  # type: ignore[assignment]  # as above
                if not self._decoder.has_more:
                    break
                if self._turn.is_over:
                    await self._turn.wait()
                steps = await self._decoder.more()
            del steps
            await self._did(work + 1 + (data_bytes >> PIECE_BITS))
            work = 0

    async def _did(self, work: int) -> None:
        if self._turn.did(work):
            await self._turn.wait()
