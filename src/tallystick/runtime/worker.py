"""Calls that wait for the disk, beside the event loop: on a thread; the simulator has a delay with the same methods."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Done = Callable[[Any, Exception | None], None]
Job = tuple[Callable[[], Any], Done]


class Worker(Protocol):
    """Runs calls in order, one at a time; each outcome arrives on the event loop that made the worker."""

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """``done`` gets the result, or the exception."""
        ...

    async def run(self, call: Callable[[], T]) -> T:
        """The same, awaited. The call runs to its end even when the caller is cancelled."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: Exception | None) -> None:
            if outcome.cancelled():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        self.submit(call, done)
        return await outcome  # type: ignore[no-any-return]  # a Future[T] made from Any

    async def idle(self) -> None:
        """Return when all that was submitted before has run: a call whose caller was cancelled too."""
        await self.run(_nothing)

    def close(self) -> None:
        """Finish what was submitted; take nothing more."""
        ...


_MANY = 4096  # bytes of a pipe

Workers = Callable[[str], Worker]  # makes a worker; the name is for those who look at threads


class ThreadWorker(Worker):
    """A thread.

    Leaner than an executor: a commit is submitted and reported without a future. The thread waits for a byte in a pipe:
    the write lets go of the interpreter at the moment when the thread wants it, which the lock of a queue does not. The
    loop waits for a byte in another pipe, as its own way to be woken by a thread does not let go either.

    Neither waits for room in a pipe, which may have some thousand bytes: two that wait for one another never end. A
    full pipe wakes who reads it all the same, so that a byte says that there is something, and not how much.
    """

    def __init__(self, name: str) -> None:
        """Raises OSError, or RuntimeError for a thread too many: then nothing of it is left."""
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Job | None] = deque()
        self._outcomes: deque[tuple[Done, Any, Exception | None]] = deque()
        ends = list[int]()
        try:
            for _ in range(2):
                ends += _pipe()
            self._listening, self._bell, self._returns, self._return_bell = ends
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        except (OSError, RuntimeError):
            for end in ends:
                os.close(end)
            raise
        self._loop.add_reader(self._returns, self._report)

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        self._put((call, done))

    def close(self) -> None:
        self._put(None)
        self._thread.join()
        self._loop.remove_reader(self._returns)
        while self._outcomes:
            done, result, error = self._outcomes.popleft()
            self._loop.call_soon(done, result, error)
        for end in self._listening, self._bell, self._returns, self._return_bell:
            os.close(end)
        self._bell = -1  # a later call fails: the number may belong to another file by then

    def _put(self, job: Job | None) -> None:
        self._jobs.append(job)
        _ring(self._bell)

    def _work(self) -> None:
        while os.read(self._listening, _MANY):
            while self._jobs:
                job = self._jobs.popleft()
                if job is None:
                    return
                self._do(job)
                del job  # while it waits for the next one, nothing of this one is kept

    def _do(self, job: Job) -> None:
        call, done = job
        try:
            result, error = call(), None
        except Exception as failure:
            result, error = None, failure
        self._outcomes.append((done, result, error))
        _ring(self._return_bell)

    def _report(self) -> None:
        """Report one outcome. Whatever comes of that, there is a byte for the others."""
        os.read(self._returns, _MANY)
        if not self._outcomes:
            return  # the byte of one that was reported before it came
        done, result, error = self._outcomes.popleft()
        if self._outcomes:
            _ring(self._return_bell)
        done(result, error)


def _pipe() -> tuple[int, int]:
    listening, bell = os.pipe()
    os.set_blocking(bell, False)
    return listening, bell


def _ring(bell: int) -> None:
    try:
        os.write(bell, b".")
    except BlockingIOError:
        return  # it is full


def _nothing() -> None:
    """What is queued after it finds the worker idle."""
