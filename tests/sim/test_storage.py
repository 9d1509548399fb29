"""A bookie's storage over the simulated disk: a slice of fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random

import pytest

from tallystick.sim import storage


@pytest.mark.rule("P1", "P6", "Q11", "Q15")
def test_promises_hold_through_crashes() -> None:
    first = random.randrange(1 << 32)
    print(f"seeds from {first}; one again: tally sim replay SEED --kind storage")
    outcomes = [storage.run(seed) for seed in range(first, first + 250)]
    assert [outcome for outcome in outcomes if outcome.violation] == []
    assert sum(outcome.promise_count for outcome in outcomes) > 10_000, "too little was promised to prove anything"
    assert sum(outcome.crashes for outcome in outcomes) > 300


# Seeds that once failed, each with the bug it found.
FOUND = {
    1: "an entry overwritten late hid a newer run of adds",
    15: "a ledger made anew got entries of the deleted one that had its id, out of the journal",
    26: "the newest journal segment was given up before older ones",
    58: "a commit whose sync had failed was believed after a restart and then lost",
    4024886387: "the judge took what a collection wrote before its last sync failed for impossible",
}


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_a_seed_that_once_failed(seed: int) -> None:
    assert storage.run(seed).violation is None


def test_a_seed_gives_the_same_run() -> None:
    assert [storage.run(seed) for seed in range(20)] == [storage.run(seed) for seed in range(20)]


def test_commits_that_a_start_read_from_the_page_cache_are_durable_before_the_state_counts_them() -> None:
    """The newest was at the mark: it was not written again, and the next loss of power took it."""
    assert storage.run(3935272221).violation is None
