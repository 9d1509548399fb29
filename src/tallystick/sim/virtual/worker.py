"""A thread as a delay: a call takes effect at once, some time after it was submitted, and is told of some time later.

Between these moments the event loop goes on, so all orders of a call, what comes meanwhile and a crash happen.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tallystick.runtime.worker import Job, Worker
from tallystick.sim.virtual.process import Process

T = TypeVar("T")
LEAST_S = 1e-9  # between two outcomes: timers of one moment have no order


class DelayWorker(Worker):
    """A worker of one process; the delays are below ``longest_s``, and now and then a hundred times that."""

    def __init__(self, process: Process, rng: random.Random, longest_s: float) -> None:
        self._process, self._random, self._longest_s = process, rng, longest_s
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Job] = deque()
        self._free_at = self._told_at = 0.0
        self._closed = False

    def submit(self, call: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        assert not self._closed, "a closed worker was given a call"
        self._jobs.append((call, done))
        self._free_at = max(self._free_at, self._loop.time()) + LEAST_S + self._delay_s()
        self._loop.call_at(self._free_at, self._next, context=self._process.context)

    @property
    def pending_count(self) -> int:
        """Returns how many calls were submitted and have not taken effect."""
        return len(self._jobs)

    def close(self) -> None:
        self._closed = True
        while self._jobs:
            self._next()

    def _next(self) -> None:
        if not self._jobs:  # ``close`` was faster
            return
        call, done = self._jobs.popleft()
        try:
            result, error = call(), None
        except Exception as failure:
            result, error = None, failure
        self._told_at = max(self._told_at + LEAST_S, self._loop.time() + self._delay_s() / 4)
        self._loop.call_at(self._told_at, done, result, error, context=self._process.context)

    def _delay_s(self) -> float:
        slow = 100.0 if self._random.random() < 0.005 else 1.0
        return self._random.random() * self._longest_s * slow
