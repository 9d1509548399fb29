"""Who reads from a cursor: one at a time, in the order of the calls; who does not wait is never held up by who does."""

from __future__ import annotations

import asyncio
from collections import deque


class ReadTurns:
    """A lock whose holder may say that it waits for what is yet to come. All who do not wait are sent away then, as
    what comes is the holder's."""

    def __init__(self) -> None:
        self._queue: deque[tuple[asyncio.Future[bool], bool]] = deque()  # and whether it waits
        self._is_taken = self._is_waiting = False

    async def take(self, *, wait: bool) -> bool:
        """Wait for the turn; ``give_back`` it. Returns False if there is nothing to be read for who does not wait."""
        if not self._is_taken:
            self._is_taken = True
            return True
        if self._is_waiting and not wait:
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, wait))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one read."""
        self._is_waiting = False
        while self._queue:
            turn, _ = self._queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._is_taken = False

    def waits(self) -> None:
        """The holder waits for what is yet to come."""
        self._is_waiting = True
        for turn, wait in self._queue:
            if not wait and not turn.done():
                turn.set_result(False)
        self._queue = deque((turn, wait) for turn, wait in self._queue if not turn.done())

    def goes_on(self) -> None:
        """The holder waits no longer."""
        self._is_waiting = False
