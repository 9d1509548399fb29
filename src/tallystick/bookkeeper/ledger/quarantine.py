"""Bookies that failed lately: left out of new ensembles for a while, where enough others remain (Q4, Q7)."""

from __future__ import annotations

from tallystick.bookkeeper.wire.values import BookieId
from tallystick.runtime.clock import Clock


class Quarantine:
    """The quarantine of one client, in memory: another client may reach the same bookie well."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._until: dict[BookieId, float] = {}

    def add(self, bookie: BookieId) -> bool:
        """Put a bookie in for the whole time from now on. Returns True if it was not in."""
        is_new = bookie not in self
        self._until[bookie] = self._clock.now() + self._seconds
        return is_new

    def __contains__(self, bookie: object) -> bool:
        now = self._clock.now()
        return isinstance(bookie, BookieId) and self._until.get(bookie, now) > now
