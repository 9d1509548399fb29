"""The thread that runs an event loop for blocking clients: one for each (process, settings).

It starts with the first client and ends with the last. A process that was forked gets a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Hashable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import uvloop

from tallystick.errors import UsageError
from tallystick.runtime.fork import ProcessLock
from tallystick.runtime.opening import Handle, Opening

T = TypeVar("T")

_loops: dict[tuple[int, Hashable], LoopThread] = {}
_guard = ProcessLock()


class LoopThread:
    """A thread with an event loop, and how many clients use it."""

    def __init__(self, key: tuple[int, Hashable]) -> None:
        self.key, self.users = key, 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tallystick", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, settings: Hashable) -> LoopThread:
        key = (os.getpid(), settings)
        with _guard:
            loop = _loops.get(key)
            if loop is None:
                loop = _loops[key] = cls(key)
            loop.users += 1
            return loop

    def release(self) -> None:
        with _guard:
            self.users -= 1
            if self.users:
                return
            del _loops[self.key]
        self.run(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self.key[0] != os.getpid():
            work.close()
            raise UsageError("this was made by another process; connect anew")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop has ended
            work.close()
            raise UsageError("this client is closed") from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("a blocking call on the client's own loop would wait for itself; use the async client")
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # when the caller was interrupted: nobody waits any more
            raise

    def open(self, opening: Opening[Handle]) -> Handle:
        """A handle of the client's."""

        async def work() -> Handle:
            return await opening

        return self.run(work())

    def call(self, function: Callable[[], T]) -> T:
        """A plain function, on the loop's thread."""

        async def work() -> T:
            return function()

        return self.run(work())

    def iterate(self, start: Callable[[], AsyncIterator[T]], weigh: Callable[[T], float]) -> Iterator[T]:
        """Items cross threads together up to a weight of about 1. Closing the iterator ends what it reads from.

        Raises at once what ``start`` raises.
        """
        return self._chunks(self.call(lambda: aiter(start())), weigh)

    def _chunks(self, items: AsyncIterator[T], weigh: Callable[[T], float]) -> Iterator[T]:
        try:
            while chunk := self.run(_take(items, weigh)):
                yield from chunk
        finally:
            # Not waited for: a dropped iterator ends in the garbage collector, on any thread, perhaps the loop's own.
            if isinstance(items, AsyncGenerator):
                with suppress(UsageError):
                    self.submit(_close(items))


async def _take(items: AsyncIterator[T], weigh: Callable[[T], float]) -> list[T]:
    batch: list[T] = []
    weight = 0.0
    while weight < 1:
        try:
            item = await anext(items)  # no new loop: to a consumer that would say that the last one was left
        except StopAsyncIteration:
            break
        batch.append(item)
        weight += weigh(item)
    return batch


async def _settle() -> None:
    """Before a loop ends: nothing is left half done."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def alone(item: object) -> float:
    """The weight of an item that crosses threads by itself."""
    return 1


os.register_at_fork(after_in_child=_loops.clear)  # they are the parent's
