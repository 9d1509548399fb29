"""Flushes and upkeep of a store on workers of their own: group commit, without a timer for sends that wait.

What is written during one sync is part of the next one. Under ASYNC_FLUSH no send waits, and syncs run at intervals.
After a failed sync nobody knows what is on the disk, so nothing is reported flushed any more, and the store stops. Any
other error here stops it as well: a broker without flushes or upkeep must not go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tallystick.rocketmq.store.store import MessageStore
from tallystick.runtime.clock import Clock
from tallystick.runtime.tasks import watch
from tallystick.runtime.worker import Workers

MAINTAIN_S = 1.0

T = TypeVar("T")


class Flusher:
    """Runs the flushes and the upkeep. All methods run on the loop, and so do ``flushed`` and ``failed``."""

    def __init__(
        self,
        store: MessageStore,
        *,
        clock: Clock,
        workers: Workers,
        interval_ms: int,
        flushed: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``flushed(offset)`` is called after each sync, ``failed(error)`` once, when the store must stop."""
        self._store, self._clock, self._interval_s = store, clock, interval_ms / 1000
        self._flushed, self._failed = flushed, failed
        # Upkeep syncs many files and must not delay those who wait for a flush.
        self._flushing = workers("tally-flush")
        self._maintaining = workers("tally-maintain")
        self._busy = self._again = self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Flush and maintain at intervals from now on."""
        self._tasks = [asyncio.create_task(self._flush_at_intervals()), asyncio.create_task(self._maintain())]
        watch(self._tasks, self._fail)

    def request(self) -> None:
        """Sync soon all that is written now."""
        if self._busy:
            self._again = True
        elif not self._closed:
            self._busy = True
            self._flushing.submit(self._store.flush, self._done)

    def _done(self, offset: int | None, error: Exception | None) -> None:
        self._busy = False
        if offset is None or error is not None:
            self._fail(error or AssertionError("a flush that ended in nothing"))
            return
        if self._again:  # first, so that the worker is busy while the responses of this one are sent
            self._again = False
            self.request()
        self._flushed(offset)

    def _fail(self, error: Exception) -> None:
        if not self._closed:
            self._closed = True
            self._failed(error)

    async def _flush_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            if self._store.flushed < self._store.end:
                self.request()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(MAINTAIN_S)
            await self._maintaining.run(partial(self._store.maintain, self._clock.wall_ms()))

    async def between(self, call: Callable[[], T]) -> T:
        """Run ``call`` on the thread of the upkeep, which waits meanwhile. It may cut the log: earlier flushes are
        reported before this returns."""
        try:
            return await self._maintaining.run(call)
        finally:
            await self._flushing.idle()

    async def close(self) -> None:
        """Finish what runs, and close the store, which nothing may use any more."""
        for task in self._tasks:
            task.cancel()
        self._closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._maintaining.idle()
        await self._flushing.run(self._store.close)
        self._flushing.close()
        self._maintaining.close()
