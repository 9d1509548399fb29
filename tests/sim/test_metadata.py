"""The tables of brokers in the simulator: fresh seeds, and that a seed is all a run depends on."""

from __future__ import annotations

import random

import pytest

from support.repeats import fingerprints
from tallystick.sim import metadata
from tallystick.sim.series import run_many


@pytest.mark.rule("H3", "H12", "H13")
def test_promises_hold_in_fresh_schedules() -> None:
    first = random.randrange(1 << 32)
    print(f"seeds from {first}; one again: tally sim replay SEED --kind metadata")
    summary = run_many(metadata.run, range(first, first + 30))
    assert [(outcome.seed, outcome.violation) for outcome in summary.failures] == []
    assert summary.promise_count > 600, "too little is promised to prove anything"


def test_an_operator_may_set_a_group_where_it_was_before_its_master_lost_its_log() -> None:
    """The judge took that for an offset that nobody had consumed."""
    assert metadata.run(2281624465).violation is None


@pytest.mark.rule("H12", "H13")
@pytest.mark.parametrize("seed", [3441350299, 2192733947])
def test_what_was_committed_at_a_slave_comes_to_its_own_master(seed: int) -> None:
    """It was told to a master that had lost its log's tail and greeted too late; and it was forgotten, as the disk of
    the master was behind the slave."""
    assert metadata.run(seed).violation is None


def test_what_a_master_took_and_had_not_saved_may_go_with_it() -> None:
    """It took a slave's commit and was killed before the judge looked."""
    assert metadata.run(423345782).violation is None


def test_no_stranger_comes_while_a_slave_would_be_empty_without_power() -> None:
    """Its log began at a file of its master, and nothing of that was synced. It came back empty, and then a slave takes
    the tables of whoever is there."""
    assert metadata.run(1480937243).violation is None


def test_a_deletion_that_is_asked_for_again_is_not_told_before_it_is_saved() -> None:
    """The disk was full at the first time, and at the second one nothing was there to delete."""
    assert metadata.run(1359174615).violation is None


def test_a_slave_copies_a_reset_whose_offset_a_crash_of_its_master_took() -> None:
    assert metadata.run(2848532005).violation is None


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    runs = fingerprints("metadata", 6)
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 6


def test_the_schedules_meet_what_they_should() -> None:
    """Each of these sooner or later."""
    missing = {
        "stranger.1 starts",
        "offsets reset",
        "topic deleted",
        "consumer offset cut",
        "slave begins anew",
        "strikes kill b0",
        "strikes kill b1",
    }
    for seed in range(60):
        trace = "\n".join(metadata.run(seed, keep_trace=True).trace)
        missing = {met for met in missing if met not in trace}
        if not missing:
            break
    assert not missing
