from __future__ import annotations

from tallystick.runtime.lasting import LastingTrouble


def test_a_trouble_is_reported_when_it_begins_and_seldom_while_it_lasts() -> None:
    trouble = LastingTrouble(10.0)
    assert [now for now in range(35) if trouble.is_due(now)] == [0, 10, 20, 30]


def test_one_that_begins_again_is_reported_at_once() -> None:
    trouble = LastingTrouble(10.0)
    assert trouble.is_due(0.0)
    trouble.ended()
    assert trouble.is_due(1.0) and not trouble.is_due(2.0)


def test_a_clock_that_was_set_back_silences_nothing() -> None:
    trouble = LastingTrouble(10.0)
    assert trouble.is_due(1000.0) and trouble.is_due(5.0)
