"""The reading side in an executor: one event loop thread and one client for each Python worker process.

Spark reuses worker processes, so connections outlive a task. Fetching runs ahead of Spark by a few batches: enough to
keep the network busy while Spark takes one, and bounded, because what is fetched and not taken is memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import TypeVar

import uvloop

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.pipeline.bookies import bookie_client
from tallystick.pipeline.plan import Address

T = TypeVar("T")
AHEAD = 4  # batches

_END = object()


class Worker:
    """A loop thread and a client that knows bookies by the addresses of the plan; used by one task at a time."""

    def __init__(self, addresses: Mapping[BookieId, Address]) -> None:
        self.addresses = dict(addresses)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tally-worker", daemon=True)
        self._thread.start()
        self._client = asyncio.run_coroutine_threadsafe(self._connect(), self._loop).result()

    async def _connect(self) -> BookieClient:
        return bookie_client(self.addresses)

    def iterate(self, start: Callable[[BookieClient], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """What ``start`` gives, from another thread than the loop's. Closing the iterator stops the fetching."""
        ready: queue.SimpleQueue[object] = queue.SimpleQueue()
        room = asyncio.Semaphore(AHEAD)
        produced = asyncio.run_coroutine_threadsafe(_produce(start(self._client), ready, room), self._loop)
        try:
            while (item := ready.get()) is not _END:
                if isinstance(item, BaseException):
                    raise item
                self._loop.call_soon_threadsafe(room.release)
                yield item  # type: ignore[misc]  # the queue holds what the producer yields, the end, or its error
        finally:
            produced.cancel()

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(timeout=5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()


async def _produce(items: AsyncGenerator[T, None], ready: queue.SimpleQueue[object], room: asyncio.Semaphore) -> None:
    try:
        async for item in items:
            await room.acquire()
            ready.put(item)
        ready.put(_END)
    except (Exception, asyncio.CancelledError) as error:  # whoever waits must hear of any end
        ready.put(error)
    finally:
        await items.aclose()


_worker: Worker | None = None


def worker(addresses: Mapping[BookieId, Address]) -> Worker:
    """This process's worker; a new one when bookies have moved since the last task."""
    global _worker
    if _worker is None:
        # Spark collects garbage after each task, over all that the imports made: 30 ms of 48 for a small task. Frozen
        # objects are left out of that.
        gc.freeze()
    if _worker is None or _worker.addresses != dict(addresses):
        if _worker is not None:
            _worker.close()
        _worker = Worker(addresses)
    return _worker
