"""What a half of the run is told with: its moments, what was acknowledged in it, and Spark, which follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from examples.flights.acks import AckedRun, read_log
from examples.flights.driver import SparkDriver
from examples.flights.processes import Cluster, WritingProcess
from examples.flights.results import Commit

BATCHES = 10  # of a query, at least


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
    killed_batch: int = -1  # of the query that follows it: the driver was killed in this one
    killed_at: float = 0.0
    commits: Sequence[Commit] = ()  # of that query

    @property
    def rate(self) -> float:
        """Acknowledged rows a second, faults included."""
        span = max(run.time for run in self.acked) - min(moment.time for moment in self.moments)
        return sum(run.count for run in self.acked) / span

    @property
    def spark_away_s(self) -> float:
        """From the kill of the driver to the next row in the query's result; endless if there is none."""
        times = [commit.time for commit in self.commits if commit.time > self.killed_at]
        return min(times, default=float("inf")) - self.killed_at

    @property
    def behind_s(self) -> float:
        """From the last acknowledgement to the last row in the query's result."""
        return max(0.0, max(commit.time for commit in self.commits) - max(run.time for run in self.acked))


@dataclass
class Stage:
    """Where a story plays. ``show(rows acknowledged)`` is the live progress, ``tell(text)`` one line that stays."""

    cluster: Cluster
    spark: SparkDriver
    rows: int
    rate: float  # rows a second at most
    show: Callable[[int], None]
    tell: Callable[[str], None]

    def mark(self, run: Run, what: str) -> None:
        run.moments.append(Moment(time.time(), what))
        self.tell(what)

    @property
    def batch_rows(self) -> int:
        """About the most rows of a batch of a query: it has some to be killed in, however late Spark has started."""
        return max(1, self.rows // BATCHES)

    def kill_driver(self, run: Run, writing: WritingProcess, row: int, already: int) -> None:
        """Kill Spark's driver in the middle of a batch, and start it again. Rows up to ``row`` may be written, and more
        of them if it has nothing to do; ``already``: those that were written before the program began."""
        allowed = float(row)

        def give_more() -> None:
            nonlocal allowed
            step = self.rows / 100  # what is on its way at the leash is less
            if read_log(writing.log).rows + already >= allowed - step and allowed < self.rows:
                allowed = min(allowed + step, self.rows)
                writing.allow(allowed)

        run.killed_batch = self.spark.kill_in_batch(give_more)
        run.killed_at = time.time()
        self.mark(run, f"Spark's driver killed (kill -9) in its batch {run.killed_batch}")
        self.spark.restart()
