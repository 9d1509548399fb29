"""Long work of the loop, some milliseconds at a time: everybody else has turns in between.

A thread is no cure: whatever makes or reads a text holds the interpreter as long there.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from tallystick.errors import BrokerError
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock

SLICE_S = 0.005
MAX_WORKS = 64  # that wait or are under way

T = TypeVar("T")


async def in_slices(parts: Iterable[T], clock: Clock) -> list[T]:
    """Returns all parts. Each is made without a pause, so keep it small; after ``SLICE_S`` others have a turn."""
    results: list[T] = []
    ends_at = clock.now() + SLICE_S
    for part in parts:
        results.append(part)
        if clock.now() >= ends_at:
            await asyncio.sleep(0)
            ends_at = clock.now() + SLICE_S
    return results


class Slices:
    """Runs works as ``in_slices`` for callers that cannot wait: one after another, so that many cost a turn no more
    than one.

    Hosts have their turns one after the other, and a quarter of the places is never one host's. ``close`` it: what is
    not made by then is not made any more.
    """

    def __init__(self, clock: Clock, *, most: int = MAX_WORKS) -> None:
        """``most`` bounds the works that wait or are under way."""
        self._clock, self._most = clock, most
        self._works: OrderedDict[str | None, deque[Coroutine[None, None, None]]] = OrderedDict()
        self._of_host: Counter[str | None] = Counter()
        self._task: asyncio.Task[None] | None = None

    def make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None], host: str | None = None) -> None:
        """Make all parts. ``done`` gets them, or what making them raised: BrokerError where too many works wait
        already. ``host`` asks for it; None: a host without a bound of its own."""
        most_of_host = self._most if host is None else max(1, self._most * 3 // 4)
        if self._of_host.total() >= self._most or self._of_host[host] >= most_of_host:
            remark = f"{self._of_host.total()} long answers wait to be made: ask again later"
            done(BrokerError(remark, response_code=ResponseCode.SYSTEM_BUSY))
            return
        self._of_host[host] += 1
        self._works.setdefault(host, deque()).append(self._make(parts, done, host))
        if self._task is None:
            self._next()

    async def close(self) -> None:
        for works in self._works.values():
            for work in works:
                work.close()
        self._works.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _next(self, _: asyncio.Task[None] | None = None) -> None:
        self._task = None
        if self._works:
            host, works = self._works.popitem(last=False)
            self._task = asyncio.get_running_loop().create_task(works.popleft())
            self._task.add_done_callback(self._next)
            if works:
                self._works[host] = works

    async def _make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None], host: str | None) -> None:
        results: list[T] | Exception
        try:
            results = await in_slices(parts, self._clock)
        except Exception as error:
            results = error
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        try:
            done(results)
        finally:  # an error has this frame in its traceback: as a cycle, all that the parts hold would stay
            del results


def at_once(parts: Iterable[T], done: Callable[[list[T] | Exception], None], host: str | None = None) -> None:
    """Do as ``Slices.make`` where no other work must have a turn."""
    try:
        results: list[T] | Exception = list(parts)
    except Exception as error:
        results = error
    try:
        done(results)
    finally:
        del results  # see Slices
