"""The reading side in an executor: an event loop thread and a client for each Python worker process and format.

Spark reuses worker processes, so connections outlive a task. Fetching runs ahead of Spark by a few batches: enough to
keep the network busy while Spark takes one, and bounded, because what is fetched and not taken is memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import uvloop

from tallystick.runtime.memory import keep_freed_memory

T = TypeVar("T")
AHEAD = 4  # batches

_END = object()


class Client(Protocol):
    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=Client)
ClientT_co = TypeVar("ClientT_co", bound=Client, covariant=True)


class Peers(Protocol[ClientT_co]):
    """The storage nodes of a plan. Equal ones are reached by the same client."""

    async def connect(self) -> ClientT_co:
        """A client that is used on the running loop."""
        ...


class TaskWorker(Generic[ClientT]):
    """A loop thread and a client of the peers of a plan; used by one task at a time."""

    def __init__(self, peers: Peers[ClientT]) -> None:
        self.peers = peers
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tally-worker", daemon=True)
        self._thread.start()
        try:
            self.client = asyncio.run_coroutine_threadsafe(self._connect(), self._loop).result()
        except BaseException:
            self._end()
            raise

    async def _connect(self) -> ClientT:
        return await self.peers.connect()

    def iterate(self, start: Callable[[ClientT], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """What ``start`` gives, from another thread than the loop's. Closing the iterator stops the fetching."""
        ready: queue.SimpleQueue[object] = queue.SimpleQueue()
        room = asyncio.Semaphore(AHEAD)
        produced = asyncio.run_coroutine_threadsafe(_produce(start(self.client), ready, room), self._loop)
        try:
            while (item := ready.get()) is not _END:
                if isinstance(item, BaseException):
                    raise item
                self._loop.call_soon_threadsafe(room.release)
                yield item  # type: ignore[misc]  # the queue holds what the producer yields, the end, or its error
        finally:
            produced.cancel()

    def ask(self, question: Callable[[ClientT], Coroutine[Any, Any, T]]) -> T:
        """What ``question`` gives, from another thread than the loop's."""
        return self.begin(question).result()

    def begin(self, question: Callable[[ClientT], Coroutine[Any, Any, T]]) -> Future[T]:
        """The same, to be waited for later."""
        return asyncio.run_coroutine_threadsafe(question(self.client), self._loop)

    def close(self) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result(timeout=5)
        finally:
            self._end()

    def _end(self) -> None:
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


_workers: dict[type, TaskWorker[Any]] = {}


@cache  # to ask whether it was done takes some ms: the objects are counted
def leave_out_imports() -> None:
    """Leave what the imports of this process made out of the collections of garbage, of which Spark does one after each
    task: 30 ms of 48 for a small one."""
    gc.freeze()


def worker(peers: Peers[ClientT]) -> TaskWorker[ClientT]:
    """This process's worker for a format; a new one when the peers have moved since the last task.

    From now on the process keeps what it frees: no more than a task had at once, for the next batch. Pages of a batch
    that are given back and taken again cost as much as half of the other work.
    """
    leave_out_imports()
    task_worker = _workers.get(type(peers))
    if task_worker is None or task_worker.peers != peers:
        if task_worker is not None:
            del _workers[type(peers)]  # though none may take its place: one that is closed is of no use
            task_worker.close()
        keep_freed_memory()
        task_worker = _workers[type(peers)] = TaskWorker(peers)
    return task_worker
