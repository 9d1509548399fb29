from __future__ import annotations

from tallystick.rocketmq.ha.status import Ages, Speed


def test_speed_is_that_of_the_last_full_second() -> None:
    speed = Speed()
    speed.count(3, 10.1)
    speed.count(4, 10.9)
    assert speed.per_second(10.95) == 0
    assert speed.per_second(11.0) == 7
    speed.count(1, 11.5)
    assert speed.per_second(12.0) == 1
    assert speed.per_second(14.0) == 0


def test_how_long_ago_the_first_missing_byte_was_appended() -> None:
    ages = Ages(100, 0.0)
    ages.appended(200, 10.0)
    ages.appended(300, 20.0)
    assert ages.behind_s(300, 300, 25.0) == 0.0
    assert ages.behind_s(250, 300, 25.0) == 5.0
    assert ages.behind_s(200, 300, 25.0) == 5.0
    assert ages.behind_s(199, 300, 25.0) == 15.0
    assert ages.behind_s(50, 300, 25.0) == 25.0, "at least: it was there at the start"
    assert ages.behind_s(300, 310, 25.0) == 5.0, "since the last mark at most"


def test_a_long_life_keeps_few_marks_and_looks_far_back() -> None:
    ages = Ages(0, 0.0)
    for step in range(1, 40_001):
        ages.appended(step, step / 10)
    assert len(ages._ends) == len(ages._times) <= 4096
    assert 3900.0 <= ages.behind_s(10, 40_000, 4000.0) <= 4000.0
    assert 1480.0 <= ages.behind_s(25_000, 40_000, 4000.0) <= 1520.0
    assert ages.behind_s(39_999, 40_000, 4000.0) < 1.0
