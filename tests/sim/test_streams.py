"""Whole streams in the simulator: owners, readers, consumers, bookies; fresh seeds, and those that once failed."""

from __future__ import annotations

import random

import pytest

from support.fresh_seeds import fresh_seeds
from support.repeats import fingerprints
from tallystick.sim import series, streams

# Without these the promises prove little; each is in a twentieth of the lives or more.
MET = (
    "stream opened", "stream rolled over", "stream fenced", "stream trimmed", "stream closed", "lease lost", "strikes",
    "session expired", "recovery began", "cursor opened", "delivered follower", "delivered consumer", "failed",
    "trimmed follower", "pulsar.dedup", "stream deleted", "sought", "the ack quorum could not be met",
)  # fmt: skip


@pytest.mark.rule("Q18", "Q19")
def test_promises_hold_in_fresh_schedules() -> None:
    first, met = series.random_start(), set[str]()

    def run(seed: int) -> series.Outcome:
        outcome = streams.run(seed, keep_trace=True)
        met.update(word for word in MET if any(word in line for line in outcome.trace))
        return outcome

    print(f"seeds from {first}; one again: tally sim replay SEED --kind streams")
    summary = series.run_many(run, fresh_seeds(first, 80, met, MET))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.promise_count > 600, "the schedules acknowledge too little to prove anything"
    assert met == set(MET), "the schedules miss what they are for"


# An owner deleted the ledger that the next one had just made; cursors lost their ledger to a change of owner; numbered
# appends were stored twice after a trim, or failed for it; an append hung for ever behind a trim; what a terminated
# stream had dropped stayed; an error of ours came to whoever opened a cursor, or
# appended to a stream that was deleted.
FOUND = (10101, 2458, 10135, 10461, 386, 42, 282, 580, 577536143, 60158)


@pytest.mark.rule("Q18", "Q19")
@pytest.mark.parametrize("seed", FOUND)
def test_promises_hold_where_they_were_once_broken(seed: int) -> None:
    assert streams.run(seed).violation is None


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("streams", 10)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 10, "different seeds give different runs"


def test_a_kept_trace_changes_nothing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    kept = streams.run(seed, keep_trace=True)
    assert kept.fingerprint == streams.run(seed).fingerprint
    assert kept.trace
