"""Who comes in at bookies, name servers and brokers, in the simulator."""

from __future__ import annotations

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import handshakes, series

# Without these the promises prove little.
MET = (
    "let in 10.0.1.", "is served", "sender is served", "liar fails", "wrong", "unknown", "late", "refused 10.0.1.101",
    "not signed so 10.0.1.101", "repeats _whole", "repeats _own", "repeats _mixed", "repeats _changed",
    "overtakes _requests", "impostor b",
    "secrets change", "strikes",
)  # fmt: skip


@pytest.mark.rule("N3", "N5", "N10", "N13")
def test_promises_hold_in_fresh_schedules() -> None:
    first, met = series.random_start(), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = handshakes.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED --kind handshakes")
    summary = series.run_many(run, fresh_seeds(first, 30, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.promise_count > 100, "too few are let in to prove anything"
    assert met == set(MET), "the schedules miss what they are for"


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("handshakes", 4)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 4, "different seeds give different runs"
