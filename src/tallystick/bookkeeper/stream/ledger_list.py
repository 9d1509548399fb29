"""The list of a stream as those see it who do not own it: read and watched once a client, however many use it.

A list is read again after each change; who waits for one is woken. Of ledgers that have left the list ``trimmed`` says
how far they reached, so that a reader that was slow knows whether it missed something. An owner removes two kinds of
ledgers: retention cuts the front, and an owner that takes over drops the newest one if nothing was ever stored there.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy
from operator import attrgetter

from tallystick.bookkeeper.metadata.store import Creation, Version
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.list_front import gone_end
from tallystick.bookkeeper.wire.ledger_runs import find
from tallystick.bookkeeper.wire.stream_lists import list_decoding
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import MAX_ID, LedgerId
from tallystick.errors import MetadataError, MetadataUnavailable, NoSuchStream, TallyError, UsageError
from tallystick.runtime.turn_steps import in_turns
from tallystick.runtime.turn_wakes import TurnWakes

RETRY_S = 0.5  # after a change, when the metadata could not be read

_LEDGER = attrgetter("ledger")


class StreamLists:
    """The lists that somebody uses now, by stream. ``close`` it with its client."""

    def __init__(self, catalog: StreamCatalog, wakes: TurnWakes) -> None:
        self.catalog, self.wakes = catalog, wakes
        self._lists: dict[str, StreamList] = {}
        self._is_closed = False

    async def open(self, stream: str) -> StreamList:
        """Returns the list, as of now; ``release`` it once. Raises NoSuchStream, MetadataError."""
        if self._is_closed:
            raise UsageError("this client is closed", stream=stream)
        opened = self._lists.get(stream)
        if opened is None or opened.is_ended:
            opened = self._lists[stream] = StreamList(self, stream)
        opened.users += 1
        try:
            await opened.sync()
        except BaseException:
            opened.release()
            raise
        return opened

    def drop(self, unused: StreamList) -> None:
        """For a list that nobody uses any more."""
        if self._lists.get(unused.stream) is unused:
            del self._lists[unused.stream]

    def close(self) -> None:
        """Nothing is read or watched any more; who waits is told."""
        self._is_closed = True
        for each in tuple(self._lists.values()):
            each.end(UsageError("this client is closed", stream=each.stream))


class StreamList:
    """The list of one stream, made by ``StreamLists``. Only ever newer."""

    def __init__(self, lists: StreamLists, stream: str) -> None:
        self.stream = stream
        self.users = 0
        self.changes = 0  # counts what ``wait`` waits for
        self.listeners: dict[Callable[[], None], None] = {}  # each is called when there is another list
        self.trimmed = EARLIEST  # what was before this position is deleted, as far as anybody here has seen
        self._lists, self._store = lists, lists.catalog.store
        self._path = lists.catalog.paths.stream(stream)
        self._info = StreamInfo()
        self._version: Version = -1
        self._creation: Creation | None = None
        self._failure: TallyError | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._reading: asyncio.Task[None] | None = None
        self._next_reading: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._watch = self._store.watch(self._path, self._read_later)

    @property
    def info(self) -> StreamInfo:
        """The list as it was read last. Raises NoSuchStream once it is deleted, MetadataError for foreign bytes."""
        if self._failure is not None:
            raise copy(self._failure)  # each of those who use it has a traceback of its own
        return self._info

    @property
    def deleted(self) -> Position:
        """What was before this position is deleted, and nothing behind it, as far as the list says or anybody here has
        seen. Raises as ``info``."""
        return max(self.trimmed, gone_end(self.info, self._version))

    def leads_to_first(self, position: Position) -> bool:
        """Returns whether the first ledger is what follows a position before it, as far as the list says: there all was
        read that left the list, or nothing was stored. Raises as ``info``."""
        gone = gone_end(self.info, self._version)
        if gone == EARLIEST or position.batch_index > 0:
            return False
        return position.of_entry == gone or (position > gone and position.entry <= 0)

    @property
    def is_ended(self) -> bool:
        """Whether this list is of no more use: its stream was deleted (another of its name has another list)."""
        return self._failure is not None and not isinstance(self._failure, MetadataError)

    def at_or_after(self, ledger: LedgerId) -> StreamLedger | None:
        """Returns the first listed ledger of this id or a higher one, None if there is none. Raises as ``info``."""
        ledgers = self.info.ledgers
        index = bisect_left(ledgers, ledger, key=_LEDGER)
        return ledgers[index] if index < len(ledgers) else None

    def before(self, ledger: LedgerId) -> StreamLedger | None:
        """Returns the last listed ledger of a lower id, None if there is none. Raises as ``info``."""
        ledgers = self.info.ledgers
        index = bisect_left(ledgers, ledger, key=_LEDGER)
        return ledgers[index - 1] if index else None

    def find(self, ledger: LedgerId) -> StreamLedger | None:
        """Returns a listed ledger, None if it is not listed. Raises as ``info``."""
        return find(self.info.ledgers, ledger)

    async def sync(self) -> StreamInfo:
        """Returns the list as of now. Raises NoSuchStream, MetadataError, MetadataUnavailable."""
        await asyncio.shield(self._read_again())
        return self.info

    async def wait(self, seen: int) -> None:
        """Wait until ``changes`` is no longer ``seen``: then look again."""
        while self.changes == seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = None
            try:
                await waiter
            finally:
                self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """Let all who wait look again, some in each turn: thousands may."""
        self.changes += 1
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            self._lists.wakes.wake(waiter)

    def release(self) -> None:
        """For each who opened it, once."""
        self.users -= 1
        if not self.users:
            self._stop()
            self._lists.drop(self)

    def end(self, failure: TallyError) -> None:
        """Raise this for all who use it from now on."""
        self._failure = failure
        self._stop()
        self.wake()

    def _stop(self) -> None:
        self._watch.cancel()
        if self._retry is not None:
            self._retry.cancel()

    # Reading

    def _read_later(self) -> None:
        """The node has changed, and nobody waits for the read of it."""
        self._retry = None
        self._read_again().add_done_callback(self._read_ended)

    def _read_ended(self, reading: asyncio.Task[None]) -> None:
        if reading.cancelled() or (error := reading.exception()) is None:
            return
        if isinstance(error, MetadataUnavailable) and self.users and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._read_later)

    def _read_again(self) -> asyncio.Task[None]:
        """Returns a read that begins after this call, one for all who call meanwhile."""
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read(self._reading))
            self._next_reading.add_done_callback(_looked_at)
        return self._next_reading

    async def _read(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._reading, self._next_reading = self._next_reading, None
        if self.is_ended:
            return
        try:
            await self._store.sync()
            node = await self._store.get(self._path)
        except MetadataUnavailable:
            raise
        except MetadataError as error:  # it is not there for a while only
            self._fail(error)
            return
        if node is None or (self._creation is not None and node.creation != self._creation):
            self.end(NoSuchStream(stream=self.stream))
            return
        if node.version == self._version and self._failure is None:
            return
        try:
            where = f"{self._store.where}{self._path}"
            info = await in_turns(list_decoding(node.data, where=where, known=self._info.ledgers))
        except MetadataError as error:
            self._fail(error)
        else:
            self._install(info, node.version)
            self.wake()
            for listener in tuple(self.listeners):
                listener()
        self._creation = node.creation

    def _fail(self, error: MetadataError) -> None:
        """Tell all who use it, until it can be read again."""
        self._failure = error
        self.wake()

    def _install(self, info: StreamInfo, version: Version) -> None:
        if self._version >= 0:
            end = trimmed_end(self._info.ledgers, info.ledgers, version - self._version)
            gone = gone_end(info, version)  # true also of ledgers that came and went unseen
            self.trimmed = gone if gone > EARLIEST else max(self.trimmed, end)
        self._info, self._version, self._failure = info, version, None


def count_of(listed: StreamLedger) -> int | None:
    """Returns how many entries a ledger has, None if the list does not say: its newest one is open, or was not closed
    by an owner."""
    return listed.entries if listed.is_closed and listed.has_counts else None


def trimmed_end(before: Sequence[StreamLedger], after: Sequence[StreamLedger], writes: int) -> Position:
    """Returns the end (excluded) of what has left a list from its front, EARLIEST if nothing has.

    ``writes``: how many there were from the one to the other. Each ledger that is new takes one, and so does trimming:
    with more than that there may have been ledgers that came and went unseen.
    """
    first, newest = after[0].ledger if after else MAX_ID, before[-1] if before else None
    if after and (newest is None or newest.ledger < first) and writes > len(after) + 1:
        return Position(first, 0)
    for gone in reversed(before[: bisect_left(before, first, key=_LEDGER)]):
        count = count_of(gone)
        if count is None and (gone is not newest or writes > 1):  # it had a successor, so it was closed
            return Position(gone.ledger, MAX_ID)
        if count:
            return Position(gone.ledger, count)
    return EARLIEST


def _looked_at(reading: asyncio.Task[None]) -> None:
    """All who waited for it may be gone: nobody looks at what it raised."""
    if not reading.cancelled():
        reading.exception()
