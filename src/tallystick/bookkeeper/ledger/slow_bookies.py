"""Bookies that were slow at a read, or failed it: all reads of a client ask them last for a while (Q17).

The original keeps two lists of them, of failures and of slow answers, and prefers the first; it puts read-only bookies
between and unregistered ones last. Here there is one: who is read-only reads as fast as others, and who is not
registered fails at once.
"""

from __future__ import annotations

from tallystick.bookkeeper.wire.values import BookieId
from tallystick.runtime.clock import Clock

NEVER = -1.0


class SlowBookies:
    """Those of one client, in memory: another client may reach the same bookie well."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._since: dict[BookieId, float] = {}

    def add(self, bookie: BookieId) -> None:
        """Ask a bookie last from now on."""
        if self._seconds:
            self._since[bookie] = self._clock.now()

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._since)

    def since(self, bookie: BookieId) -> float:
        """Return when it was slow or failed last, ``NEVER`` if that is forgotten. Ask in ascending order of this."""
        at = self._since.get(bookie, NEVER)
        if at != NEVER and at + self._seconds <= self._clock.now():
            del self._since[bookie]
            return NEVER
        return at
