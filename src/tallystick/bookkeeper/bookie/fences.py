"""Which fencing reads a bookie accepts (Q11), and how many fences of ledgers without an entry here it keeps.

Recovery fences every bookie of an ensemble, also one that has no entry of the ledger yet. Such a fence is kept, across
restarts, until the metadata is proven to lack the ledger (``garbage.py``): one that is forgotten lets the old writer go
on. But whoever reaches the port can invent ids. So beyond ``most`` of them a ledger of which nothing is known here is
looked up first, and fenced when the metadata has it. Else, and when nobody can look, the answer is "too many requests":
every client takes it for "unknown", never for a "no" (Q15). (The original has no bound.)
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerId


class Fences:
    """``fence`` ledgers; those for which ``must_look`` is True only after a look at the metadata."""

    def __init__(
        self,
        storage: Storage,
        counts: Counts,
        recent: RecentAdds,
        most: int,
        *,
        looks: Callable[[int], bool],
        tell: Callable[[], None],
    ) -> None:
        """``looks(more)`` says whether a request may wait for a look behind so many more; ``tell()`` hears that fences
        are refused, once until half of the room is free again."""
        self._storage, self._counts, self._recent, self._most = storage, counts, recent, most
        self._looks, self._tell = looks, tell
        self._is_refusal_reported = False

    def must_look(self, ledger: LedgerId, waiting: int) -> bool:
        """Return whether a look at the metadata comes before the fence, behind ``waiting`` more of them."""
        return self._beyond(ledger) and self._looks(waiting)

    def fence(self, ledger: LedgerId, master_key: bytes, *, exists: bool) -> Code:
        """Fence as ``Storage.fence`` does, or return TOO_MANY_REQUESTS; ``exists``: a look has just found the ledger in
        the metadata."""
        self._counts.fences += 1
        self._is_refusal_reported = self._is_refusal_reported and self._storage.fences_without_entries > self._most // 2
        if not exists and self._beyond(ledger):
            self._refused()
            return Code.TOO_MANY_REQUESTS
        code = self._storage.fence(ledger, master_key)
        if code == Code.OK:
            self._recent.fenced(ledger)
        return code

    def _beyond(self, ledger: LedgerId) -> bool:
        """Return whether this would be one fence too many of a ledger that is unknown here."""
        return self._storage.fences_without_entries >= self._most and self._storage.identities.identity(ledger) is None

    def _refused(self) -> None:
        self._counts.fences_refused += 1
        if not self._is_refusal_reported:
            self._tell()
        self._is_refusal_reported = True
