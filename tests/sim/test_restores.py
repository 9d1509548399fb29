"""Metadata that is lost, and put back from a backup, in the simulator: beside writers, repairs and an operator."""

from __future__ import annotations

import random

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import restores, series

# Without these the promises prove little.
MET = (
    "newer ledgers on bookies",
    "open in the backup, and changed since",
    "closed in the backup",
    "in the backup, and deleted since",
    "place moved again",
    "nobody can be asked",
    "collections stand still",
    "collections go on",
    "held to the end",
    "newer ledgers kept",
    "newer ledger given up",
)


@pytest.mark.rule("P1", "P3", "P9")
def test_metadata_that_is_put_back_costs_nothing_and_gives_no_id_twice_in_fresh_schedules() -> None:
    first, met = random.randrange(1 << 32), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = restores.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED --kind restores")
    summary = series.run_many(run, fresh_seeds(first, 8, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert met == set(MET), "the schedules miss what they are for"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("restores", 2)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 2
