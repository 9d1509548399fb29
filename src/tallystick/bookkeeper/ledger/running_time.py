"""Seconds in which the event loop ran, by which time-outs of responses count.

A loop that stood still (a long callback, a process that was stopped) has read no responses meanwhile. They may lie in
the socket, and their bookies must not be taken for silent. So timers beat at least every ``BEAT_S``, and of the time
that a beat comes late only ``SLACK_S`` counts. A loop that is always late counts time more slowly, but it does count.
"""

from __future__ import annotations

from tallystick.runtime.clock import Clock

BEAT_S = 0.25
SLACK_S = 0.1


class RunningTime:
    """A clock that stands still with the loop. Call ``beat`` when a timer fires that was set for at most ``BEAT_S``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stood_still_s = 0.0

    def now(self) -> float:
        return self._clock.now() - self._stood_still_s

    def beat(self, planned: float) -> None:
        """A timer fired that was set for ``planned``."""
        late_s = self.now() - planned
        if late_s > SLACK_S:
            self._stood_still_s += late_s - SLACK_S
