"""Queues of a master and its slave in random schedules: a slice of fresh seeds, and those that once failed."""

from __future__ import annotations

import random

import pytest

from sim.store_expiries import Expiries
from sim.store_histories import Histories
from sim.store_schedules import Schedule


@pytest.mark.parametrize("runs_on", [False, True])
def test_queues_are_what_the_log_says_through_crashes_losses_deletions_and_promotions(runs_on: bool) -> None:
    first = random.randrange(1 << 32)
    promotions = deletions = losses = 0
    for seed in range(first, first + 150):
        schedule = Schedule(seed, runs_on=runs_on)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        promotions, deletions, losses = (
            promotions + schedule.promotions,
            deletions + schedule.deletions,
            losses + schedule.losses,
        )
    assert min(promotions, deletions, losses) > 30, "too little happened to prove anything"


@pytest.mark.parametrize("runs_on", [False, True])
def test_queues_are_what_the_log_says_where_another_log_comes_than_the_one_that_was_told_of(runs_on: bool) -> None:
    first = random.randrange(1 << 32)
    promotions = cuts = 0
    for seed in range(first, first + 100):
        histories = Histories(seed, runs_on=runs_on)
        try:
            histories.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        promotions, cuts = promotions + histories.promotions, cuts + histories.cuts
    assert min(promotions, cuts) > 20, "too little happened to prove anything"


def test_a_start_that_a_deletion_of_expired_messages_is_interrupted_for_does_no_more_than_any_other() -> None:
    first = random.randrange(1 << 32)
    expiries = interruptions = 0
    for seed in range(first, first + 40):
        schedule = Expiries(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        expiries, interruptions = expiries + schedule.expiries, interruptions + schedule.interruptions
    assert min(expiries, interruptions) > 30, "too little happened to prove anything"


# A deletion told late and a kill; ends that a promotion took over, then queues that are read; a slave that never heard
# of a deletion (two), a kill before it did; a tally-queues that begins as the one before; slaves that lose the end of
# their log, where a topic was made anew, beside files of queues, or all of it.
FOUND = (
    2000542, 7001555, 7001827, 7001608, 9001484, 9002272, 7002174, 180001452, 200000498, 3000141, 3000352, 3000702,
)  # fmt: skip


@pytest.mark.parametrize("seed", [*range(10), *FOUND])
def test_a_seed_gives_a_run_that_holds(seed: int) -> None:
    schedule = Schedule(seed)
    schedule.run()
    assert schedule.number > 0, "nothing was sent that could be lost"


@pytest.mark.parametrize(
    "seed",
    [
        1016,  # of a queue a file of expired messages was lost, and retention took the one that was begun in its place
        1027,  # the file with its first message was lost, and then the end of the log
        2684186825,  # and a new topic of that name had a file of the same name
    ],
)
def test_expiry_holds_where_it_was_once_broken(seed: int) -> None:
    schedule = Expiries(seed)
    schedule.run()
    assert schedule.expiries > 0, "nothing expired"


@pytest.mark.parametrize(
    "seed",
    [
        3878271146,  # it was told before that, and goes on where its log does
        1915088071,  # and behind that, of the new queue: what its master gave out of that is not given out again
    ],
)
def test_a_slave_that_is_killed_at_its_promotion_knows_how_often_a_topic_was_made_anew(seed: int) -> None:
    schedule = Schedule(seed, runs_on=True)
    schedule.run()
    assert schedule.number > 0, "nothing was sent that could be lost"


def test_a_promotion_that_is_killed_in_its_sync_and_loses_power_at_its_start_starts_again() -> None:
    histories = Histories(4060465318, runs_on=True)
    histories.run()
    assert histories.promotions > 0
