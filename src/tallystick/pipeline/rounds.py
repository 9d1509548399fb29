"""At which of many logs a trigger looks, so that it costs what is new and not how many there are. Pure.

A trigger looks at each log that got something within the last minute, at each that has changed as somebody heard, and
at some of the others in turn: at those that nobody looked at for longest. So a log that is quiet is looked at once in
``ROUND_S``, or by each trigger where triggers are that far apart, or logs that few.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

FEW = 256  # of the quiet ones a trigger looks at so many in any case: some tens of milliseconds
ROUND_S = 5.0
BUSY_S = 60.0  # a log is not quiet for so long after it got something

K = TypeVar("K", bound=Hashable)


class Rounds(Generic[K]):
    """Say what becomes known of each log; ``due`` says at which ones to look now."""

    def __init__(self) -> None:
        self._looked: dict[K, None] = {}  # in the order in which they were looked at
        self._news_at: dict[K, float] = {}  # of those that are busy, in the order of the times
        self._changed: dict[K, None] = {}
        self._ended_at: float | None = None  # the last trigger's looks

    def due(self, now: float) -> set[K]:
        """Returns the logs at which a trigger of this moment looks."""
        # Not from trigger to trigger: where looks take long there would be ever more of them.
        elapsed_s = 0.0 if self._ended_at is None else now - self._ended_at
        self._ended_at = now
        for log in [log for log, at in self._news_at.items() if now > at + BUSY_S]:
            del self._news_at[log]
        in_turn = max(FEW, math.ceil(len(self._looked) * elapsed_s / ROUND_S))
        return {*self._changed, *self._news_at, *islice(self._looked, in_turn)}

    def looked(self, log: K, now: float, *, has_news: bool) -> None:
        """Somebody has looked at a log. ``has_news``: it was not as it had been before."""
        self._ended_at = now
        self._changed.pop(log, None)
        self._looked.pop(log, None)
        self._looked[log] = None
        if has_news:
            self._news_at.pop(log, None)
            self._news_at[log] = now

    def changed(self, log: K) -> None:
        """A log is not as it was, or may not be: the next trigger looks at it."""
        self._changed[log] = None

    def forget(self, log: K) -> None:
        """A log is looked at no more."""
        for each in (self._looked, self._news_at, self._changed):
            each.pop(log, None)
