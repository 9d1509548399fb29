"""Time as the cores and shells see it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Three clocks: to measure durations with, to measure work with, and to stamp records with."""

    def now(self) -> float:
        """Returns the seconds of a clock that never steps back; only differences mean something."""
        ...

    def cpu(self) -> float:
        """Returns the seconds that this thread worked; only differences mean something."""
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970 UTC; the clock may step."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.monotonic()

    def cpu(self) -> float:
        return time.thread_time()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
