"""Auditors and replicators in the simulator, beside writers, recoveries and bookies that die."""

from __future__ import annotations

import random

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import repairs, series

# Without these the promises prove little.
MET = (
    "place moved",
    "ledgers marked",
    "ledger repaired",
    "lost for good",
    "bookie back",
    "successor",
    "copies dropped",
)


@pytest.mark.rule("P1", "P3", "P7", "P9")
def test_what_a_lost_bookie_had_is_made_good_in_fresh_schedules() -> None:
    first, met = random.randrange(1 << 32), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = repairs.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED --kind repairs")
    summary = series.run_many(run, fresh_seeds(first, 30, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert met == set(MET), "the schedules miss what they are for"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("repairs", 4)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 4
