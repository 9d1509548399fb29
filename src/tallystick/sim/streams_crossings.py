"""Things that seldom meet by chance, and are made to meet in a part of the lives of a simulated stream.

What is drawn here is drawn apart, so that lives without a crossing are not moved by more of it. All are short.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tallystick.sim.streams_plan import DEDUP_INTERVAL, CursorPlan, OwnerPlan, StreamsPlan

PART = 0.4  # of all lives
STORM_S = 3.0
NEAR_S = 0.5  # what meets happens within this time

_SECOND = ("kill of a client", "pause of a client", "expiry of a client", "cut from the metadata", "cut of a client")


def crossed(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan of a seed, with a crossing if it is to have one."""
    rng = random.Random(f"crossing {seed}")
    if rng.random() >= PART:
        return plan
    crossing = rng.choice((_failing_ledger, _failing_ledger, _failing_lease, _moving_numbers, _moving_cursors))
    plan = replace(plan, storm_s=STORM_S, terminated_at=None, lookers=0, followers=min(plan.followers, 1))
    return crossing(plan, rng)


def _failing_ledger(plan: StreamsPlan, rng: random.Random) -> StreamsPlan:
    """A bookie that nobody can stand in for fails under many unconfirmed appends; somebody loses the stream meanwhile.

    A ledger ends then with entries that are stored, or not, and nobody was told of: they belong into the next one.
    """
    plan = replace(
        plan,
        bookies=plan.shape[0],
        owners=tuple(_pours(owner, rng) for owner in _two(plan, rng)),
        cursors=plan.cursors[:1],
        no_quorum_s=rng.choice((0.05, 0.3)),
        max_entries=rng.choice((10, 100, 100)),
        max_age_s=1000.0,
        deletions=(),
    )
    return _struck(plan, rng, ("kill", "stop", "pause", "cut off", "reset", "power loss"), rng.choice((0.0, 0.2, 1.0)))


def _failing_lease(plan: StreamsPlan, rng: random.Random) -> StreamsPlan:
    """The owner's session ends, or the owner sleeps, again and again, while another one waits for the stream."""
    plan = replace(
        plan,
        owners=tuple(_pours(owner, rng) for owner in _two(plan, rng)),
        cursors=plan.cursors[:1],
        lease_s=0.5,
        deletions=rng.choice(((), (0.4 * STORM_S, 0.8 * STORM_S))),
    )
    return _struck(plan, rng, ("expiry of a client", "pause of a client", "cut from the metadata"), 1.0)


def _moving_numbers(plan: StreamsPlan, rng: random.Random) -> StreamsPlan:
    """Numbered appends are repeated after changes of owner, over many ledgers of which the oldest are trimmed.

    The numbers are saved so often that saves meet all of that.
    """
    owners = tuple(
        replace(
            owner, numbers=1.0, repeats=0.5, rolls=0.3, trims=0.5, hands_over=0.2, batches=0.0, burst=3, pause_s=0.05
        )
        for owner in _two(plan, rng)
    )
    plan = replace(
        plan,
        entry_format="pulsar",
        owners=owners,
        cursors=(),
        max_entries=rng.choice((1, 2, 3)),
        retention_s=rng.choice((-1.0, 0.0, 0.0)),
        deletions=(),
    )
    plan = _struck(plan, rng, ("kill of a client", "expiry of a client", "cut from the metadata"), 0.5)
    hands_over = rng.choice((0.0, 0.0, 0.2))  # who hands over saves its numbers
    owners = tuple(replace(owner, hands_over=hands_over) for owner in plan.owners)
    return replace(plan, owners=owners, dedup_interval=rng.choice((DEDUP_INTERVAL, 1, 2, 5)))


def _moving_cursors(plan: StreamsPlan, rng: random.Random) -> StreamsPlan:
    """Two take a cursor from each other, whose ledgers are short, while many acknowledgements are under way."""
    cursor = CursorPlan(
        name="c0",
        begins=0.0,
        consumers=2,
        most=rng.choice((5, 100)),
        singles=1.0,
        forgets=rng.choice((0.0, 0.1)),
        pause_s=rng.choice((0.0, 0.05)),
        seeks=rng.choice((0.0, 0.2)),
        time_seeks=0.0,
        takes_over=1.0,
        leaves=rng.choice((0.02, 0.3)),
        deletes=0.0,
        lag_s=rng.choice((0.0, 0.05, 0.2)),
    )
    plan = replace(
        plan,
        owners=tuple(replace(owner, burst=3, pause_s=0.05) for owner in plan.owners[:1]),
        cursors=(cursor,),
        max_cursor_entries=rng.choice((2, 5, 20)),
        deletions=(),
    )
    return _struck(plan, rng, ("kill", "kill of a client", "kill of a client", "cut from the metadata"), 0.5)


def _two(plan: StreamsPlan, rng: random.Random) -> tuple[OwnerPlan, OwnerPlan]:
    first, second = (
        replace(owner, begins=rng.random() * 0.3, takes_over=rng.choice((0.0, 0.1, 1.0)))
        for owner in (plan.owners[0], plan.owners[-1])
    )
    return first, second


def _pours(owner: OwnerPlan, rng: random.Random) -> OwnerPlan:
    return replace(owner, burst=10, pause_s=rng.choice((0.0, 0.05)), waits=0.0, rolls=rng.choice((0.0, 0.05)))


def _struck(plan: StreamsPlan, rng: random.Random, first: tuple[str, ...], also: float) -> StreamsPlan:
    """Returns the plan with some faults, and another one near each of them as often as this."""
    chaos = []
    for _ in range(rng.choice((2, 4, 8))):
        at = rng.random() * (STORM_S - NEAR_S)
        chaos.append((at, rng.choice(first)))
        if rng.random() < also:
            chaos.append((at + rng.random() * NEAR_S, rng.choice(_SECOND)))
    return replace(plan, chaos=tuple(sorted(chaos)))
