"""What must be on the media of a simulated cluster's bookies, at the moment in which somebody is told so.

A loss of power would find it there, and what a bookie can read now says nothing of that: so its disk is read as a start
after such a loss would read it, be the bookie up or down.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId
from tallystick.sim.cluster_book import LedgerHistory

_IDS = struct.Struct(">qq")  # a ledger, and its LAC


class Durability:
    """Checks P1 and P6 by what bookies have for good."""

    def __init__(self, fail: Callable[[str, str], object]) -> None:
        self._fail = fail
        self.start: Callable[[BookieId], Storage | None] = lambda bookie: None  # settable: see ``BookieHost.durable``

    def has(self, book: LedgerHistory, first: EntryId, last: EntryId) -> None:
        """A caller was told that these are durable: each is on the media of an ack quorum."""
        starts: dict[BookieId, Storage | None] = {}
        for entry in range(first, last + 1):
            places = book.places(entry)
            for bookie in places:
                if bookie not in starts:
                    starts[bookie] = self.start(bookie)
            lacking = [bookie for bookie in places if _lacks(starts[bookie], book, entry)]
            if len(places) - len(lacking) < book.copies(entry):
                self._fail("P1", f"entry {entry} of ledger {book.id} is promised, and the disks of {lacking} lack it")

    def keeps_lac(self, book: LedgerHistory, bookie: BookieId, lac: EntryId) -> None:
        """A bookie says that it keeps this LAC: it does, for good."""
        if book.deleted or book.damaged or (start := self.start(bookie)) is None:
            return
        body = start.explicit_lac(book.id)
        kept: EntryId = NO_ENTRY if body is None else _IDS.unpack_from(body)[1]
        if kept < lac:
            self._fail("P1", f"{bookie} took the LAC {lac} of ledger {book.id}, and {kept} is on its disk")

    def keeps_fence(self, ledger: LedgerId, bookie: BookieId) -> None:
        """A bookie that has fenced a ledger says what it has of it: the fence is there for good."""
        if (start := self.start(bookie)) is not None and not start.is_fenced(ledger):
            self._fail("P6", f"{bookie} says that ledger {ledger} is fenced, and no fence is on its disk")


def _lacks(start: Storage | None, book: LedgerHistory, entry: EntryId) -> bool:
    """Returns whether an entry is not on a disk; it may be on one that cannot be read."""
    return start is not None and start.read(book.id, entry)[0] in (Code.NO_ENTRY, Code.NO_LEDGER)
