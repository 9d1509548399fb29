"""Flushes and upkeep of a store on threads of their own: group commit, without a timer for those who wait.

What is written while one sync runs is the next one's. Nobody waits under ASYNC_FLUSH; then it happens at intervals. A
failed sync is the end: nobody knows what is on the disk, so nothing is reported flushed any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tallystick.errors import StorageError
from tallystick.rocketmq.store.store import MessageStore
from tallystick.runtime.clock import Clock

MAINTAIN_S = 1.0


class Flusher:
    """All methods run on the loop, and so do ``flushed`` and ``failed``."""

    def __init__(
        self, store: MessageStore, clock: Clock, interval_ms: int,
        *, flushed: Callable[[int], None], failed: Callable[[StorageError], None],
    ) -> None:  # fmt: skip
        """``flushed(offset)`` after each sync, ``failed(error)`` once, when the store must stop."""
        self._store, self._clock, self._interval_s = store, clock, interval_ms / 1000
        self._flushed, self._failed = flushed, failed
        self._loop = asyncio.get_running_loop()
        # Upkeep syncs many files and must not delay those who wait for a flush.
        self._flushing = ThreadPoolExecutor(1, "store-flush")
        self._maintaining = ThreadPoolExecutor(1, "store-maintain")
        self._running: asyncio.Future[int] | None = None
        self._again = self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Flush and maintain at intervals from now on."""
        self._tasks = [asyncio.create_task(self._flush_at_intervals()), asyncio.create_task(self._maintain())]

    def request(self) -> None:
        """Sync all that is written now, soon."""
        if self._running is not None:
            self._again = True
        elif not self._closed:
            self._running = self._loop.run_in_executor(self._flushing, self._store.flush)
            self._running.add_done_callback(self._done)

    def _done(self, running: asyncio.Future[int]) -> None:
        self._running = None
        error = running.exception()
        if error is not None:
            self._fail(error)
            return
        if self._again:  # first, so that the thread works while the answers of this one are sent
            self._again = False
            self.request()
        self._flushed(running.result())

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, StorageError):
            raise error
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
            try:
                await self._loop.run_in_executor(self._maintaining, self._store.maintain, self._clock.wall_ms())
            except StorageError as error:
                self._fail(error)
                return

    async def close(self) -> None:
        """Finish what runs, close the store. Nothing else may use it any more."""
        for task in self._tasks:
            task.cancel()
        self._closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loop.run_in_executor(self._maintaining, _nothing)  # a cancelled call runs to its end all the same
        await self._loop.run_in_executor(self._flushing, self._store.close)
        self._flushing.shutdown()
        self._maintaining.shutdown()


def _nothing() -> None:
    """What is queued after it finds the thread idle."""
