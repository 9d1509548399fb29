"""When a client asks again while it gets no response, and what it reports of that: a core.

What is away is away for all requests, those of a thousand queues of one broker, say: they wait for the same moment,
each wait twice as long as the one before, and it is reported once, and again each minute.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 3.0  # the original's pullTimeDelayMillsWhenException
TELL_AGAIN_S = 60.0
MAX_KEYS = 10_000  # then all is forgotten, and told anew: name servers may name any number of brokers


@dataclass(slots=True)
class _Outage:
    pause_s: float
    until: float
    failures: int = 0  # since it was reported last
    is_reported: bool = False


class Outages:
    """The outages of brokers, queues, topics or groups, by key."""

    def __init__(self) -> None:
        self._outages: dict[Hashable, _Outage] = {}
        self._reported_at: dict[
            Hashable, float
        ] = {}  # kept when it is over: what comes and goes is told each minute too

    def failed(self, key: Hashable, now: float) -> int:
        """A request failed. Returns how often requests failed since the last report, this time included; 0 if it is not
        to be reported now."""
        outage = self._put_off(key, now)
        outage.failures += 1
        if now < self._reported_at.get(key, now - TELL_AGAIN_S) + TELL_AGAIN_S:
            return 0
        if len(self._reported_at) >= MAX_KEYS:
            self._outages.clear()
            self._reported_at.clear()
        self._reported_at[key] = now
        failures, outage.failures, outage.is_reported = outage.failures, 0, True
        return failures

    def put_off(self, key: Hashable, now: float) -> None:
        """A request failed, and is reported under another key."""
        self._put_off(key, now)

    def _put_off(self, key: Hashable, now: float) -> _Outage:
        outage = self._outages.get(key)
        if outage is None:
            outage = self._outages[key] = _Outage(FIRST_PAUSE_S, now + FIRST_PAUSE_S)
        elif outage.until <= now:
            outage.pause_s = min(2 * outage.pause_s, MAX_PAUSE_S)
            outage.until = now + outage.pause_s
        return outage

    def pause_s(self, key: Hashable, now: float) -> float:
        """Returns how long to wait before it is asked again; 0 if it did not fail."""
        outage = self._outages.get(key)
        return 0.0 if outage is None else max(outage.until - now, 0.0)

    def ended(self, key: Hashable) -> bool:
        """A request got its response. Returns whether requests had failed and that was reported."""
        outage = self._outages.pop(key, None) if self._outages else None
        return outage is not None and outage.is_reported
