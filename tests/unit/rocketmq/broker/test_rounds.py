"""When a slave copies: timed rounds, early ones, and what is given up."""

from __future__ import annotations

import random

import pytest

from tallystick.rocketmq.broker.rounds import GAP_S, PERIOD_S, RoundsCore

KNOWN = frozenset({"T"})


def round_of(rounds: RoundsCore, known: frozenset[str] = KNOWN, *, lasts_s: float = 0.0, failed: bool = False) -> float:
    """Let the next round happen when it is due; when that was."""
    due = rounds.wake_at()
    assert due is not None
    rounds.began(due)
    rounds.ended(known, due + lasts_s, failed=failed)
    return due


def settled() -> RoundsCore:
    """A master found at 0, its first round done."""
    rounds = RoundsCore(0.0)
    rounds.master_found("m:1", 0.0)
    assert round_of(rounds) == 0.0
    return rounds


@pytest.mark.rule("H12")
def test_h12_at_once_with_a_master_then_after_3_s_then_every_10() -> None:
    rounds = RoundsCore(100.0)
    assert rounds.wake_at() is None
    rounds.master_found("m:1", 100.5)
    assert [round_of(rounds, lasts_s=0.25) for _ in range(4)] == [100.5, 103.0, 113.25, 123.5]


@pytest.mark.rule("H12")
def test_h12_another_master_is_copied_at_once_and_the_same_one_is_not() -> None:
    rounds = settled()
    assert round_of(rounds) == 3.0
    rounds.master_found("m:1", 5.0)
    assert rounds.wake_at() == 3.0 + PERIOD_S
    rounds.master_found("m:2", 6.0)
    assert [round_of(rounds), round_of(rounds)] == [6.0, 3.0 + PERIOD_S]
    rounds.master_found(None, 14.0)
    assert rounds.wake_at() is None


@pytest.mark.rule("H13")
def test_h13_a_master_that_is_back_is_told_at_once() -> None:
    rounds = settled()
    round_of(rounds)
    rounds.followed(6.0)
    assert [round_of(rounds), round_of(rounds)] == [6.0, 3.0 + PERIOD_S]


@pytest.mark.rule("H3", "H12")
def test_h12_a_record_of_an_unknown_topic_brings_a_round() -> None:
    rounds = settled()
    round_of(rounds)
    assert not rounds.dispatched(["T"], KNOWN, 5.0)
    assert rounds.wake_at() == 13.0
    assert rounds.dispatched(["New", "T"], KNOWN, 5.5)
    assert round_of(rounds, KNOWN | {"New"}) == 5.5
    assert rounds.wake_at() == 13.0


def test_what_is_missing_before_there_is_a_master_waits_for_one() -> None:
    rounds = RoundsCore(0.0)
    assert rounds.dispatched(["New"], KNOWN, 1.0)
    assert rounds.wake_at() is None
    rounds.master_found("m:1", 2.0)
    assert round_of(rounds, KNOWN | {"New"}) == 2.0


def test_early_rounds_are_a_second_apart() -> None:
    rounds = RoundsCore(0.0, first_s=100.0)
    rounds.master_found("m:1", 0.0)
    known = KNOWN
    for number in range(5):
        rounds.dispatched([f"T{number}"], known, 0.1 * number)
    begun = []
    for number in range(5):
        begun.append(round_of(rounds, known := known | {f"T{number}"}))
        rounds.dispatched([f"U{number}"], known, begun[-1] + 0.3)
    assert begun == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_what_came_up_during_a_round_gets_the_next_one() -> None:
    """The table was perhaps read before the topic was made."""
    rounds = settled()
    rounds.dispatched(["A"], KNOWN, 1.0)
    rounds.began(1.0)
    rounds.dispatched(["B"], KNOWN, 1.1)
    rounds.ended(KNOWN | {"A"}, 1.2, failed=False)
    assert round_of(rounds, KNOWN | {"A", "B"}) == 1.0 + GAP_S


def test_what_no_round_brings_is_left_to_the_timed_ones() -> None:
    """Such as the topic of old messages that was deleted; a failed master too."""
    rounds = RoundsCore(0.0, first_s=1000.0)
    rounds.master_found("m:1", 0.0)
    rounds.dispatched(["Deleted"], KNOWN, 0.0)
    assert [round_of(rounds, failed=True) for _ in range(6)] == [0.0, 1.0, 3.0, 7.0, 15.0, 1000.0]
    assert not rounds.dispatched(["Deleted"], KNOWN, 1001.0)
    assert rounds.dispatched(["New"], KNOWN, 1001.0)  # others are wanted all the same
    assert round_of(rounds) == 1001.0
    rounds.master_found("m:2", 1001.5)  # it may have them
    assert round_of(rounds, KNOWN | {"Deleted", "New"}) == 1002.0
    assert rounds.wake_at() == 1000.0 + PERIOD_S


def test_in_any_order_of_events_rounds_keep_their_distance_and_nothing_new_waits_long() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        rounds, now, known, begun = RoundsCore(0.0), 0.0, set(KNOWN), list[float]()
        for number in range(80):
            now += rng.choice((0.0, 0.01, 0.3, 2.0))
            due = rounds.wake_at()
            if due is not None and due <= now:
                rounds.began(now)
                begun.append(now)
                now += rng.random()
                if failed := rng.random() < 0.3:
                    known.add(f"T{number - 1}")
                rounds.ended(known, now, failed=failed)
            elif rng.random() < 0.5:
                rounds.master_found(rng.choice(("m:1", "m:1", "m:2", None)), now)
            else:
                assert rounds.dispatched([f"T{number}"], known, now)
                due = rounds.wake_at()
                assert (due is None) == (rounds.master is None)
                assert due is None or due <= now + GAP_S
        # Of three in a row one is timed, at most: two early ones are a second apart.
        assert all(third - first >= GAP_S for first, third in zip(begun, begun[2:], strict=False)), begun


@pytest.mark.parametrize("another_master", [False, True])
def test_what_is_wanted_during_a_round_is_not_brought_by_it(another_master: bool) -> None:
    rounds = RoundsCore(0.0, first_s=600.0, period_s=600.0)
    rounds.master_found("m", 0.0)
    rounds.began(0.1)
    if another_master:
        rounds.master_found("other", 0.5)
    else:
        rounds.followed(0.5)
    rounds.ended((), 1.0, failed=False)
    assert rounds.wake_at() == 0.1 + GAP_S
    rounds.began(1.1)
    rounds.ended((), 1.2, failed=False)
    assert rounds.wake_at() == 600.0
