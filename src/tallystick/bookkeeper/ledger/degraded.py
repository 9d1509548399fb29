"""When a writer that lacks bookies tries again, and when it has waited long enough.

A degraded ledger (see ``add.py``) goes on while its entries reach their ack quorum; where they cannot, they wait. A
missing bookie is tried again at growing intervals, and at once when the registered bookies change. One that answers and
fails again soon is tried no faster than before: its interval is forgotten only after a while in which nobody missed it.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.bookkeeper.wire.values import BookieId

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 5.0
FORGET_S = 60.0


class QuorumLoss:
    """For how long the oldest entry of a writer could not reach its ack quorum."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None

    def observed(self, starved: bool, now: float) -> None:
        """Call after each event of the writer's core; ``starved`` as the core says."""
        if not starved:
            self._since = None
        elif self._since is None:
            self._since = now

    def wake_at(self) -> float | None:
        """When it will have lasted too long; None while the quorum can be met."""
        return None if self._since is None else self._since + self._limit_s

    def over(self, now: float) -> bool:
        """Whether it has lasted too long."""
        at = self.wake_at()
        return at is not None and at <= now


class Retries:
    """When each missing bookie of a client is due to be tried again. One place for all writers of the client."""

    def __init__(self) -> None:
        self._due: dict[BookieId, float] = {}
        self._pauses: dict[BookieId, float] = {}

    def missed(self, bookie: BookieId, now: float) -> None:
        """A writer lacks this bookie."""
        if self._due.get(bookie, 0.0) + FORGET_S < now:
            self._pauses.pop(bookie, None)
        if self._due.get(bookie, 0.0) <= now:
            self._due[bookie] = now + self._pauses.setdefault(bookie, FIRST_RETRY_S)

    def changed(self, now: float) -> None:
        """The registered bookies changed: each may be back."""
        self._due = dict.fromkeys(self._due, now)

    def due(self, missing: Collection[BookieId], now: float) -> list[BookieId]:
        """Those of the missing that are to be tried now; the next try of each is set."""
        tried = [bookie for bookie in missing if self._due.get(bookie, now) <= now]
        for bookie in tried:
            pause = self._pauses.get(bookie, FIRST_RETRY_S)
            self._pauses[bookie] = min(2 * pause, MAX_RETRY_S)
            self._due[bookie] = now + self._pauses[bookie]
        return tried

    def wake_at(self, missing: Collection[BookieId]) -> float | None:
        """When the next of the missing is due; None when none is missing."""
        return min((self._due.get(bookie, 0.0) for bookie in missing), default=None)
