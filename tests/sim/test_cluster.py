"""Whole clients and bookies in the simulator: a slice of fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random

import pytest

from support.repeats import fingerprints
from tallystick.sim import cluster, series


@pytest.mark.rule("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9")
def test_promises_hold_in_fresh_schedules() -> None:
    first = series.random_start()
    print(f"seeds from {first}; one again: tally sim replay --cluster SEED")
    summary = series.run_many(cluster.run, range(first, first + 60))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failed] == []
    assert summary.lives == 60
    assert summary.promised > 300, "the schedules acknowledge too little to prove anything"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("cluster", 15)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 15, "different seeds give different runs"


def test_a_kept_trace_changes_nothing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    kept = cluster.run(seed, keep_trace=True)
    assert kept.fingerprint == cluster.run(seed).fingerprint
    assert kept.trace
    # A writer may be killed before it has made its ledger: not each life has one.
    lines = [line for life in range(5) for line in cluster.run(life, keep_trace=True).trace]
    assert any("ledger created" in line for line in lines)
