"""Clocks that stand still until a test moves them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ManualClock:
    """``time`` in seconds, for all of them."""

    time: float = 0.0

    def now(self) -> float:
        return self.time

    def cpu(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return int(self.time * 1000)
