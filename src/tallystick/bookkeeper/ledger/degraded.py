"""When a writer that lacks bookies tries again, and when it has waited long enough.

A degraded ledger (see ``add.py``) goes on while its entries reach their ack quorum; where they cannot, they wait. A
missing bookie is tried again at growing intervals, and at once when the registered bookies change. One that answers and
fails again soon is tried no faster than before: its interval is forgotten only after a while in which nobody missed it.
"""

from __future__ import annotations

from collections.abc import Collection

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 5.0
FORGET_S = 60.0


class QuorumLossCore:
    """Measure for how long the oldest entry of a writer has lacked its ack quorum.

    It begins when the quorum cannot be met and ends when an entry is confirmed, not when a missing bookie is tried
    again: one that answers may refuse every entry.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._lac = NO_ENTRY  # when it began

    def observed(self, starved: bool, lac: EntryId, now: float) -> None:
        """Call after each event of the writer's core; ``starved`` as the core says."""
        if lac > self._lac:
            self._since = None
        if starved and self._since is None:
            self._since, self._lac = now, lac

    def wake_at(self) -> float | None:
        """Return when the loss will have lasted too long, None while there is none."""
        return None if self._since is None else self._since + self._limit_s

    def over(self, now: float) -> bool:
        """Return whether the loss has lasted too long."""
        at = self.wake_at()
        return at is not None and at <= now


class FailedBookies:
    """The bookies that failed a writer since an entry of it was confirmed, and what they answered.

    None of them is taken in another one's place, or bookies that refuse every entry would follow each other for ever,
    a write of the metadata each time. A writer that is degraded may take them ``again``, once in each of its tries.
    """

    def __init__(self) -> None:
        self._responses: dict[BookieId, str] = {}
        self._tried_bookies: set[BookieId] = set()

    @property
    def tried_bookies(self) -> Collection[BookieId]:
        """The bookies that are not taken now."""
        return self._tried_bookies

    def failed(self, bookie: BookieId, code: Code | None, reason: str) -> None:
        """A bookie answered an add with ``code``, or (None) not at all, for that ``reason``."""
        self._responses[bookie] = reason if code is None else code.name
        self._tried_bookies.add(bookie)

    def confirmed(self) -> None:
        """An entry has its ack quorum."""
        self._responses.clear()
        self._tried_bookies.clear()

    def again(self) -> None:
        """Let each be tried once more."""
        self._tried_bookies.clear()

    def last_responses(self) -> dict[BookieId, str]:
        """Return what each answered last, or why it did not, for people."""
        return dict(self._responses)


class RetryCore:
    """Decide when each missing bookie is tried again, for all writers of a client."""

    def __init__(self) -> None:
        self._due_at: dict[BookieId, float] = {}
        self._pauses: dict[BookieId, float] = {}

    def missed(self, bookie: BookieId, now: float) -> None:
        """A writer lacks this bookie."""
        if self._due_at.get(bookie, 0.0) + FORGET_S < now:
            self._pauses.pop(bookie, None)
        if self._due_at.get(bookie, 0.0) <= now:
            self._due_at[bookie] = now + self._pauses.setdefault(bookie, FIRST_RETRY_S)

    def changed(self, now: float) -> None:
        """The registered bookies changed: each may be back."""
        self._due_at = dict.fromkeys(self._due_at, now)

    def take_due(self, missing_bookies: Collection[BookieId], now: float) -> list[BookieId]:
        """Take the missing bookies that are to be tried now; the next try of each is set."""
        due_bookies = [bookie for bookie in missing_bookies if self._due_at.get(bookie, now) <= now]
        for bookie in due_bookies:
            pause = self._pauses.get(bookie, FIRST_RETRY_S)
            self._pauses[bookie] = min(2 * pause, MAX_RETRY_S)
            self._due_at[bookie] = now + self._pauses[bookie]
        return due_bookies

    def wake_at(self, missing_bookies: Collection[BookieId]) -> float | None:
        """Return when the next missing bookie is due, None if none is missing."""
        return min((self._due_at.get(bookie, 0.0) for bookie in missing_bookies), default=None)
