"""How many of those that wait are woken in one turn of the loop, whatever wakes all of them at once."""

from __future__ import annotations

import asyncio
from collections import deque


class TurnWakes:
    """Wakes who waits in the order in which it was asked to, ``most`` from one turn to the next: twice as many in a
    turn that others began before."""

    __slots__ = ("_is_counting", "_left", "_most", "_waiting")

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._is_counting = False  # for this turn, which has an end
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wake(self, waiter: asyncio.Future[None]) -> None:
        """Set the result of a future: now, or in a later turn if this one has woken enough, or others come first. One
        that is done by then, or cancelled, takes nobody's place."""
        self._waiting.append(waiter)
        self._wake_some()

    def _wake_some(self) -> None:
        while self._waiting and self._left:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._left -= 1
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_counting, self._left = False, self._most
        if self._waiting:
            self._wake_some()
