"""The goals beside an original, one a row: which figure of which load, and how far ahead of what.

A bound is that of a ratio to the original's figure, or to another load's of the same side; without either it is one of
the figure itself. CPU is per operation.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent / "tests")
)  # the sides run the peers of the interop tests

import broker_plan
import broker_sides
import ledger_plan
import ledger_sides
import starts
from figures import MEMORY, SPARK

import spark

LEDGER, BROKER, STARTS = "ledger", "broker", "starts"
ORIGINALS = {LEDGER: ledger_sides.BEST, BROKER: broker_sides.THEIRS, STARTS: starts.THEIRS}
NAMES = {
    "rate": "rate",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "total_us": "CPU of all, µs",
    "master_us": "master's CPU, µs",
    "cpu_s_per_gb": "CPU, s a GB",
    "bookie_rest_mb": "a bookie at rest, MB",
    "bookie_loaded_mb": "a bookie after the load, MB",
    "master_rest_mb": "a master at rest, without files, MB",
    "master_loaded_mb": "a master after the load, without files, MB",
}


@dataclass(frozen=True)
class Goal:
    """``compiled`` and ``python`` are the bounds by codec: upper ones, or lower ones where ``more`` is better."""

    bench: str
    load: str
    figure: str
    compiled: float
    python: float
    more: bool = False
    beside: str = ""  # another load of the same side
    is_absolute: bool = False
    scale: float = 1.0  # from the figure to what is shown
    unit: str = ""

    @property
    def title(self) -> str:
        return f"{self.load}: {self.unit or NAMES[self.figure]}"


def _more(bench: str, load: str, compiled: float, python: float, *, scale: float = 1.0, unit: str = "") -> Goal:
    return Goal(bench, load, "rate", compiled, python, more=True, scale=scale, unit=unit)


def _waits(bench: str, load: str) -> list[Goal]:
    return [Goal(bench, load, figure, 1, 1) for figure in ("p50_ms", "p99_ms")]


def _ledgers() -> list[Goal]:
    short, long, striped_short, striped_long = (load.name for load in ledger_plan.ADDS)
    sequential, striped = (load.name for load in ledger_plan.READS)
    goals = [
        Goal(LEDGER, short, "total_us", 1 / 7, 0.48),  # pure Python: what it was when the goals were set
        Goal(LEDGER, long, "total_us", 1 / 5, 0.46),
        _more(LEDGER, short, 6, 2.5),
        _more(LEDGER, long, 4, 2),
        _more(LEDGER, striped_short, 3.5, 1.8),
        _more(LEDGER, striped_long, 2.5, 1.4),
        *_waits(LEDGER, ledger_plan.LATENCY.name),
        *_waits(LEDGER, ledger_plan.STEADY.name),
        _more(LEDGER, sequential, 1.5, 0.9),
        _more(LEDGER, striped, 5, 2),
    ]
    others = (ledger_plan.AFTER_WRITE, ledger_plan.RANDOM, ledger_plan.READERS)
    return [*goals, *(_more(LEDGER, load.name, 1.5, 1) for load in others)]


def _brokers() -> list[Goal]:
    goals: list[Goal] = []
    single, many, batches = broker_plan.SENDS
    for mode in (broker_sides.ASYNC, broker_sides.SYNC):
        load = broker_plan.title(many, mode)
        goals += [_more(BROKER, load, 2.5, 1), Goal(BROKER, load, "master_us", 1 / 3, 0.7)]
        goals += [Goal(BROKER, load, "total_us", 1 / 2.5, 0.7)]
        load = broker_plan.title(batches, mode)
        goals += [_more(BROKER, load, 2, 1), Goal(BROKER, load, "total_us", 1 / 2.5, 1)]
        goals += _waits(BROKER, broker_plan.title(single, mode))
    for lack in broker_plan.CATCH_UPS:
        goals.append(_more(BROKER, lack.name, 3, 1.2, scale=lack.size / 1e6, unit="MB/s"))
    for name in (next(iter(broker_plan.PULLS)), broker_plan.PUSH.name):
        goals.append(Goal(BROKER, name, "master_us", 1 / 5, 1 / 3))
    first, *_, last = (load.name for load in broker_plan.CONNECTIONS)
    goals += [Goal(BROKER, load.name, "master_us", 1, 1) for load in broker_plan.CONNECTIONS]
    return [*goals, Goal(BROKER, last, "master_us", 1, 1, beside=first)]


def _starts() -> list[Goal]:
    goals = [Goal(STARTS, load, "p50_ms", 1000, 1000, is_absolute=True, unit="ms") for load in starts.LOADS]
    for bench, role in ((LEDGER, "bookie"), (BROKER, "master")):
        for when, megabytes in (("rest", 60), ("loaded", 150)):
            goals.append(Goal(bench, MEMORY, f"{role}_{when}_mb", megabytes, megabytes, is_absolute=True))
    return goals


def _spark() -> list[Goal]:
    ledger, topic = next(iter(spark.QUORUMS)), next(iter(spark.TOPICS))
    goals = [Goal(SPARK, ledger, "cpu_s_per_gb", 1.8, 3, beside=spark.CEILING)]
    ceilings = (spark.CEILING, spark.TOPIC_CEILING)
    return [*goals, *(Goal(SPARK, topic, "cpu_s_per_gb", 2.5, 6, beside=ceiling) for ceiling in ceilings)]


GOALS = [*_ledgers(), *_brokers(), *_starts(), *_spark()]
