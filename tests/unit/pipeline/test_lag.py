from __future__ import annotations

from tallystick.pipeline.lag import SAMPLES, Lag, age_s, mean, most_behind


def test_what_is_shown() -> None:
    assert Lag().to_json() == {"rows": 0, "bytes": 0, "seconds": 0.0}
    assert Lag(3, 40, None).to_json() == {"rows": 3, "bytes": 40}


def test_the_oldest_tells_the_age_and_a_clock_that_is_ahead_none() -> None:
    assert age_s([5_000, 4_000], 6_500) == 2.5
    assert age_s([7_000], 6_500) == 0.0
    assert age_s([], 6_500) is None


def test_those_that_have_the_most_left_are_asked() -> None:
    assert most_behind({"a": 1, "b": 3, "c": 2}) == ["b", "c", "a"]
    assert len(most_behind(dict.fromkeys(range(1000), 1))) == SAMPLES
    assert (mean([]), mean([1, 2]), mean([0])) == (1, 2, 1)
