"""The way of a stream's appends: to the open ledger once a tick, and back as positions.

What is appended while no ledger is open waits, and so does what is encoded beside the loop. Nothing here decides which
ledger that is: ``RollOverCore`` does.
"""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable
from functools import partial

from tallystick.bookkeeper.ledger.late_failures import LateFailures
from tallystick.bookkeeper.ledger.pending import Room
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.appends import Appends
from tallystick.bookkeeper.stream.late_appends import Append, Encoded, LateAppends, LateEntry
from tallystick.bookkeeper.stream.rollover import Action, RollOverCore
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.errors import StreamFenced, StreamFull, TallyError, UsageError
from tallystick.runtime.clock import Clock

MOST_TOGETHER = 1024  # entries that are confirmed together
APPEND_COST_BYTES = 256  # what an append takes of the memory beside its entry, however short that is


class AppendFlow:
    """See the module. ``began`` hears what the core wants done, ``failed`` why the writer takes no more, and
    ``waiting_began`` that there is an append where there was none."""

    __slots__ = ("_appends", "_began", "_changed", "_clock", "_core", "_exceeded", "_failed", "_failures",
                 "_flush_scheduled", "_last", "_late", "_left", "_loop", "_max_bytes", "_max_entry_bytes", "_room",
                 "_waiting_began", "_waits_for_quota", "added", "confirmed", "doubtful_from", "failures", "full",
                 "is_full_before", "refusal", "stream", "waits_since", "writer")  # fmt: skip

    def __init__(
        self,
        stream: str,
        core: RollOverCore,
        writer: LedgerWriter | None,
        last: Position,
        *,
        max_pending_bytes: int,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        began: Callable[[list[Action]], None],
        failed: Callable[[TallyError], None],
        waiting_began: Callable[[], None],
    ) -> None:
        """``writer`` is of the ledger that is open, and ``last`` the position before it."""
        self.stream, self._core, self.writer, self._last = stream, core, writer, last
        self._loop, self._clock, self._began, self._failed = loop, clock, began, failed
        self._waiting_began = waiting_began
        self.waits_since: float | None = None  # since when nothing was stored, while there are appends
        self._max_bytes = max_pending_bytes
        self._max_entry_bytes = 0 if writer is None else writer.max_payload_bytes
        self._appends: Appends[Append] = Appends()
        self._late = LateAppends(self._encoded)  # all that is there was appended behind all of ``_appends``
        self.confirmed = 0  # entries of the ledger of ``writer``
        self.added = 0  # entries so far
        self.refusal: TallyError | None = None  # why nothing is taken any more
        self._flush_scheduled = False
        self._room: Room | None = None
        self._failures = LateFailures(loop)
        self.failures = 0  # how often all appends failed: those before may hear of it a while later
        self.doubtful_from: Position | None = None  # settable: behind it are entries of appends that failed, or none
        self.full: TallyError | None = None  # settable: why no append is taken for a while
        self.is_full_before: Callable[[], bool] = _never  # settable: where appends wait before they come here
        self._changed: asyncio.Future[None] | None = None
        self._left: float = math.inf  # bytes until the backlog may exceed its quota
        self._exceeded: Callable[[], None] | None = None
        self._waits_for_quota = False

    def __len__(self) -> int:
        """Count the appends that are not stored yet."""
        return len(self._appends) + len(self._late)

    @property
    def last_confirmed(self) -> Position:
        """The position of the newest entry that is stored."""
        return Position(self._core.ledger, self.confirmed - 1) if self.confirmed else self._last

    @property
    def ledger_end(self) -> Position:
        """The last position of the newest ledger, with entry -1 if it is empty."""
        is_closed = self._last.ledger == self._core.ledger
        return self._last if is_closed else Position(self._core.ledger, self.confirmed - 1)

    # -- to the ledger ------------------------------------------------------------------------------------------------

    def append(self, entry: bytes | LateEntry) -> asyncio.Future[Position]:
        """Append an entry without waiting for anything. Raises UsageError, StreamFull, and why nothing is taken.

        A late entry that turns out to be too long, or cannot be encoded, fails with what else is raised.
        """
        if self.refusal is not None:
            raise copy.copy(self.refusal)
        if self.full is not None:
            raise copy.copy(self.full)
        if isinstance(entry, LateEntry):
            size = entry.size
        else:
            size = len(entry)
            self.check_size(size)
        if self._held_bytes >= self._max_bytes:
            raise StreamFull(stream=self.stream, bytes=self._held_bytes)
        future: asyncio.Future[Position] = self._loop.create_future()
        if isinstance(entry, LateEntry):
            self._late.append_late(entry, future)
        elif self._late:
            self._late.append((entry, future), size)
        else:
            self._appends.append((entry, future), size)
            self._waits()
        self._take(size)
        return future

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0 and self._exceeded is not None:
            self._exceeded()

    def _waits(self) -> None:
        """There is something for the ledger."""
        if self.waits_since is None:
            self.waits_since = self._clock.now()
            self._waiting_began()
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def check_size(self, size: int) -> None:
        """Raises UsageError for an entry that is too long."""
        if size > self._max_entry_bytes:
            raise self._too_long(size)

    def _too_long(self, size: int) -> UsageError:
        return UsageError("an entry is too long", bytes=size, max_bytes=self._max_entry_bytes)

    def _encoded(self, encoded: Encoded) -> None:
        """A late entry is encoded, or cannot be: it and what is behind it come next."""
        entry, error, future = encoded.entry, encoded.error, encoded.future
        if entry is not None and len(entry) > self._max_entry_bytes:
            error = self._too_long(len(entry))
        if error is None:
            assert entry is not None
            self._appends.append((entry, future), len(entry))
        elif not future.done():
            future.set_exception(error)
        self._appends.extend(encoded.behind, encoded.behind_bytes)
        self._take(encoded.more_bytes)
        if self._appends.waiting_count:
            self._waits()
        self.wake()

    async def all_encoded(self) -> None:
        """Wait until all that was appended is encoded: for who does something behind it."""
        await self._late.wait()

    def flush(self) -> None:
        """Send what waits, as far as the ledger takes it."""
        self._flush_scheduled = False
        core, appends, writer = self._core, self._appends, self.writer
        if not core.is_open:
            if appends:
                self._began(core.appended(self._clock.now()))
            return
        assert writer is not None, "a ledger is open"
        while appends.waiting_count and core.is_open:
            items, size = appends.take(min(core.room, MOST_TOGETHER), core.room_bytes)
            try:
                future = writer.append_batch_nowait([entry for entry, _ in items])
            except TallyError as error:
                return self._failed(error)
            future.add_done_callback(partial(self._answered, writer, len(items)))
            self._began(core.sent(len(items), size, self._clock.now()))

    # -- and back -----------------------------------------------------------------------------------------------------

    def _answered(self, writer: LedgerWriter, count: int, future: asyncio.Future[EntryId]) -> None:
        """The writer confirmed the next ``count`` entries of its ledger, or failed."""
        error = future.exception()
        if writer is not self.writer:
            return  # its ledger has ended, and is settled
        if error is None:
            self._stored(count)
        else:
            assert isinstance(error, TallyError), "a writer fails with those"
            self._failed(error)

    def _stored(self, count: int) -> None:
        """The first of those that were sent are stored."""
        ledger, entry = self._core.ledger, self.confirmed
        for _, future in self._appends.stored(count):
            if not future.done():  # its caller may have been cancelled
                future.set_result(Position(ledger, entry))
            entry += 1
        if entry > self.confirmed:
            self.waits_since = self._clock.now() if self._appends else None
        self.added += entry - self.confirmed
        self.confirmed = entry
        self.wake()

    def settle(self, last: EntryId) -> None:
        """The ledger has ended with this entry: what was sent to it and is not there waits for the next one."""
        writer, self.writer = self.writer, None
        assert writer is not None, "it was open"
        writer.abort()  # what is under way would go on if it was not closed by us
        self._stored(last + 1 - self.confirmed)
        self._appends.send_on()
        if last >= 0:
            self._last = Position(writer.id, last)
        self.confirmed = 0

    def go_on(self, writer: LedgerWriter) -> None:
        """The next ledger is open."""
        self.writer = writer
        self.flush()

    # -- room and refusal ---------------------------------------------------------------------------------------------

    @property
    def _held_bytes(self) -> int:
        return self._appends.bytes + self._late.bytes + len(self) * APPEND_COST_BYTES

    @property
    def is_full(self) -> bool:
        """Whether what is appended now is refused, and may be taken after the next ``change``."""
        is_full = self._held_bytes >= self._max_bytes or (self.full is not None and self._waits_for_quota)
        return is_full and self.refusal is None

    def _has_no_room(self) -> bool:
        return self.is_full or (self.is_full_before() and self.refusal is None)

    def watch_quota(self, exceeded: Callable[[], None], *, waits: bool) -> None:
        """Call ``exceeded`` with each append from now on, until there is an ``allow``. While it is ``full`` whoever
        asks for ``room`` waits, or not."""
        self._exceeded, self._waits_for_quota, self._left = exceeded, waits, 0

    def allow(self, size: int) -> None:
        """Of what is confirmed by now so many bytes are left to the quota."""
        self._left = size - self._appends.bytes - self._late.bytes

    def resume(self) -> None:
        """Appends are taken again."""
        self.full = None
        self._tell_change()
        if self._room:
            self._room.wake_all()

    async def room(self) -> None:
        """Wait until there is room for an append, here and before. Then append, and ``wake`` the next."""
        if self._room or self._has_no_room():
            if self._room is None:
                self._room = Room(self._loop, self._has_no_room)
            await self._room.wait()

    async def change(self) -> None:
        """Wait until there may be more room than now, before all who wait for ``room``: for one at a time."""
        self._changed = self._loop.create_future()
        await self._changed

    def _tell_change(self) -> None:
        if self._changed is not None:
            if not self._changed.done():
                self._changed.set_result(None)
            self._changed = None

    def wake(self) -> None:
        """Wake a caller that waits for room, if there is some now."""
        if self._changed is not None:
            self._tell_change()
        if self._room:
            self._room.wake()

    def refuse(self, refusal: TallyError) -> None:
        """Take no more appends. That another owner is there says more than whatever comes later."""
        if not isinstance(self.refusal, StreamFenced):
            self.refusal = refusal
        self._tell_change()
        if self._room:
            self._room.wake_all()

    def fail_all(self, failure: TallyError) -> None:
        """Fail all appends. Of those that were sent nobody knows whether they are stored."""
        self.waits_since = None
        self.failures += 1
        if self.doubtful_from is None and len(self._appends) > self._appends.waiting_count:
            self.doubtful_from = self.last_confirmed
        sent, waiting = [(future for _, future in appends) for appends in self._appends.take_all()]
        for futures, is_ambiguous in ((sent, True), (waiting, False), (self._late.take_all(), False)):
            error = copy.copy(failure)
            error.ambiguous = is_ambiguous
            self._failures.fail(futures, error)
        self.wake()

    def stop(self) -> None:
        """Send nothing more."""
        if self.writer is not None:
            self.writer.abort()


def _never() -> bool:
    return False
