"""Work in steps, so many of which are done in one turn of the loop, whatever causes it there and how often."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from tallystick.codec.steps import Steps

T = TypeVar("T")


async def in_turns(steps: Steps[T]) -> T:
    """Run each step in a turn of the loop. Returns the outcome."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        await asyncio.sleep(0)


class TurnSteps:
    """What ``run`` is given is done one after the other: at once as far as this turn has steps left, else later.

    ``close`` it: what is not done by then is not done any more.
    """

    def __init__(self, most: int) -> None:
        """``most``: steps of one turn."""
        self._most = self._steps_left = most
        self._pending: deque[Iterator[object]] = deque()
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None

    def run(self, steps: Iterator[object]) -> None:
        self._pending.append(steps)
        if len(self._pending) == 1:  # else others come first, or this is one of their steps
            self._go_on()

    def close(self) -> None:
        self._pending.clear()
        if self._next is not None:
            self._next.cancel()

    def _go_on(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._next_turn)
        while self._pending and self._steps_left > 0:
            self._steps_left -= 1
            try:
                next(self._pending[0])
            except StopIteration:
                self._pending.popleft()

    def _next_turn(self) -> None:
        self._next, self._steps_left = None, self._most
        if self._pending:
            self._go_on()
