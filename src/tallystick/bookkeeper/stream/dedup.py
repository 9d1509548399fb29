"""Numbered appends of one owner: each is stored once, however often it is repeated (``MessageDeduplication``).

The numbers are read when the first numbered append comes: those that were saved in the cursor ``pulsar.dedup``, and the
entries behind them. A broker whose deduplication is off deletes that cursor; then all entries that retention kept are
read, and producers of older ones are unknown. Until they are read every append waits, so that none overtakes another.

Of an append that failed nobody may know whether it is stored. Before the next numbered append is judged, the entries
that came into its ledger are read again. One that is not stored must be appended again before higher numbers of its
producer: a repeat of it would pass for stored behind them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple

from tallystick.bookkeeper.stream.append_flow import APPEND_COST_BYTES
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.cursor_store import CursorStore
from tallystick.bookkeeper.stream.dedup_core import AppendStatus, DedupCore, FailedNumbers
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.numbers import NumbersImage, read_numbers, recover_numbers
from tallystick.bookkeeper.stream.owner import StreamOwner
from tallystick.bookkeeper.stream.retention import DEDUPLICATION
from tallystick.bookkeeper.stream.rollover import Phase
from tallystick.bookkeeper.stream.trim import stored_state
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.bookkeeper.wire.values import NO_ENTRY, LedgerId
from tallystick.errors import (
    EarlierAppendFailed,
    NoSuchCursor,
    NoSuchStream,
    StreamFenced,
    StreamFull,
    TallyError,
    UsageError,
)

PUSHED_A_TURN = 256  # appends that waited

EntryFrom = Callable[[int], bytes | LateEntry]  # the entry of the messages from this number on
Push = Callable[[], asyncio.Future[Position]]


class _Waiting(NamedTuple):
    """An append that waits until the numbers are read."""

    push: Push
    future: asyncio.Future[Position]
    size: int
    numbers: tuple[str, int, int] | None  # producer, first and last


class Deduplication:
    """See the module. Nothing is kept, read or saved before the first numbered append."""

    def __init__(self, context: StreamContext, stream: str, owner: StreamOwner, max_waiting_bytes: int) -> None:
        self._context, self._stream, self._owner = context, stream, owner
        self._loop = context.context.loop
        self._core: DedupCore | None = None
        self._failed = FailedNumbers()
        self._store: CursorStore | None = None
        # Of each producer that has any on its way, by last number, and how often all had failed when it was pushed.
        self._pending: dict[str, dict[int, tuple[asyncio.Future[Position], int]]] = {}
        self._read_from: Position | None = EARLIEST  # entries behind it have to be read first; None: all is known
        self._loading: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes, self._max_waiting_bytes = 0, max_waiting_bytes
        owner.flow.is_full_before = self._is_full
        self._unsaved = 0
        self._saved_mark = EARLIEST
        self._turn = asyncio.Lock()  # of who reads numbers, and who saves them

    # -- appends ------------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether appends wait for the numbers to be read: all that come wait behind them."""
        return bool(self._waiting)

    def append(
        self, producer: str, first: int, last: int, entry_from: EntryFrom, size: int
    ) -> asyncio.Future[Position]:
        """Append messages numbered ``first`` to ``last``, of so many bytes, as one entry, but for those that are stored
        already.

        The future has the position of the entry, or where the last one was stored; ``-1:-1`` where nobody knows that.
        Raises StreamFull, EarlierAppendFailed, and as the owner's ``append``.
        """
        self._look_for_doubt()
        push = partial(self._push, producer, first, last, entry_from)
        if self._read_from is None and not self._waiting:
            return push()
        future = self.hold(push, size, (producer, first, last))
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_and_go_on())
        return future

    def hold(self, push: Push, size: int, numbers: tuple[str, int, int] | None = None) -> asyncio.Future[Position]:
        """Call ``push`` when it is its turn. Returns a future of what its future will have. Raises StreamFull, and why
        nothing is taken."""
        if (refusal := self._owner.flow.refusal) is not None:
            raise copy(refusal)
        if self._is_full():
            raise StreamFull(stream=self._stream, bytes=self._waiting_bytes)
        future: asyncio.Future[Position] = self._loop.create_future()
        self._waiting.append(_Waiting(push, future, size + APPEND_COST_BYTES, numbers))
        self._waiting_bytes += size + APPEND_COST_BYTES
        return future

    def _is_full(self) -> bool:
        return self._waiting_bytes >= self._max_waiting_bytes

    def position_of(self, producer: str, number: int) -> Position:
        """Returns where a stored message is. Returns ``-1:-1`` where nobody knows that."""
        return EARLIEST if self._core is None else self._core.position_of(producer, number)

    def positions_of(self, producer: str, first: int, count: int) -> list[Position]:
        """The same of so many messages."""
        return [EARLIEST] * count if self._core is None else self._core.positions_of(producer, first, count)

    def _push(self, producer: str, first: int, last: int, entry_from: EntryFrom) -> asyncio.Future[Position]:
        core = self._core
        assert core is not None, "the numbers were read"
        future: asyncio.Future[Position] = self._loop.create_future()
        status = core.check(producer, last)
        if status is AppendStatus.STORED:
            future.set_result(core.position_of(producer, last))
        elif status is AppendStatus.PENDING:
            earlier, _ = self._pending[producer][core.pending(producer, last)]
            earlier.add_done_callback(lambda done: self._repeat(done, future, producer, last))
        else:
            first = core.first_new(producer, first)
            self._require_order(core, producer, first, last)
            entry = self._owner.flow.append(entry_from(first))
            core.pushed(producer, last)
            self._failed.settled(producer, last)
            self._pending.setdefault(producer, {})[last] = entry, self._owner.flow.failures
            entry.add_done_callback(partial(self._answered, producer, first, last))
            return _copy_of(entry, future)
        return future

    def _require_order(self, core: DedupCore, producer: str, first: int, last: int) -> None:
        """Raises EarlierAppendFailed if what has lower numbers failed."""
        self._failed.settled(producer, core.highest_of(producer))  # in doubt, and found
        lowest, pending = self._failed.lowest(producer), self._pending.get(producer)
        has_failed = False  # and was not told so yet
        if pending:
            newest, failures = next(reversed(pending.values()))
            if failures < self._owner.flow.failures:
                has_failed = not newest.done() or newest.exception() is not None
        if has_failed or (lowest is not None and first > lowest):
            self._failed.failed(producer, first, last)
            raise EarlierAppendFailed(stream=self._stream, producer=producer, sequence=first, earlier=lowest)

    def _repeat(
        self, done: asyncio.Future[Position], future: asyncio.Future[Position], producer: str, number: int
    ) -> None:
        """What was on its way is stored, or failed: so is what repeats it."""
        if future.done():
            return
        if (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(self.position_of(producer, number))

    def _answered(self, producer: str, first: int, last: int, done: asyncio.Future[Position]) -> None:
        core, error = self._core, done.exception()
        assert core is not None
        pending = self._pending[producer]
        if pending[last][0] is done:
            del pending[last]
            if not pending:
                del self._pending[producer]
        if error is None:
            core.stored(producer, first, last, done.result())
            self._unsaved += 1
            if self._unsaved >= self._context.settings.dedup_interval_entries and self._saving is None:
                self._saving = self._loop.create_task(self._save())
            return
        core.failed(producer, last)
        if isinstance(error, UsageError):
            return  # it is refused each time
        self._failed.failed(producer, first, last)

    # -- reading what is stored ---------------------------------------------------------------------------------------

    def _look_for_doubt(self) -> None:
        """Appends that failed may be stored: the entries are to be read. So it is as soon as they fail: when the last
        of them hears of it, the next ledger may be open."""
        flow = self._owner.flow
        if (since := flow.doubtful_from) is not None:
            self._read_from = since if self._read_from is None else min(self._read_from, since)
            flow.doubtful_from = None

    async def _load_and_go_on(self) -> None:
        try:
            while self._waiting:
                failure: TallyError | None = None
                try:
                    while self._read_from is not None:
                        await self._load(await self._owner.settled())
                except TallyError as error:
                    failure = copy(error)
                    failure.ambiguous = False  # nothing was sent
                await self._go_on(failure)
        finally:
            self._loading = None

    async def _go_on(self, failure: TallyError | None) -> None:
        """Push what waits, some in each turn of the loop, until numbers must be read again; or let what is numbered and
        waits by now fail."""
        count = len(self._waiting) if failure is not None else math.inf
        done = 0
        while self._waiting and done < count and (failure is not None or self._read_from is None):
            waiting = self._waiting[0]  # it stays there while this waits
            if failure is None or waiting.numbers is None:
                await self._push_waiting(waiting)
            else:
                self._fail_waiting(waiting, failure)
            self._waiting.popleft()
            self._waiting_bytes -= waiting.size
            self._owner.flow.wake()
            done += 1
            if done % PUSHED_A_TURN == 0:
                await asyncio.sleep(0)

    async def _push_waiting(self, waiting: _Waiting) -> None:
        """Push it; once there is room: it was accepted, and entries are longer than what was counted then."""
        flow = self._owner.flow
        while True:
            try:
                pushed = waiting.push()
            except StreamFull as error:
                if not flow.is_full:
                    return self._fail_waiting(waiting, error)
                await flow.change()
            except TallyError as error:
                return self._fail_waiting(waiting, error)
            else:
                break
        _copy_of(pushed, waiting.future)

    def _fail_waiting(self, waiting: _Waiting, error: TallyError) -> None:
        if waiting.numbers is not None and not isinstance(error, UsageError):  # which is refused each time
            self._failed.failed(*waiting.numbers)
        _fail(waiting.future, error)

    async def _load(self, ledger: LedgerId) -> None:
        """Read what has to be read before ``ledger``, whose entries are those of this owner."""
        async with self._turn:
            read_from, core = self._read_from, self._core or DedupCore()
            if read_from is None:
                return
            try:
                if self._core is None:
                    self._store, state = await recover_numbers(self._context, self._stream, self._owner.lease)
                    core.restored(state.properties)
                    read_from = self._saved_mark = state.mark
                await read_numbers(self._context, self._stream, core, read_from, Position(ledger, 0))
            except (NoSuchStream, NoSuchCursor) as error:
                raise StreamFenced("somebody deletes this stream", stream=self._stream) from error
            self._core = core
            # What is in doubt may be in a ledger that is yet to be closed: that is read when the next one is open.
            is_open = self._owner.phase is Phase.OPENED
            self._read_from = None if is_open else Position(ledger, NO_ENTRY)

    async def keep(self, up_to: Position) -> None:
        """Save the numbers of all entries up to this position, which are to be deleted: for ``work`` that is ``alone``.

        A stream on which nobody numbers appends has no such cursor. Raises StreamFenced, Unavailable, MetadataError.
        """
        self._look_for_doubt()
        if self._core is None:
            try:
                state = await stored_state(self._context, self._stream, DEDUPLICATION)
            except NoSuchCursor:
                return
            if state.mark >= up_to:
                return
        while self._read_from is not None and self._read_from < up_to:
            await self._load(self._owner.ledger)
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        if self._saved_mark < up_to:
            await self._save_now()

    # -- saving -------------------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        try:
            while self._unsaved >= self._context.settings.dedup_interval_entries:
                await self._save_now()
        except TallyError as error:
            self._context.context.events.emit("numbers not saved", stream=self._stream, reason=error)
        finally:
            self._saving = None

    async def _save_now(self) -> None:
        async with self._turn:
            mark = self._owner.flow.last_confirmed
            self._look_for_doubt()
            if self._read_from is not None:  # behind that there are entries whose numbers are not known
                mark = min(mark, self._read_from)
            await asyncio.sleep(0)  # whoever was confirmed by now is in the core
            unsaved, store, core = self._unsaved, self._store, self._core
            assert store is not None and core is not None, "the numbers were read"
            await store.save(NumbersImage.of(core, mark))
            self._saved_mark = mark
            self._unsaved -= unsaved

    async def close(self) -> None:
        """Save the numbers, so that the next owner has little to read. What hinders that is said."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        self._look_for_doubt()
        if self._store is None or self._core is None or self._read_from is not None:
            return
        try:
            numbers = NumbersImage.of(self._core, self._owner.flow.last_confirmed)
            await self._store.close(numbers, is_saved=not self._unsaved)
        except StreamFenced:
            pass  # the next owner reads it itself
        except TallyError as error:
            self._context.context.events.emit("numbers not saved", stream=self._stream, reason=error)

    def abort(self, failure: TallyError) -> None:
        """Stop at once. What waits for the numbers fails: nothing of it was sent."""
        if self._loading is not None:
            self._loading.cancel()
        if self._saving is not None:
            self._saving.cancel()
        while self._waiting:
            _fail(self._waiting.popleft().future, failure)
        self._waiting_bytes = 0
        if self._store is not None:
            self._store.abort()


def _copy_of(source: asyncio.Future[Position], future: asyncio.Future[Position]) -> asyncio.Future[Position]:
    """Let ``future`` have what ``source`` gets: whoever cancels it cancels nothing else."""

    def pass_on(done: asyncio.Future[Position]) -> None:
        if future.done():
            return
        if (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())

    source.add_done_callback(pass_on)
    return future


def _fail(future: asyncio.Future[Position], error: TallyError) -> None:
    if not future.done():
        future.set_exception(error)
