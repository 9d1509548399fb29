"""Sides take turns in one run while there is time; a turn that fails costs the other sides nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

ROUND_LIMIT_S = 60.0  # a turn that takes longer has failed
MAX_FAILURES = 3  # then a side is left out; on a busy machine one turn may fail because a session ran out


@dataclass(frozen=True)
class Failure:
    """A turn without figures."""

    side: str
    load: str
    why: str

    def __str__(self) -> str:
        return f"{self.load}: {self.why}"


class Turns:
    """``started``: when the run began; no round begins in the last ``reserve`` seconds of ``limit``."""

    def __init__(self, start: float, limit: float, reserve: float) -> None:
        self.start = start
        self._end = start + limit - reserve
        self.skipped_rounds = 0
        self.failures: list[Failure] = []

    def left_out(self, name: str) -> bool:
        return sum(failure.side == name for failure in self.failures) >= MAX_FAILURES

    async def each(self, load: str, names: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
        """One turn of each of the sides; ``load`` as in the rounds that come of it."""
        for name in names:
            if self.left_out(name):
                continue
            if self.remaining_s() < 0:
                self.skipped_rounds += 1
                continue
            await self.attempt(name, load, work(name))

    async def attempt(self, name: str, load: str, work: Awaitable[None]) -> None:
        """One turn of one side."""
        try:
            async with asyncio.timeout(ROUND_LIMIT_S):
                await work
        except Exception as error:
            self.failures.append(Failure(name, load, f"{type(error).__name__}: {error}"))
            self.say(f"{name} FAILED: {self.failures[-1]}")

    def remaining_s(self) -> float:
        """Seconds in which rounds may still begin."""
        return self._end - time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.start:6.1f} s  {text}", file=sys.stderr, flush=True)
