"""At which of many logs a trigger looks."""

from __future__ import annotations

import random

from tallystick.pipeline.rounds import BUSY_S, FEW, ROUND_S, Rounds


def looked_at(rounds: Rounds[int], now: float) -> set[int]:
    """A trigger of this moment, which sees nothing new."""
    due = rounds.due(now)
    for log in due:
        rounds.looked(log, now, has_news=False)
    return due


def quiet(count: int) -> Rounds[int]:
    rounds: Rounds[int] = Rounds()
    for log in range(count):
        rounds.looked(log, 0.0, has_news=False)
    return rounds


def test_each_trigger_looks_at_all_where_they_are_few() -> None:
    rounds = quiet(FEW)
    assert [len(looked_at(rounds, now)) for now in (0.0, 0.001, 1000.0)] == [FEW] * 3


def test_a_quiet_log_is_looked_at_once_a_round_however_many_there_are() -> None:
    seed = random.randrange(1 << 32)
    count, rng, now = 10_000, random.Random(seed), 0.0
    rounds, seen_at = quiet(count), dict.fromkeys(range(10_000), 0.0)
    rounds.due(now)
    for _ in range(400):
        pause_s = rng.choice((0.01, 0.05, 0.5, 3.0))
        now += pause_s
        due = looked_at(rounds, now)
        assert len(due) <= max(FEW, count * pause_s / ROUND_S + 1), f"{seed=}"
        seen_at.update(dict.fromkeys(due, now))
        assert now - min(seen_at.values()) <= ROUND_S + 3.0, f"{seed=}"


def test_each_trigger_looks_at_all_where_triggers_are_far_apart() -> None:
    rounds = quiet(10_000)
    looked_at(rounds, 0.0)
    assert len(looked_at(rounds, ROUND_S)) == 10_000


def test_what_got_something_is_looked_at_by_each_trigger_for_a_while() -> None:
    rounds = quiet(10_000)
    looked_at(rounds, 0.0)
    rounds.looked(9_999, 0.0, has_news=True)
    assert all(9_999 in looked_at(rounds, now / 100) for now in range(100))
    now = BUSY_S - 1.0
    assert 9_999 in looked_at(rounds, now)
    looked_at(rounds, BUSY_S + 0.01)
    assert 9_999 not in looked_at(rounds, BUSY_S + 0.02)


def test_a_log_that_has_changed_is_looked_at_once() -> None:
    rounds = quiet(10_000)
    looked_at(rounds, 0.0)
    rounds.changed(9_000)
    assert 9_000 in looked_at(rounds, 0.01)
    assert 9_000 not in looked_at(rounds, 0.02)


def test_a_log_that_is_left_is_not_looked_at() -> None:
    rounds = quiet(10)
    rounds.looked(3, 0.0, has_news=True)
    rounds.changed(3)
    rounds.forget(3)
    assert looked_at(rounds, 0.0) == set(range(10)) - {3}
