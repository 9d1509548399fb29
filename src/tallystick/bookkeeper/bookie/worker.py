"""A thread for calls that wait for the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Job = tuple[Callable[[], Any], Callable[[Any, Exception | None], None]]


class Worker:
    """One thread that runs calls in order; each outcome arrives on the event loop that made the worker.

    Leaner than an executor: a commit is submitted and reported without a future.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """``done`` gets the result, or the exception."""
        self._jobs.put((call, done))

    async def run(self, call: Callable[[], T]) -> T:
        """The same, awaited. The call runs to its end even when the caller is cancelled."""
        outcome: asyncio.Future[Any] = self._loop.create_future()

        def done(result: T | None, error: Exception | None) -> None:
            if outcome.cancelled():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        self.submit(call, done)
        return await outcome  # type: ignore[no-any-return]  # a Future[T] made from Any

    def close(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, done = job
            try:
                result, error = call(), None
            except Exception as failed:
                result, error = None, failed
            self._loop.call_soon_threadsafe(done, result, error)
