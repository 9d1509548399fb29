"""What happens in one life of a simulated stream that sinks write, drawn from its seed.

The cluster, its faults, the readers and cursors are those of ``streams_plan``; here are the applications. In a few
lives an owner takes the stream now and then, and they take it back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tallystick.sim.streams_plan import OwnerPlan, Rich, StreamsPlan

MOST_ENTRIES = 1_000  # of a ledger: more than any has
OWNED = 0.15  # of the lives


@dataclass(frozen=True)
class ApplicationPlan:
    """One application. What follows ``drivers`` are probabilities of each of its steps."""

    name: str
    begins: tuple[float, ...]  # seconds after the begin, of each driver
    partitions: int  # of a batch, at most
    rows: int  # of a partition, at most
    pause_s: float  # between steps, at most
    doubles: float  # a part is written twice at once
    loses_checkpoint: float  # a start has another query
    repeats: float  # a batch that is stored is committed again
    abandons: float  # a commit is given up while it is under way, and another run begins
    restarts: float  # another run begins after a batch
    zombies: float  # a run that is over commits
    sweeps: float
    trims: float


@dataclass(frozen=True)
class SinksPlan(StreamsPlan):
    """One life."""

    applications: tuple[ApplicationPlan, ...]
    is_made: bool  # the stream is there before; else two who make it at once may condemn what a sink notes in it
    executors: int
    sweepers: int

    @classmethod
    def draw(cls, rng: random.Random, rich: Rich) -> SinksPlan:
        plan = StreamsPlan.draw(rng, rich)
        is_owned = rng.random() < OWNED
        plan = replace(
            plan,
            owners=tuple(_owner(owner, plan.storm_s) for owner in plan.owners[:1]) if is_owned else (),
            cursors=tuple(replace(cursor, time_seeks=0.0) for cursor in plan.cursors[:1]),
            max_entries=MOST_ENTRIES,
            terminated_at=None,
            deletions=(),
            storm_s=min(plan.storm_s, 12.0),
            chaos=tuple(strike for strike in plan.chaos if strike[0] < 12.0),
        )
        applications = tuple(_application(rng, f"app{number}", plan.storm_s) for number in range(rng.choice((1, 2, 2))))
        return cls(
            **vars(plan),
            applications=applications,
            is_made=rng.random() < 0.7,
            executors=rng.choice((1, 2, 3)),
            sweepers=rng.choice((0, 1)),
        )


def _owner(plan: OwnerPlan, storm_s: float) -> OwnerPlan:
    return replace(plan, begins=storm_s / 3, takes_over=0.3, hands_over=0.3, numbers=0.0, burst=3)


def _application(rng: random.Random, name: str, storm_s: float) -> ApplicationPlan:
    return ApplicationPlan(
        name=name,
        begins=tuple(rng.random() * storm_s / 3 for _ in range(rng.choice((1, 1, 2)))),
        partitions=rng.choice((1, 2, 3)),
        rows=rng.choice((1, 2, 5)),
        pause_s=rng.choice((0.0, 0.05, 0.3)),
        doubles=rng.choice((0.0, 0.3)),
        loses_checkpoint=rng.choice((0.0, 0.1)),
        repeats=rng.choice((0.0, 0.2)),
        abandons=rng.choice((0.0, 0.1, 0.3)),
        restarts=rng.choice((0.0, 0.05, 0.2)),
        zombies=rng.choice((0.0, 0.3)),
        sweeps=rng.choice((0.0, 0.3)),
        trims=rng.choice((0.0, 0.3)),
    )
