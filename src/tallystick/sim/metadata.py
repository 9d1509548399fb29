"""One simulated life of brokers whose tables change all the time, and whose master is often away (H3, H12, H13).

As lives of ``brokers``: few messages, flushed late, but an operator who makes, changes and deletes topics and groups,
and sets groups elsewhere, a consumer that commits at the master or at a slave and at times goes back, and strangers:
other brokers that answer at the master's address. The promises are those of all brokers; see ``brokers_tables``.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tallystick.sim.brokers import run_plan
from tallystick.sim.brokers_plan import CHAOS, TURNS, BrokersPlan, ProducerPlan, TablesPlan
from tallystick.sim.series import Outcome

STORM_S = 30.0
LONGEST_S = 12.0
AWAY = ("kill", "power loss", "crash in an operation", "stranger")


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    return run_plan(seed, rng, draw(rng), keep_trace=keep_trace)


def draw(rng: random.Random) -> BrokersPlan:
    """Return a plan with the links and disks of any life of brokers."""
    plan = BrokersPlan.draw(rng)
    kinds = [*rng.sample(AWAY, rng.randint(1, len(AWAY))), *rng.sample(CHAOS, rng.choice((0, 0, 2)))]
    groups = plan.groups[: rng.choice((0, 0, 1))]
    return replace(
        plan,
        slave_syncs=plan.slave_syncs or (rng.random() < 0.5,),
        producers=tuple(
            ProducerPlan(topic, rng.choice((10, 40)), 20, 0.0, rng.choice((0.5, 2.0)), 0.2) for topic in ("A", "B")
        ),
        groups=groups,
        turn=rng.choice(TURNS if groups else ("", "", "promote", "empty master")),
        deletions=(),
        chaos=tuple(sorted((rng.random() * STORM_S, rng.choice(kinds)) for _ in range(rng.choice((0, 3, 8))))),
        storm_s=STORM_S,
        flush_ms=rng.choice((500, 8000)),  # so that a loss of power takes what was consumed
        tables=TablesPlan(steps=90, pause_s=2 * STORM_S / 90),
        longest_s=LONGEST_S,
    )
