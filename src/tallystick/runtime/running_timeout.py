"""A time-out in which the turns of a busy loop do not count for more than they are.

What is waited for may have come long ago, and several steps of the waiting are still to be made, one a turn. So the
time is that of ``BEATS`` timers one behind the other, and one that comes late counts as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

BEATS = 20


@asynccontextmanager
async def running_timeout(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, in seconds in which the loop ran. Raises TimeoutError."""
    async with asyncio.timeout(None) as limit:
        beats = _Beats(limit, seconds / BEATS)
        try:
            yield
        finally:
            beats.cancel()


class _Beats:
    """The timers of one time-out. Not a function that names itself: that is left to the garbage collector, with the
    task that waited, and a bookie has one for each look."""

    def __init__(self, limit: asyncio.Timeout, beat_s: float) -> None:
        self._limit, self._beat_s = limit, beat_s
        self._loop = asyncio.get_running_loop()
        self._left = BEATS
        self._go_on()

    def cancel(self) -> None:
        self._timer.cancel()

    def _go_on(self) -> None:
        self._left -= 1
        self._timer = self._loop.call_later(self._beat_s, self._go_on if self._left else self._end)

    def _end(self) -> None:
        self._limit.reschedule(self._loop.time())
