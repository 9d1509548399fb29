"""A bookie's storage with several folders and journals over simulated disks that fail, are lost, or come back old."""

from __future__ import annotations

import random

import pytest

from tallystick.sim import storage_folders


@pytest.mark.rule("P1", "P9", "Q11", "Q15")
def test_promises_hold_while_disks_are_lost() -> None:
    first = random.randrange(1 << 32)
    print(f"seeds from {first}; one again: tally sim replay SEED --kind storage-folders")
    outcomes = [storage_folders.run(seed) for seed in range(first, first + 200)]
    assert [outcome for outcome in outcomes if outcome.violation] == []
    assert sum(outcome.promise_count for outcome in outcomes) > 10_000, "too little was promised to prove anything"
    assert sum(outcome.crashes for outcome in outcomes) > 300


def test_what_a_start_answers_by_the_newest_copy_of_the_state_is_in_all_copies() -> None:
    """The folder with the newest copy failed next, and a ledger that was answered as deleted was back."""
    assert storage_folders.run(128).violation is None


def test_a_journal_of_before_a_rejoin_is_refused_however_long_it_is() -> None:
    """The judge believed it by its position alone: that of the new journal had begun anew, and was less."""
    assert storage_folders.run(771000431).violation is None


def test_a_seed_gives_the_same_run() -> None:
    assert [storage_folders.run(seed) for seed in range(20)] == [storage_folders.run(seed) for seed in range(20)]
