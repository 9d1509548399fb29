"""Bookies with more free disk take more ledgers (Q20): how much more, and a draw that follows it.

The weight of a bookie is its free bytes, and at most so many times the median: a new, empty bookie among full ones
would otherwise take every ledger, and all reads of the newest entries with them (``WeightedRandomSelection``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Protocol

from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import TallyError
from tallystick.runtime.clock import Clock
from tallystick.runtime.rng import Random

ASKED_AT_ONCE = 16  # bookies


class Draw(Protocol):
    """Who draws bookies; ``Random`` fits."""

    def sample(self, population: Sequence[BookieId], k: int) -> list[BookieId]: ...


class WeightedDraw:
    """Draw different bookies, each next in proportion to its weight among those that are left."""

    def __init__(self, random: Random, weights: Mapping[BookieId, float], other: float) -> None:
        """``other`` is the weight of bookies without one."""
        self._random, self._weights, self._other = random, weights, other

    def sample(self, population: Sequence[BookieId], k: int) -> list[BookieId]:
        return sorted(population, key=self._arrival)[:k]

    def _arrival(self, bookie: BookieId) -> float:
        """A race of exponential times has its places in proportion to the rates."""
        return -math.log(1.0 - self._random.random()) / self._weights.get(bookie, self._other)


def weighted(random: Random, free_bytes: Mapping[BookieId, int], most: float) -> Draw:
    """Return a draw by free bytes, of at most ``most`` times their median; without any it is ``random`` itself."""
    middle = median(free_bytes.values()) if free_bytes else 0.0
    if not middle:
        return random
    weights = {bookie: max(1.0, min(float(free), most * middle)) for bookie, free in free_bytes.items()}
    return WeightedDraw(random, weights, middle)


class FreeDisks:
    """The free bytes of bookies, asked for beside the placements that need them, which never wait. ``close`` it."""

    def __init__(
        self, ask: Callable[[BookieId], Awaitable[int]], clock: Clock, random: Random, *, every_s: float, most: float
    ) -> None:
        """``ask`` gets the free bytes of a bookie, or raises TallyError. With ``every_s`` 0 nobody is asked."""
        self._ask, self._clock, self._random = ask, clock, random
        self._every_s, self._most = every_s, most
        self._free = dict[BookieId, int]()
        self._draw: Draw = random
        self._due_at = -math.inf
        self._bookies: Sequence[BookieId] = ()
        self._task: asyncio.Task[None] | None = None

    def draw(self, bookies: Sequence[BookieId]) -> Draw:
        """Return who draws from these bookies, by what is known of them."""
        if self._every_s and self._task is None and (self._clock.now() >= self._due_at or bookies is not self._bookies):
            self._bookies, self._due_at = bookies, self._clock.now() + self._every_s
            self._task = asyncio.get_running_loop().create_task(self._read(bookies))
        return self._draw

    async def _read(self, bookies: Sequence[BookieId]) -> None:
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def read(bookie: BookieId) -> None:
            async with turns:
                with suppress(TallyError):  # what it said before counts; one that never said anything is as the median
                    self._free[bookie] = await self._ask(bookie)

        try:
            await asyncio.gather(*map(read, bookies))
            self._free = {bookie: self._free[bookie] for bookie in bookies if bookie in self._free}
            self._draw = weighted(self._random, self._free, self._most)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
