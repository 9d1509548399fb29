"""Futures that fail together: some in each turn of the loop, however many there are.

Each slice shares an error. What is left when the loop is about to end, so that tasks are cancelled, fails at once: no
thread may wait for ever.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tallystick.errors import TallyError

FAILED_A_TURN = 512  # futures; each may wake a task


class LateFailures:
    """The futures that are about to fail, in order."""

    __slots__ = ("_failing", "_loop", "_parts")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parts: deque[tuple[Iterator[asyncio.Future[Any]], TallyError]] = deque()
        self._failing: asyncio.Task[None] | None = None

    def fail(self, futures: Iterable[asyncio.Future[Any]], error: TallyError) -> None:
        """Let these fail, behind all others; the first now, if there are no others. A future that is done stays so."""
        self._parts.append((iter(futures), error))
        if self._failing is None and not self._fail_some():
            self._failing = self._loop.create_task(self._fail_rest())
            self._failing.add_done_callback(self._end)

    async def _fail_rest(self) -> None:
        is_last = False
        while not is_last:
            await asyncio.sleep(0)
            is_last = self._fail_some()

    def _end(self, failing: asyncio.Task[None]) -> None:
        """It may have been cancelled."""
        self._failing = None
        while not self._fail_some():
            pass

    def _fail_some(self) -> bool:
        """Returns whether that was all."""
        left = FAILED_A_TURN
        while self._parts and left:
            futures, error = self._parts[0]
            shared, count = copy.copy(error), 0
            for future in islice(futures, left):
                count += 1
                if not future.done():  # its caller may have been cancelled
                    future.set_exception(shared)
            if count < left:
                self._parts.popleft()
            left -= count
        return not self._parts
