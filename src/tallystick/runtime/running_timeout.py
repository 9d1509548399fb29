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
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def beat(beats_left: int) -> None:
            nonlocal timer
            if beats_left:
                timer = loop.call_later(seconds / BEATS, beat, beats_left - 1)
            else:
                limit.reschedule(loop.time())

        timer = loop.call_later(seconds / BEATS, beat, BEATS - 1)
        try:
            yield
        finally:
            timer.cancel()
