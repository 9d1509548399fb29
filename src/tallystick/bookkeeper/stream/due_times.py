"""When something of a client's streams is due: one timer for all of them, however many there are."""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from tallystick.runtime.alarm import Alarm
from tallystick.runtime.clock import Clock

AT_ONCE = 64  # are told before the loop goes on


class Due(Protocol):
    """What is told when its time has come."""

    def due(self) -> None: ...


class DueTimes:
    """The next time of each. Must be made on the running event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarm = Alarm(clock, self._ring)
        self._times: dict[Due, float] = {}
        self._heap: list[tuple[float, int, Due]] = []  # those that are not as in the above count no more
        self._numbers = count()

    def set(self, one: Due, at: float) -> None:
        """Tell ``one`` then, instead of when it was set before."""
        self._times[one] = at
        heappush(self._heap, (at, next(self._numbers), one))
        if len(self._heap) > 2 * len(self._times) + AT_ONCE:
            self._heap = [each for each in self._heap if self._times.get(each[2]) == each[0]]
            heapify(self._heap)
        self._alarm.set(at)

    def forget(self, one: Due) -> None:
        self._times.pop(one, None)

    def close(self) -> None:
        """Tell nobody any more."""
        self._alarm.cancel()
        self._times.clear()
        self._heap.clear()

    def _ring(self) -> None:
        now, due = self._clock.now(), deque[Due]()
        while self._heap and self._heap[0][0] <= now and len(due) < AT_ONCE:
            at, _, one = heappop(self._heap)
            if self._times.get(one) == at:
                del self._times[one]
                due.append(one)
        try:
            while due:
                due.popleft().due()
        finally:  # whatever happens, the others are told
            for one in due:
                self.set(one, now)
            if self._heap and self._heap[0][0] <= now:
                asyncio.get_running_loop().call_soon(self._ring)
            elif self._heap:
                self._alarm.set(self._heap[0][0])
