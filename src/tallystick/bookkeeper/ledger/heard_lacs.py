"""What bookies say of LACs beside the entries that they were asked for: by version 3, with every good read."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId


class HeardLac:
    """The highest LAC of one ledger that any bookie has told since somebody listens.

    ``ctime_ms`` is the ledger's, and tells it from an older one of the same id; ``first_lane`` is that of the first
    request that may be about it.
    """

    __slots__ = ("__weakref__", "ctime_ms", "first_lane", "lac")

    def __init__(self, ctime_ms: int | None, first_lane: int) -> None:
        self.ctime_ms, self.first_lane = ctime_ms, first_lane
        self.lac: EntryId = NO_ENTRY

    def note(self, lac: EntryId) -> None:
        """A bookie has told this LAC."""
        self.lac = max(self.lac, lac)


class HeardLacs:
    """The ledgers of which somebody wants to hear: for as long as the HeardLac that it got is kept. ``lanes`` numbers
    the client's requests."""

    def __init__(self, lanes: Iterator[int]) -> None:
        self._lanes = lanes
        self._heard: weakref.WeakValueDictionary[LedgerId, HeardLac] = weakref.WeakValueDictionary()

    def listen(self, ledger: LedgerId, ctime_ms: int | None) -> HeardLac:
        """Return the ledger's HeardLac: one for all who listen. A ledger that got the id of a deleted one has its own,
        of which responses to earlier requests say nothing."""
        heard = self._heard.get(ledger)
        if heard is None or heard.ctime_ms != ctime_ms:
            heard = self._heard[ledger] = HeardLac(ctime_ms, next(self._lanes))
        return heard

    def note(self, ledger: LedgerId, lac: EntryId, lane: int) -> None:
        """A bookie has told the LAC of a ledger, asked by a request of ``lane``."""
        if self._heard and (heard := self._heard.get(ledger)) is not None and lane >= heard.first_lane:
            heard.note(lac)
