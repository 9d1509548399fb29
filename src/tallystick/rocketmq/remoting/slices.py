"""Long work of the loop, some milliseconds at a time: everybody else has turns in between.

A thread is no cure: whatever makes or reads a text holds the interpreter as long there.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tallystick.errors import BrokerError
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.places import Places

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


@dataclass(slots=True, eq=False)
class _Work:
    run: Coroutine[None, None, None]
    done: Callable[[Any], None]  # gets all parts, or an error
    host: str


class Slices:
    """Runs works as ``in_slices`` for callers that cannot wait: one after another, so that many cost a turn no more
    than one.

    Hosts have their turns one after the other. With all places taken a newcomer has that of the oldest work of the host
    with most of them (``runtime/places.py``), which is refused: a few hosts keep nobody out. ``close`` it: what is not
    made by then is not made any more.
    """

    def __init__(self, clock: Clock, *, most: int = MAX_WORKS) -> None:
        """``most`` bounds the works that wait or are under way."""
        self._clock, self._most = clock, most
        self._works: OrderedDict[str, deque[_Work]] = OrderedDict()  # that wait, by host
        self._places: Places[_Work] = Places(most - 1)  # of these
        self._task: asyncio.Task[None] | None = None

    def make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None], host: str = "") -> None:
        """Make all parts. ``done`` gets them, or what making them raised: BrokerError, now or later, where too many
        works wait. ``host`` asks for it."""
        work = _Work(self._make(parts, done), done, host)
        if self._task is None:
            self._begin(work)
            return
        self._works.setdefault(host, deque()).append(work)
        goes = self._places.arrived(work, host)
        if goes is not None:
            self._refuse(goes, at_once=goes is work)

    def _refuse(self, work: _Work, *, at_once: bool) -> None:
        works = self._works[work.host]
        works.remove(work)
        if not works:
            del self._works[work.host]
        work.run.close()
        remark = f"{self._most} long answers wait to be made: ask again later"
        error = BrokerError(remark, response_code=ResponseCode.SYSTEM_BUSY)
        if at_once:
            work.done(error)
        else:  # not within the call of another one
            asyncio.get_running_loop().call_soon(work.done, error)

    async def close(self) -> None:
        for works in self._works.values():
            for work in works:
                work.run.close()
        self._works.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self, work: _Work) -> None:
        self._task = asyncio.get_running_loop().create_task(work.run)
        self._task.add_done_callback(self._next)

    def _next(self, _: asyncio.Task[None]) -> None:
        self._task = None
        if self._works:
            host, works = self._works.popitem(last=False)
            work = works.popleft()
            if works:
                self._works[host] = works
            self._places.left(work)
            self._begin(work)

    async def _make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None]) -> None:
        results: list[T] | Exception
        try:
            results = await in_slices(parts, self._clock)
        except Exception as error:
            results = error
        try:
            done(results)
        finally:  # an error has this frame in its traceback: as a cycle, all that the parts hold would stay
            del results


def at_once(parts: Iterable[T], done: Callable[[list[T] | Exception], None], host: str = "") -> None:
    """Do as ``Slices.make`` where no other work must have a turn."""
    try:
        results: list[T] | Exception = list(parts)
    except Exception as error:
        results = error
    try:
        done(results)
    finally:
        del results  # see Slices
