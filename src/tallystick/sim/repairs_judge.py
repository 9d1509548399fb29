"""What must hold of repairs, checked at each change of metadata; beside the promises of a cluster.

R1 A bookie that takes another one's place in a fragment has, on its disk, every entry of that place, with the writer's
bytes. R2 No bookie has two places of a fragment. R3 When the faults have ended, no ledger names a bookie that is gone
for good, but where it alone has an entry. R4 Nor has a bookie entries of a closed ledger that names others, which all
have what it says. R5 It drops them only then, and refuses the old writer afterwards. R6 A writer that
appends nothing replaces a bookie that is gone. P3 is left: of a closed ledger nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_judge import ClusterJudge


class RepairJudge(ClusterJudge):
    """See the module."""

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None:
        book = self.books[ledger]
        if metadata is None:
            return super().stored(ledger, metadata)
        before = book.metadata
        moved = self._moved(book, before, metadata)
        if not before.is_closed:
            return super().stored(ledger, metadata)
        if not moved or replace(metadata, fragments=before.fragments) != before:
            self.fail("P3", f"closed metadata of ledger {ledger} was replaced")
        book.metadata = metadata

    def _moved(self, book: LedgerHistory, before: LedgerMetadata, after: LedgerMetadata) -> int:
        """Check the places that other bookies have now. Returns how many those are."""
        moved = 0
        ends = [fragment.first - 1 for fragment in before.fragments[1:]]
        if before.is_closed:
            ends.append(before.last_entry)
        by_first = {fragment.first: fragment.bookies for fragment in after.fragments}
        for fragment, last in zip(before.fragments, ends, strict=False):
            bookies = by_first.get(fragment.first)
            if bookies is None:
                self.fail("P3", f"ledger {book.id} has no fragment any more that begins at {fragment.first}")
                return moved
            if len(set(bookies)) < len(bookies):
                self.fail("R2", f"a bookie has two places of ledger {book.id}: {bookies}")
            for slot, bookie in enumerate(bookies):
                if bookie != fragment.bookies[slot]:
                    self._trace_move(book, fragment.first, fragment.bookies[slot], bookie)
                    self._has_all(book, bookie, _stripe(before, slot, fragment.first, last))
                    moved += 1
        return moved

    def _trace_move(self, book: LedgerHistory, first: EntryId, old: BookieId, new: BookieId) -> None:
        self._trace.note("place moved", book.id, first, old, new)

    def _has_all(self, book: LedgerHistory, bookie: BookieId, entries: Sequence[EntryId]) -> None:
        disk = self.durability.start(bookie)
        for entry in entries:
            if disk is None:
                return
            code, frame = disk.read(book.id, entry)
            if code != Code.OK or not frame.endswith(book.content(entry)):
                self.fail("R1", f"{bookie} has a place of ledger {book.id}, and not its entry {entry}: {code.name}")

    def named(self) -> dict[BookieId, None]:
        """Return the bookies that a ledger names."""
        ledgers = [book.metadata for book in self.books.values() if not book.deleted]
        return {bookie: None for each in ledgers for fragment in each.fragments for bookie in fragment.bookies}

    def repairable(self, bookie: BookieId, targets: Collection[BookieId]) -> list[LedgerId]:
        """Return the closed ledgers that name a bookie that is gone, though others have all that it had, and one of the
        ``targets`` may take it. One is open still whose writer was never told that it made it."""
        return [
            book.id
            for book in self.books.values()
            if not book.deleted
            and book.metadata.is_closed
            and _names(book.metadata, bookie)
            and self._others_have_all(book, bookie)
            and _may_take(book.metadata, bookie, targets)
        ]

    def shed(self, bookie: BookieId, ledgers: Sequence[LedgerId]) -> None:
        """A bookie has dropped all that it had of these ledgers. One that is away may have what is placed there."""
        self._trace.note("copies dropped", bookie, ledgers)
        for book in [self.books[ledger] for ledger in ledgers if not self.books[ledger].deleted]:
            if not book.metadata.is_closed or _names(book.metadata, bookie):
                self.fail("R5", f"{bookie} dropped entries of ledger {book.id}, and the metadata is {book.metadata}")
            for entry in range(book.metadata.last_entry + 1):
                lacking = [name for name in book.places(entry) if self._has(name, book, entry) is False]
                if lacking:
                    self.fail("R5", f"{bookie} dropped entry {entry} of ledger {book.id}, which {lacking} lack")
            if not self.is_fenced(bookie, book.id):
                self.fail("R5", f"{bookie} dropped entries of ledger {book.id}, and lets its old writer in")

    def surplus(self) -> list[tuple[BookieId, LedgerId]]:
        """Return who has entries of closed ledgers that name others, which have all; for some time that is right. Where
        another ledger had the id before they may be that one's, and the bookie cannot always tell."""
        storages, used_again = self.storages(), {book.id for book in self._replaced}
        return [
            (bookie, book.id)
            for book in self.books.values()
            if not book.deleted and book.metadata.is_closed and book.id not in used_again and self._is_whole(book)
            for bookie, storage in storages.items()
            if storage.last_entry(book.id) >= 0 and not _names(book.metadata, bookie)
        ]

    def _is_whole(self, book: LedgerHistory) -> bool:
        """Return whether all bookies that the ledger names are there, each with all that is placed there."""
        storages = self.storages()
        named = [name for fragment in book.metadata.fragments for name in fragment.bookies]
        return all(name in storages and not storages[name].limbo for name in named) and all(
            self._has(name, book, entry) for entry in range(book.metadata.last_entry + 1) for name in book.places(entry)
        )

    def _others_have_all(self, book: LedgerHistory, bookie: BookieId) -> bool:
        for entry in range(book.metadata.last_entry + 1):
            places = book.places(entry)
            if bookie in places and not any(self._has(other, book, entry) for other in places if other != bookie):
                return False
        return True


def _names(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    return any(bookie in fragment.bookies for fragment in metadata.fragments)


def _may_take(metadata: LedgerMetadata, lost: BookieId, targets: Collection[BookieId]) -> bool:
    """Return whether each fragment that names the lost one has a place to go to: neither is it in it, nor may it have
    an older ledger of this id."""
    may = {*targets} - {*metadata.avoided}
    return all(may - {*fragment.bookies} for fragment in metadata.fragments if lost in fragment.bookies)


def _stripe(metadata: LedgerMetadata, slot: int, first: EntryId, last: EntryId) -> list[EntryId]:
    """Counted here on purpose, not by the code that is checked."""
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return [entry for entry in range(first, last + 1) if slot in [(entry + i) % size for i in range(quorum)]]
