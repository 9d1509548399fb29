"""The shell of ``AddTimesCore``: it counts what was confirmed, and tells when an entry lacks its quorum for too long.

The limit is off unless the settings have one (the original's ``addEntryQuorumTimeoutSec``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.bookkeeper.ledger.add_times import AddTimesCore
from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.bookkeeper.ledger.running_time import BEAT_S, SLACK_S
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.runtime.clock import Clock


class AddTiming:
    """The times of one session. ``over`` is called once, if at all. Call ``end`` at the end."""

    __slots__ = ("_clock", "_core", "_counts", "_is_late", "_limit_s", "_over", "_timer", "_wakes_at")

    def __init__(
        self, lac: EntryId, clock: Clock, counts: ClientCounts, limit_s: float, over: Callable[[], None]
    ) -> None:
        """``limit_s``: how long an entry may lack its ack quorum, 0 for ever."""
        self._core, self._clock, self._counts = AddTimesCore(lac), clock, counts
        self._limit_s, self._over = limit_s, over
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._is_late = False

    def sent(self, last: EntryId) -> None:
        """The entries up to ``last`` leave."""
        now = self._clock.now()
        self._core.sent(last, now)
        if self._limit_s and self._timer is None:
            self._wake_at(now + self._limit_s)

    def confirmed(self, lac: EntryId, entries: int, size: int) -> None:
        """``entries`` more, of ``size`` bytes, are confirmed, up to ``lac``."""
        self._counts.adds += entries
        self._counts.add_bytes += size
        for count, seconds in self._core.confirmed(lac, self._clock.now()):
            self._counts.add_latencies.took(seconds, count)

    def end(self) -> None:
        """Nothing more is waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limit_s = 0.0

    def _wake_at(self, moment: float) -> None:
        self._wakes_at = moment
        delay_s = max(moment - self._clock.now(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        oldest_at, now = self._core.oldest_at, self._clock.now()
        if oldest_at is None:
            return
        if oldest_at + self._limit_s > now:
            self._is_late = False
            self._wake_at(oldest_at + self._limit_s)
        elif now - self._wakes_at > SLACK_S and not self._is_late:
            self._is_late = True  # the loop stood still: responses may lie in the sockets
            self._wake_at(now + BEAT_S)
        else:
            self._over()
