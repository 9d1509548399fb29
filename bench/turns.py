"""Sides take turns in one run while there is time; a turn that fails costs the other sides nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable

ROUND_LIMIT_S = 60.0  # a turn that takes longer has failed
MAX_FAILURES = 3  # then a side is left out; on a busy machine one turn may fail because a session ran out


class Turns:
    """``started``: when the run began; no round begins in the last ``reserve`` seconds of ``limit``."""

    def __init__(self, started: float, limit: float, reserve: float) -> None:
        self.started = started
        self._end = started + limit - reserve
        self.skipped = 0
        self.failures: dict[str, list[str]] = {}  # by side

    def left_out(self, name: str) -> bool:
        return len(self.failures.get(name, ())) >= MAX_FAILURES

    def takes_turn(self, name: str) -> bool:
        if self.left_out(name):
            return False
        late = self.left() < 0
        self.skipped += late
        return not late

    async def attempt(self, name: str, what: str, work: Awaitable[None]) -> None:
        """One turn of one side."""
        try:
            async with asyncio.timeout(ROUND_LIMIT_S):
                await work
        except Exception as error:
            why = f"{what}: {type(error).__name__}: {error}"
            self.failures.setdefault(name, []).append(why)
            self.say(f"{name} FAILED: {why}")

    def left(self) -> float:
        """Seconds in which rounds may still begin."""
        return self._end - time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", file=sys.stderr, flush=True)
