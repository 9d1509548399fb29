"""Time-outs count while the loop runs."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.running_time import BEAT_S, SLACK_S, RunningTime
from tallystick.runtime.clock import SystemClock


class Clock(SystemClock):
    at = 100.0

    def now(self) -> float:
        return self.at


def test_time_counts_while_the_beats_are_on_time() -> None:
    clock = Clock()
    time = RunningTime(clock)
    start = time.now()
    for _ in range(40):
        planned = time.now() + BEAT_S
        clock.at += BEAT_S + SLACK_S / 2
        time.beat(planned)
    assert time.now() - start == clock.at - 100.0


def test_a_loop_that_stood_still_counts_it_as_one_late_beat() -> None:
    clock = Clock()
    time = RunningTime(clock)
    start = time.now()
    clock.at += 8.5
    time.beat(start + BEAT_S)
    assert abs(time.now() - start - (BEAT_S + SLACK_S)) < 1e-9


def test_a_loop_that_is_always_late_still_counts() -> None:
    clock = Clock()
    time = RunningTime(clock)
    start = time.now()
    for _ in range(100):
        planned = time.now() + BEAT_S
        clock.at += 2.0
        time.beat(planned)
    assert time.now() - start >= 100 * SLACK_S
