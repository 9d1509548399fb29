from __future__ import annotations

from tallystick.codec.steps import Steps, finished


def counting(to: int) -> Steps[int]:
    for _ in range(to):
        yield
    return to


def test_the_outcome_is_what_is_returned() -> None:
    assert finished(counting(0)) == 0
    steps = counting(3)
    next(steps)
    assert finished(steps) == 3
