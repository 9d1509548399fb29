"""Long work of the loop, some milliseconds at a time: everybody else has turns in between.

A thread is no cure: whatever makes or reads a text holds the interpreter as long there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from tallystick.errors import BrokerError
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock

SLICE_S = 0.005
MAX_WAITING = 64  # texts that are asked for and not made

T = TypeVar("T")


async def in_slices(parts: Iterable[T], clock: Clock) -> list[T]:
    """All parts. Each is made without a stop, so it has to be a small one; after ``SLICE_S`` others have their turn."""
    made: list[T] = []
    ends_at = clock.now() + SLICE_S
    for part in parts:
        made.append(part)
        if clock.now() >= ends_at:
            await asyncio.sleep(0)
            ends_at = clock.now() + SLICE_S
    return made


class Slices:
    """``in_slices`` for whoever cannot wait: one after another, so that many cost a turn no more than one does.

    ``close`` it: what is not made by then is not made any more.
    """

    def __init__(self, clock: Clock, *, most: int = MAX_WAITING) -> None:
        """``most``: works that wait or are under way."""
        self._clock, self._most = clock, most
        self._turn = asyncio.Lock()
        self._tasks: dict[asyncio.Task[None], None] = {}

    def make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None]) -> None:
        """``done`` gets all parts, or what making them raised: BrokerError where too many wait already."""
        if len(self._tasks) >= self._most:
            remark = f"{self._most} long answers wait to be made: ask again later"
            done(BrokerError(remark, response_code=ResponseCode.SYSTEM_BUSY))
            return
        task = asyncio.get_running_loop().create_task(self._make(parts, done))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, parts: Iterable[T], done: Callable[[list[T] | Exception], None]) -> None:
        made: list[T] | Exception
        async with self._turn:
            try:
                made = await in_slices(parts, self._clock)
            except Exception as error:
                made = error
        done(made)


def at_once(parts: Iterable[T], done: Callable[[list[T] | Exception], None]) -> None:
    """As ``Slices.make`` where nobody has to have a turn."""
    try:
        made: list[T] | Exception = list(parts)
    except Exception as error:
        made = error
    done(made)
