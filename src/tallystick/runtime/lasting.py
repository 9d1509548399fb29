"""When a trouble that lasts is worth a line of a log: when it begins, and seldom while it lasts."""

from __future__ import annotations

AGAIN_S = 600.0


class LastingTrouble:
    """Call ``is_due`` whenever the trouble is met, and ``ended`` when it is over."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._reported_at: float | None = None  # None: it is over

    def is_due(self, now: float) -> bool:
        """Returns whether to report the trouble now. ``now`` is in seconds, of any clock."""
        if self._reported_at is not None and 0 <= now - self._reported_at < self._again_s:
            return False
        self._reported_at = now
        return True

    def ended(self) -> None:
        self._reported_at = None
