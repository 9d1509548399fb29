"""What a half of the run is told with: its moments, and what was acknowledged in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from examples.flights.acks import AckedRun
from examples.flights.processes import Cluster


@dataclass(frozen=True)
class Moment:
    """Something worth a line in the report and a mark in the plot."""

    time: float  # Unix seconds
    what: str


@dataclass
class Run:
    """What the report needs of either half."""

    moments: list[Moment] = field(default_factory=list)
    acked: list[AckedRun] = field(default_factory=list)
    resumed_at: int = 0  # the row at which the second program went on

    @property
    def rate(self) -> float:
        """Acknowledged rows a second, faults included."""
        span = max(run.time for run in self.acked) - min(moment.time for moment in self.moments)
        return sum(run.count for run in self.acked) / span


@dataclass
class Stage:
    """Where a story plays. ``show(rows acknowledged)`` is the live progress, ``tell(text)`` one line that stays."""

    cluster: Cluster
    rows: int
    rate: float  # rows a second at most
    show: Callable[[int], None]
    tell: Callable[[str], None]

    def mark(self, run: Run, what: str) -> None:
        run.moments.append(Moment(time.time(), what))
        self.tell(what)
