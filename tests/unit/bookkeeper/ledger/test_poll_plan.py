"""Which bookies are asked to say when a LAC moves."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.ledger.poll_plan import FIRST_PAUSE_S, MAX_PAUSE_S, SPECULATIVE_S, PollPlanCore
from tallystick.bookkeeper.ledger.striping import Striping


@pytest.mark.parametrize(("size", "quorum", "least"), [(3, 3, 1), (3, 2, 2), (5, 3, 3), (4, 1, 4), (1, 1, 1)])
def test_those_that_are_asked_meet_every_write_set(size: int, quorum: int, least: int) -> None:
    for slot in range(size):
        plan = PollPlanCore(Striping(size, quorum, 1), slot, 0.0)
        asked = plan.take_due(0.0)
        assert asked == [(slot + i) % size for i in range(least)]
        assert not plan.must_ask(0.0) and plan.take_due(0.0) == []


def test_the_others_are_asked_one_after_another_while_nothing_comes() -> None:
    plan = PollPlanCore(Striping(3, 3, 2), 1, 10.0)
    assert plan.take_due(10.0) == [1]
    assert plan.wake_at(10.0) == 10.0 + SPECULATIVE_S
    assert plan.take_due(10.0 + SPECULATIVE_S) == [2]
    assert plan.take_due(10.0 + 9 * SPECULATIVE_S) == [0]
    assert plan.wake_at(20.0) is None
    plan.moved(2, 20.0)  # those that still wait are good for what comes next
    assert plan.take_due(20.0) == []
    plan.moved(1, 20.0)
    plan.moved(0, 20.0)
    assert plan.take_due(20.0) == [1]


def test_who_has_waited_is_asked_again_at_once_and_who_failed_after_a_growing_pause() -> None:
    plan = PollPlanCore(Striping(2, 2, 2), 0, 0.0)
    assert plan.take_due(0.0) == [0]
    plan.waited(0)
    assert plan.take_due(0.0) == [0]
    plan.failed(0, 0.0)
    assert plan.take_due(0.0) == [1]  # another one in its place
    assert not plan.must_ask(0.0) and plan.wake_at(0.0) == FIRST_PAUSE_S
    plan.failed(1, 0.0)
    assert plan.take_due(FIRST_PAUSE_S / 2) == []
    now, pause_s = FIRST_PAUSE_S, FIRST_PAUSE_S
    for _ in range(10):
        plan.moved(None, now)  # else both would be asked
        assert plan.take_due(now) == [0]
        plan.failed(0, now)
        assert plan.take_due(now) == [1]
        plan.failed(1, now)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)
        assert plan.take_due(now + 0.9 * pause_s) == []
        now += pause_s


def test_the_lac_is_asked_for_where_a_write_set_has_nobody_who_waits() -> None:
    plan = PollPlanCore(Striping(3, 2, 2), 0, 0.0)
    assert plan.take_due(0.0) == [0, 1]
    plan.failed(1, 0.0)
    assert plan.take_due(0.0) == [2] and not plan.must_ask(0.0)
    plan.failed(0, 0.0)
    assert not plan.must_ask(0.0)
    assert plan.wake_at(0.0) == FIRST_PAUSE_S
    assert plan.must_ask(FIRST_PAUSE_S)
    assert not plan.must_ask(FIRST_PAUSE_S)
    assert not plan.must_ask(2 * FIRST_PAUSE_S)
    assert plan.must_ask(3 * FIRST_PAUSE_S + 1e-9)  # more and more seldom
    plan.take_due(1.0)
    assert not plan.must_ask(1.0)


def test_who_told_of_a_move_waits_for_no_long_pause_when_it_fails_again() -> None:
    plan = PollPlanCore(Striping(1, 1, 1), 0, 0.0)
    for now in (1.0, 2.0, 3.0):
        assert plan.take_due(now) == [0]
        plan.failed(0, now)
    assert plan.take_due(4.0) == [0]
    plan.moved(0, 4.0)
    assert plan.take_due(4.0) == [0]
    plan.failed(0, 4.0)
    assert plan.take_due(4.0 + FIRST_PAUSE_S) == [0]


def test_no_time_to_ask_is_left_once_each_write_set_has_somebody_who_waits() -> None:
    plan = PollPlanCore(Striping(1, 1, 1), 0, 0.0)
    assert plan.take_due(0.0) == [0]
    plan.failed(0, 0.0)
    assert not plan.must_ask(0.0) and plan.wake_at(0.0) == FIRST_PAUSE_S
    assert plan.take_due(FIRST_PAUSE_S) == [0] and not plan.must_ask(FIRST_PAUSE_S)
    assert plan.wake_at(1.0) is None, "a time that is over is no time to wake at"
    plan.failed(0, 1.0)
    assert not plan.must_ask(1.0), "that, too, is asked for after a pause"
