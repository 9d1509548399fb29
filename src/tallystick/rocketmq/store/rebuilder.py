"""Rebuilds lost queues on a worker of its own, half of the time at most, so that the loop goes on beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.errors import DiskFull
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival
from tallystick.runtime.clock import Clock
from tallystick.runtime.tasks import watch
from tallystick.runtime.worker import Worker, Workers

_RETRY_S = 1.0  # while the disk is full


class Rebuilder:
    """``start`` it when the store is open, ``close`` it before the store."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        workers: Workers,
        *,
        rebuilt: Callable[[list[Arrival]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Both are called on the loop: ``rebuilt`` with the messages that can be read again, ``failed`` when the store
        must stop."""
        self._store, self._clock, self._rebuilt, self._failed = store, clock, rebuilt, failed
        self._workers = workers
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._store.rebuilding:
            self._worker = self._workers("tally-rebuild")
            self._task = asyncio.create_task(self._run(self._worker))
            watch([self._task], self._failed)

    async def _run(self, worker: Worker) -> None:
        while self._store.rebuilding:
            began = self._clock.now()
            try:
                arrivals = await worker.run(self._store.rebuild)
            except DiskFull:
                await asyncio.sleep(_RETRY_S)
                continue
            if arrivals:
                self._rebuilt(arrivals)
            await asyncio.sleep(self._clock.now() - began)

    async def close(self) -> None:
        """Stop where it is: the next start goes on there."""
        if self._task is None or self._worker is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._worker.idle()
        self._worker.close()
