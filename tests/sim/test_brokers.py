"""Whole brokers and their clients in the simulator: a slice of fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from support.repeats import fingerprints
from tallystick.sim import brokers, series
from tallystick.sim.brokers_plan import BrokersPlan


@pytest.mark.rule("H3", "H6", "H8", "H9", "H11", "H13")
def test_promises_hold_in_fresh_schedules() -> None:
    first = random.randrange(1 << 32)
    print(f"seeds from {first}; one again: tally sim replay SEED --kind brokers")
    summary = series.run_many(brokers.run, range(first, first + 30))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.lives == 30
    assert summary.promise_count > 200, "the schedules acknowledge too little to prove anything"


@pytest.mark.parametrize(
    "seed",
    [
        2044016775,  # power loss took the oldest unsynced file of a master, not its newest: a slave's log ended before
        3068038693,  # a slave's log ended in the middle of a message that its master lost,
        3068038522,  # and so did another one's before its master came back empty
        2318375867,  # a disk that stopped in an operation could not be looked at any more, and its machine half died
        877874148,  # an empty slave of a master whose newest file is full has nothing to copy
        877874270,  # a message was given back by one member when another's commit of it was under way from a slave
    ],
)
def test_promises_hold_where_they_were_once_broken(seed: int) -> None:
    assert brokers.run(seed).violation is None


def test_slaves_whose_logs_do_not_fit_begin_anew() -> None:
    """In a tenth of the lives or so an operator must give a slave an empty directory."""
    traces = (brokers.run(seed, keep_trace=True).trace for seed in range(100))
    assert any("slave begins anew" in line for trace in traces for line in trace)


@pytest.mark.rule("H8", "H9", "H12")
def test_promises_hold_where_a_slave_takes_over_while_it_runs() -> None:
    """Nothing that was acknowledged is lost or there twice, and nobody is told of a copy that is not there."""
    first, taken = random.randrange(1 << 32), list[int]()

    def promoted(seed: int) -> series.Outcome:
        rng = random.Random(seed)
        plan = BrokersPlan.draw(rng)
        plan = replace(plan, turn="promote", slave_syncs=plan.slave_syncs or (True,))
        outcome = brokers.run_plan(seed, rng, plan, keep_trace=True)
        taken.extend([seed] * any("takes over" in line for line in outcome.trace))
        return outcome

    summary = series.run_many(promoted, range(first, first + 24))
    assert not summary.failures, [(outcome.seed, outcome.violation) for outcome in summary.failures]
    assert len(taken) > 3, "too few did to prove anything"


@pytest.mark.parametrize("what", brokers.BUDGETS)
def test_a_budget_that_is_passed_ends_a_life(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(brokers.BUDGETS, what, 1)
    assert f"B10: {what}" in (brokers.run(1).violation or "")


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("brokers", 8)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 8, "different seeds give different runs"


def test_a_kept_trace_changes_nothing() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    kept = brokers.run(seed, keep_trace=True)
    assert kept.fingerprint == brokers.run(seed).fingerprint
    assert any("registered with a name server" in line for line in kept.trace)
