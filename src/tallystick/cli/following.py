"""A command that follows a log ends with the reader of its output: an idle log gives it nothing to write."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Coroutine
from typing import Any

LOOK_S = 0.5


async def while_read(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work``, which prints a log. Raises BrokenPipeError soon after the reader of our output went away."""
    following = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({following}, timeout=LOOK_S))[0]:
            if _has_no_reader():
                raise BrokenPipeError
        await following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _has_no_reader() -> bool:
    """Returns False also where our output is no file of the system."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except OSError:
        return False
    return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))
