"""The ids that are used again while a collection proves that their ledgers have no metadata.

Between the last look at the metadata and the deletion another client may create a ledger with the same id, and its
first entries are acknowledged into what is about to be deleted. Such a ledger begins below what is stored; the writer
of the old one, who may go on for ever, adds above it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.bookkeeper.wire.values import EntryId, LedgerId


class RecentAdds:
    """Ids that were ``touched`` while they are ``watched``, which is empty but for moments: adds look at it alone."""

    def __init__(self) -> None:
        self.watched: set[LedgerId] = set()
        self.touched: set[LedgerId] = set()

    def watch(self, ledgers: Iterable[LedgerId]) -> None:
        self.watched.update(ledgers)

    def adding(self, ledger: LedgerId, entry: EntryId, last: EntryId) -> None:
        """An entry is about to be added to a ledger with entries up to ``last``."""
        if ledger in self.watched and entry <= last:
            self.touched.add(ledger)

    def fenced(self, ledger: LedgerId) -> None:
        """A ledger was fenced: whoever recovers one that was created since relies on it."""
        if ledger in self.watched:
            self.touched.add(ledger)

    def forget(self) -> None:
        self.watched.clear()
        self.touched.clear()
