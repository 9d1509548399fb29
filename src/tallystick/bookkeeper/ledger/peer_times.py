"""Bookies whose adds take much longer than those of their peers: new ledgers go elsewhere for a while (Q4).

A time counts against a bookie only beside its peers': where all are slow, the network or this client is. At most a
third of the bookies is slow at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from tallystick.bookkeeper.wire.values import BookieId
from tallystick.runtime.clock import Clock

EVERY_S = 10.0  # between two judgements
LEAST_TIMES = 20  # of a bookie, to be judged by them
MOST_TIMES = 256  # kept of a bookie
MANY = 5.0  # times the median of the others'


@dataclass(frozen=True)
class SlowBookie:
    """A bookie and the median time of its adds, and that of the other bookies' medians."""

    bookie: BookieId
    seconds: float
    peers_seconds: float


def slow_bookies(times: Mapping[BookieId, list[float]], least_s: float) -> list[SlowBookie]:
    """Return the bookies whose adds took longer than ``least_s``, and ``MANY`` times as long as the others'; the
    slowest first, and a third of those that can be judged at most."""
    medians = {bookie: median(each) for bookie, each in times.items() if len(each) >= LEAST_TIMES}
    slow = []
    for bookie, seconds in sorted(medians.items(), key=lambda pair: -pair[1])[: len(medians) // 3]:
        peers_seconds = median(other for name, other in medians.items() if name != bookie)
        if seconds > least_s and seconds > MANY * peers_seconds:
            slow.append(SlowBookie(bookie, seconds, peers_seconds))
    return slow


class PeerTimes:
    """The times of one client's adds, a sample of them for each bookie."""

    def __init__(self, clock: Clock, least_s: float) -> None:
        self.now, self._least_s = clock.now, least_s
        self._judged_at = clock.now()
        self._times = dict[BookieId, list[float]]()
        self.report: Callable[[SlowBookie], None] = _nobody

    def took(self, bookie: BookieId, since: float) -> None:
        """An add that was sent at ``since`` has its response."""
        now, times = self.now(), self._times.setdefault(bookie, [])
        if len(times) < MOST_TIMES:
            times.append(now - since)
        if now >= self._judged_at + EVERY_S:
            for slow in slow_bookies(self._times, self._least_s):
                self.report(slow)
            self._times, self._judged_at = {}, now


def _nobody(slow: SlowBookie) -> None:
    """Hear of a slow bookie where nobody else does."""
