from __future__ import annotations

from tallystick.pipeline.topic.fetch import FIRST_WINDOW, LARGEST_WINDOW, Pace


def test_it_doubles_while_brokers_give_all_that_is_asked_for() -> None:
    pace, asked = Pace(), []
    for _ in range(8):
        asked.append(pace.count)
        pace.responded(pace.count, pace.count)
    assert asked == [32, 64, 128, 256, 512, 1024, 1024, 1024] and (FIRST_WINDOW, LARGEST_WINDOW) == (32, 1024)


def test_it_falls_to_what_a_broker_gives_at_once() -> None:
    pace = Pace()
    pace.responded(32, 8)
    assert pace.count == 8


def test_the_short_end_of_a_range_says_nothing() -> None:
    pace = Pace()
    pace.responded(32, 32)
    pace.responded(3, 3)
    assert pace.count == 64
