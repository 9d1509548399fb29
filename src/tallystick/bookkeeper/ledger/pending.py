"""Appends of one writer that are not confirmed yet, and callers that wait for room for more."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterator

from tallystick.bookkeeper.ledger.late_failures import LateFailures
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.errors import TallyError

# The future gets the entry id when that is confirmed; so many payload bytes then leave the flight. A plain tuple: there
# is one for each append.
_PendingAppend = tuple[EntryId, asyncio.Future[EntryId], int]


class PendingAppends:
    """Futures of appends in id order; ``inflight_bytes`` count their payloads."""

    __slots__ = ("_appends", "_loop", "inflight_bytes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.inflight_bytes = 0
        self._loop = loop
        self._appends: deque[_PendingAppend] = deque()

    def __len__(self) -> int:
        return len(self._appends)

    def add(self, last: EntryId, size: int, future: asyncio.Future[EntryId] | None = None) -> asyncio.Future[EntryId]:
        """Return ``future``, or a new one, of ``last``; ``size`` bytes are in flight until it is confirmed.

        Ids must not descend.
        """
        if future is None:
            future = self._loop.create_future()
        self._appends.append((last, future, size))
        self.inflight_bytes += size
        return future

    def confirmed(self, lac: EntryId) -> None:
        """Resolve all futures up to ``lac``; their bytes are in flight no longer. Those of a batch are until all of it
        is confirmed."""
        appends, confirmed_bytes = self._appends, 0
        while appends and appends[0][0] <= lac:
            last, future, size = appends.popleft()
            confirmed_bytes += size
            if not future.done():  # its caller may have been cancelled
                future.set_result(last)
        self.inflight_bytes -= confirmed_bytes

    def fail(self, failure: TallyError, unsent: EntryId) -> None:
        """Fail all futures. Entries from ``unsent`` on were never sent; a bookie may have the others, and recovery keep
        them."""
        appends, self._appends, self.inflight_bytes = self._appends, deque(), 0
        in_doubt = copy.copy(failure)
        in_doubt.ambiguous = True
        failures = LateFailures(self._loop)
        failures.fail(_take(appends, unsent), in_doubt)
        failures.fail(_take(appends), failure)


def _take(appends: deque[_PendingAppend], end: EntryId | None = None) -> Iterator[asyncio.Future[EntryId]]:
    """Take the futures of entries before ``end``; all if it is None."""
    while appends and (end is None or appends[0][0] < end):
        yield appends.popleft()[1]


class Room:
    """A queue of callers that wait while ``is_full``. One is woken at a time, and must wake the next.

    Who waits stays in the queue until it runs: nobody overtakes it, though there may be room by then.
    """

    __slots__ = ("_is_full", "_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop, is_full: Callable[[], bool]) -> None:
        self._loop, self._is_full = loop, is_full
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self) -> None:
        """Wait until there is room, and nobody waits who came before. Call ``wake`` afterwards, whatever comes of the
        append."""
        if not self._waiters and not self._is_full():
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
            while self._is_full():  # again: it stays the first
                before, waiter = waiter, self._loop.create_future()
                self._waiters[self._waiters.index(before)] = waiter
                await waiter
        except asyncio.CancelledError:
            self._waiters.remove(waiter)
            self.wake()
            raise
        self._waiters.remove(waiter)

    def wake(self) -> None:
        """Wake the first caller if there is room now."""
        if self._waiters and not self._is_full() and not self._waiters[0].done():
            self._waiters[0].set_result(None)

    def wake_all(self) -> None:
        """Wake all callers, since nothing is taken any more."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
