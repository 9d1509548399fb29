"""The cursors that a streaming query moves behind itself, for others to see how far it is, and for retention to wait.

Nothing is read by them, and no row hangs on them: the checkpoint has where the query goes on. A planner process takes
its cursors over from the one before, which may have died without a word.
"""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchPosition, NoSuchStream, StreamFenced, StreamOwned, TallyError
from tallystick.pipeline.notes import note
from tallystick.pipeline.stream.offsets import Positions
from tallystick.pipeline.stream.schema import FORMAT

AT_ONCE = 16  # cursors
MOMENT_S = 1.0  # how long a batch waits for them


class QueryCursors:
    """The cursors of one name, of all streams of a query. They end with the client."""

    def __init__(self, bk: BookKeeper, name: str, *, is_raw: bool) -> None:
        self._bk, self._name, self._entry_format = bk, name, "raw" if is_raw else "pulsar"
        self._opened_at: dict[str, Position] = {}  # the marks that they had
        self._cursors: dict[str, Cursor | None] = {}  # None: others keep the stream's cursors, or this one
        self._positions: dict[str, Position] = {}  # where the cursors are to be
        self._moves: dict[str, asyncio.Task[None]] = {}  # that are under way
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def open(self, positions: Positions) -> None:
        """Open those that are not open, made where there are none; all before the positions is read. Raises Unavailable
        and its kinds, RecoveryIncomplete, MetadataError."""
        missing = {stream: at for stream, at in positions.items() if stream not in self._cursors}
        if missing:
            await asyncio.gather(*(self._open(stream, at) for stream, at in missing.items()))

    async def move(self, positions: Positions) -> None:
        """Say that all before the positions is read. What takes longer than a moment goes on behind the next batch."""
        for stream, at in positions.items():
            self._positions[stream] = at
            if stream not in self._moves and self._is_behind(stream, at):
                self._moves[stream] = asyncio.create_task(self._move(stream))
        if self._moves:
            await asyncio.wait(tuple(self._moves.values()), timeout=MOMENT_S)

    def kept_from(self, stream: str) -> LedgerId | None:
        """Returns the ledger from whose beginning on the cursor of a stream has kept all until it was opened here: what
        was before is deleted, and was read by this query before, or has expired. None if it is not so."""
        mark = self._opened_at.get(stream, EARLIEST)
        return mark.ledger if mark.entry == -1 and mark != EARLIEST else None

    def _is_behind(self, stream: str, at: Position) -> bool:
        """Whether the cursor of a stream is not yet where a batch has ended."""
        cursor = self._cursors.get(stream)
        return cursor is not None and at != EARLIEST and Position(at.ledger, at.entry - 1) > cursor.mark

    async def _open(self, stream: str, at: Position) -> None:
        start = "beginning" if at == EARLIEST else at
        async with self._gate:
            try:
                cursor = await self._bk.cursor(
                    stream, self._name, start=start, takeover=True, entry_format=self._entry_format
                )
                self._cursors[stream], self._opened_at[stream] = cursor, cursor.mark
            except StreamOwned as error:
                self._cursors[stream] = None
                note(FORMAT, f"no cursor is moved: {error}")
            except (NoSuchStream, NoSuchPosition) as error:  # which whoever reads it hears of
                note(FORMAT, f"no cursor is opened: {error}")
        await self.move({stream: at})

    async def _move(self, stream: str) -> None:
        """Until the cursor is where it is to be by then: there may be no next batch for hours."""
        cursor, tried = self._cursors[stream], EARLIEST
        try:
            while cursor is not None and tried != self._positions[stream]:
                tried = self._positions[stream]
                async with self._gate:
                    await cursor.ack_up_to(Position(tried.ledger, tried.entry - 1))
        except StreamFenced as error:
            self._cursors[stream] = None
            note(FORMAT, f"another query moves this cursor from now on: {error}")
        except TallyError as error:
            note(FORMAT, f"a cursor is not moved now, but after the next batch: {error}")
        finally:
            del self._moves[stream]
