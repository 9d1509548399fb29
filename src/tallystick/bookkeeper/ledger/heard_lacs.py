"""What bookies say of LACs beside the entries that they were asked for: by version 3, with every good read."""

from __future__ import annotations

import weakref

from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId


class HeardLac:
    """The highest LAC of one ledger that any bookie has told since somebody listens."""

    __slots__ = ("__weakref__", "lac")

    def __init__(self) -> None:
        self.lac: EntryId = NO_ENTRY

    def note(self, lac: EntryId) -> None:
        """A bookie has told this LAC."""
        self.lac = max(self.lac, lac)


class HeardLacs:
    """The ledgers of which somebody wants to hear: for as long as the HeardLac that it got is kept."""

    def __init__(self) -> None:
        self._heard: weakref.WeakValueDictionary[LedgerId, HeardLac] = weakref.WeakValueDictionary()

    def listen(self, ledger: LedgerId) -> HeardLac:
        """Return the ledger's HeardLac: one for all who listen."""
        heard = self._heard.get(ledger)
        if heard is None:
            heard = self._heard[ledger] = HeardLac()
        return heard

    def note(self, ledger: LedgerId, lac: EntryId) -> None:
        """A bookie has told the LAC of a ledger."""
        if self._heard and (heard := self._heard.get(ledger)) is not None:
            heard.note(lac)
