"""Simulated time: a heap of things to happen, one source of chance, and a trace whose hash tells two runs apart."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any

_START_MS = 1_600_000_000_000


class World:
    """Events run one at a time, in the order of their time and then of their scheduling."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed, self.now = seed, 0.0
        self.random = random.Random(seed)
        self.trace: list[str] | None = [] if keep_trace else None
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._hash = hashlib.blake2b(digest_size=8)

    def after(self, delay: float, happen: Callable[..., None], *arguments: Any) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (self.now + delay, self._scheduled, happen, arguments))

    def note(self, *words: object) -> None:
        """A line of the trace: what was decided or what went over the wire."""
        line = f"{self.now:9.3f} " + " ".join(map(str, words))
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def run(self, until: float, max_steps: int) -> bool:
        """Let things happen up to a time; False when there were more than ``max_steps``: something spins."""
        limit = self.steps + max_steps
        while self._heap and self._heap[0][0] <= until:
            self.now, _, happen, arguments = heapq.heappop(self._heap)
            happen(*arguments)
            self.steps += 1
            if self.steps >= limit:
                return False
        self.now = max(self.now, until)
        return True

    @property
    def fingerprint(self) -> str:
        """The hash of the trace: equal for equal seeds, in every process."""
        return self._hash.hexdigest()


class WorldClock:
    """The world's time as a ``runtime.clock.Clock``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now

    def wall_ms(self) -> int:
        return _START_MS + int(self._world.now * 1000)
