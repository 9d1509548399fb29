"""How many bytes the links of a port may send in one turn of the loop, all together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TurnBytes:
    """Links spend the bytes of a turn. One that finds none left, or has more to send, waits: its ``pump`` is called in
    the next turn, ahead of all others. Of those that wait, who found none left comes before who was served. Turns that
    spend little are one."""

    def __init__(self, most: int) -> None:
        """``most``: bytes of one turn."""
        self._most = self._left = most
        self._waiting: dict[Callable[[], None], None] = {}
        self._next: asyncio.Handle | None = None

    def left_for(self, pump: Callable[[], None]) -> int:
        """Returns how many bytes a link may send now: none if it waits."""
        return 0 if pump in self._waiting else self._left

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < self._most // 2:  # what a message takes is no reason for another turn of the loop
            self._arm()

    def wait(self, pump: Callable[[], None]) -> None:
        self._waiting[pump] = None
        self._arm()

    def close(self) -> None:
        """Call no link any more."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()

    def _arm(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._next, self._left = None, self._most
        waiting, self._waiting = self._waiting, {}
        served_pumps = []
        try:
            while waiting:
                pump, left = next(iter(waiting)), self._left
                del waiting[pump]
                pump()
                if self._left < left:
                    served_pumps.append(pump)
        finally:
            if waiting:  # a fault of one: the others are called in the next turn
                self._waiting = waiting | self._waiting
                self._arm()
        for pump in served_pumps:
            if pump in self._waiting:
                del self._waiting[pump]
                self._waiting[pump] = None
