"""Streams that sinks write, in the simulator: drivers, executors, operators, readers; fresh seeds, and old ones."""

from __future__ import annotations

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import series, sinks

# Without these the promises prove little; each is in a twentieth of the lives or more.
MET = (
    "sink opened", "sink committed", "sink swept", "stream trimmed", "checkpoint lost", "copied", "was_stored=True",
    "StreamFenced", "stream opened", "delivered follower", "delivered consumer", "strikes", "session expired",
)  # fmt: skip


def test_promises_hold_in_fresh_schedules() -> None:
    first, met = series.random_start(), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = sinks.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED --kind sinks")
    summary = series.run_many(run, fresh_seeds(first, 80, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.promise_count > 800, "the schedules commit too little to prove anything"
    assert met == set(MET), "the schedules miss what they are for"


# The ledger of a copy was deleted under it, by an owner that took the stream: nobody looked at what its appends
# failed with.
FOUND = (16,)


@pytest.mark.parametrize("seed", FOUND)
def test_promises_hold_where_they_were_once_broken(seed: int) -> None:
    assert sinks.run(seed).violation is None


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("sinks", 6)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 6, "different seeds give different runs"
