"""Responses to requests that were sent together, in their order and behind a gap."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.lanes import Lane

ADDS = (1, 1)  # opcode and ledger


def test_a_long_lane_does_not_grow() -> None:
    lane: Lane[str] = Lane(ADDS, "owner")
    for first in range(0, 500_000, 1000):
        lane.sent(range(first, first + 1000), 0.0, 1.0)
        assert lane.answered_in_order(list(range(first, first + 1000)))
        assert len(lane) == 0
        assert len(lane._entries) < 10_000


def test_behind_a_lost_answer_runs_are_still_settled_at_once() -> None:
    lane: Lane[str] = Lane(ADDS, "owner")
    lane.sent([0, 1, 2, 3, 4, 5, 6, 7], 0.0, 1.0)
    assert not lane.answered_in_order([1, 2])  # 0 was not answered
    assert lane.answered(1)
    assert lane.answered_in_order([2, 3, 4])
    assert not lane.answered_in_order([2])
    assert lane.answered(0)
    assert not lane.answered(0)
    assert lane.take_all() == [5, 6, 7]
