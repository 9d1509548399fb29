"""The time of one turn of the loop, which all that works in it shares.

Each kind of work ends after some milliseconds of a turn, and goes on in the next one. Where a crowd has something for
all kinds at once these add up: to read, to cut requests, to serve those that came and those that wait, to read the log.
So a part of a turn ends the sooner, the longer the turn takes already, whatever it was that took it; a little of each
is done in any case, or one kind would have to wait for ever.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary, ref

TURN_S = 0.015
LEAST_S = 0.002  # of each part


class TurnTime:
    """One a loop, which ``of`` finds. A turn is from the first part in it to that in the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # which has this as long as it is there
        self._ends_at: float | None = None  # None: no part of this turn has begun

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> TurnTime:
        turn_time = _of_loops.get(loop)
        if turn_time is None:
            turn_time = _of_loops[loop] = cls(loop)
        return turn_time

    def ends(self, now: float, most_s: float) -> float:
        """Returns when a part must end that begins now, and may take ``most_s``."""
        if self._ends_at is None:
            self._ends_at = now + TURN_S
            if (loop := self._loop()) is not None:
                loop.call_soon(self._next_turn)
        return now + min(most_s, max(LEAST_S, self._ends_at - now))

    def _next_turn(self) -> None:
        self._ends_at = None


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, TurnTime] = WeakKeyDictionary()
