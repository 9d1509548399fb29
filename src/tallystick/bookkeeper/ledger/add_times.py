"""When the entries of one writer were sent, so that it is known how long they took, and which waits for too long."""

from __future__ import annotations

from tallystick.bookkeeper.wire.values import EntryId


class AddTimesCore:
    """Keep a time for each run of entries that was sent together and is not confirmed. Time is an argument."""

    __slots__ = ("_before", "_runs")

    def __init__(self, lac: EntryId) -> None:
        self._before = lac  # the last entry before the first run
        self._runs: list[tuple[EntryId, float]] = []  # the last entry of each: there are few at a time

    def sent(self, last: EntryId, now: float) -> None:
        """The entries up to ``last`` leave."""
        self._runs.append((last, now))

    def confirmed(self, lac: EntryId, now: float) -> list[tuple[int, float]]:
        """Return how many entries of each run that is confirmed now took how many seconds."""
        times = []
        while self._runs and self._runs[0][0] <= lac:
            last, sent_at = self._runs.pop(0)
            times.append((last - self._before, now - sent_at))
            self._before = last
        return times

    @property
    def oldest_at(self) -> float | None:
        """When the oldest run that is not confirmed was sent, None if there is none."""
        return self._runs[0][1] if self._runs else None
