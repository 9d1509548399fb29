"""The production cores in the simulator: a slice of seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random

import pytest

from support.repeats import fingerprints
from tallystick.sim import cores, series


@pytest.mark.rule("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9")
def test_promises_hold_in_fresh_schedules() -> None:
    first = series.random_start()
    print(f"seeds from {first}; one again: tally sim replay SEED")
    summary = series.run_many(cores.run, range(first, first + 3_000))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failed] == []
    assert summary.lives == 3_000
    assert summary.promised > 2_000, "the schedules acknowledge too little to prove anything"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("cores", 300)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) > 290, "different seeds give different runs"


def test_a_kept_trace_changes_nothing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    kept = cores.run(seed, keep_trace=True)
    assert kept.fingerprint == cores.run(seed).fingerprint
    assert any("writer Send" in line for line in kept.trace)


@pytest.mark.rule("P7")
@pytest.mark.parametrize("seed", [3709, 13173])
def test_write_backs_do_not_spread_a_lac_that_only_their_recovery_proved(seed: int) -> None:
    """Found by these schedules: a rival took it for committed, and closed the ledger with too few copies."""
    assert cores.run(seed).violation is None
