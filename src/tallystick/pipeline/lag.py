"""How far a streaming query is behind what it follows, as its progress report shows it. Pure.

Spark takes no figures from Python sources, but shows the offset that one reports as its newest, which goes nowhere
else. So the lag is in it, beside the positions::

    "latestOffset": {"v": 1, …, "lag": {"rows": 1200, "bytes": 1234567, "seconds": 3.2}}

It is what the batch that was planned last leaves: 0 where that goes up to the end. Where very many logs have something
left, sizes and times are those of some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

SAMPLES = 32  # logs that are asked for what is read next

K = TypeVar("K")


@dataclass(frozen=True)
class Lag:
    """``bytes`` are an estimate. ``seconds``: how old what is read next is; None if nothing tells."""

    rows: int = 0
    bytes: int = 0
    seconds: float | None = 0.0

    def to_json(self) -> dict[str, int | float]:
        seconds = {} if self.seconds is None else {"seconds": self.seconds}
        return {"rows": self.rows, "bytes": self.bytes, **seconds}


def most_behind(counts: Mapping[K, int]) -> list[K]:
    """Returns the logs that are asked: those that have the most left."""
    return sorted(counts, key=counts.__getitem__, reverse=True)[:SAMPLES]


def mean(values: Iterable[int]) -> int:
    """Returns 1 where there is none."""
    numbers = list(values)
    return max(-(-sum(numbers) // len(numbers)), 1) if numbers else 1


def age_s(times_ms: Iterable[int], now_ms: int) -> float | None:
    """Returns how old the oldest is; None if there is none. The clocks of others may be ahead."""
    oldest_ms = min(times_ms, default=None)
    return None if oldest_ms is None else round(max(now_ms - oldest_ms, 0) / 1000, 3)
