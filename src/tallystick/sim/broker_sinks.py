"""One simulated life of brokers to which sinks send each message once (B11).

As lives of ``brokers``: but applications send batch after batch, whose tasks die, are repeated and run twice, while
masters lose power, are away, and are replaced by slaves.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tallystick.sim.brokers import run_plan
from tallystick.sim.brokers_plan import CHAOS, BrokersPlan, ProducerPlan, SinkPlan
from tallystick.sim.series import Outcome

STORM_S = 12.0
LONGEST_S = 4.0
AWAY = ("kill", "power loss", "crash in an operation", "reset", "cut off")


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    return run_plan(seed, rng, draw(rng), keep_trace=keep_trace)


def draw(rng: random.Random) -> BrokersPlan:
    """Return a plan with the links and disks of any life of brokers."""
    plan = BrokersPlan.draw(rng)
    kinds = [*rng.sample(AWAY, rng.randint(1, len(AWAY))), *rng.sample(CHAOS, rng.choice((0, 0, 2)))]
    return replace(
        plan,
        producers=(ProducerPlan("A", rng.choice((2, 20)), 100, 0.0, 0.5, 0.2),),
        groups=plan.groups[: rng.choice((0, 0, 1))],
        turn=rng.choice(("", "promote", "promote", "empty master")),
        deletions=(),
        chaos=tuple(sorted((rng.random() * STORM_S, rng.choice(kinds)) for _ in range(rng.choice((0, 3, 8))))),
        storm_s=STORM_S,
        flush_ms=rng.choice((500, 8000)),  # so that a loss of power takes much
        longest_s=LONGEST_S,
        sinks=tuple(_sink(rng) for _ in range(rng.choice((1, 1, 2)))),
    )


def _sink(rng: random.Random) -> SinkPlan:
    return SinkPlan(
        topic="A",
        batches=rng.choice((1, 4, 8)),
        partitions=rng.choice((1, 2, 3)),
        rows=rng.choice((2, 20)),
        largest=rng.choice((0, 20, 200)),
        begins=rng.random() * STORM_S / 4,
        pause_s=rng.choice((0.0, 0.5, 2.0)),
        deaths=rng.choice((0.0, 0.2, 0.5)),
        twins=rng.choice((0.0, 0.2, 0.5)),
    )
