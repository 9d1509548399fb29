"""What must hold when metadata is lost and a backup of it is put back; beside the promises of clusters and repairs.

M1 no new ledger has an id that was given before, as far as the file that is replaced or a bookie can tell: a restore
that cannot ask a bookie is refused. M2 from the restore until an operator confirms no bookie deletes a ledger or drops
a copy. M3 a ledger that is newer than the metadata is not deleted afterwards either, until the bookie is told; then it
is. M4 before an operator can confirm, reconcile lists each ledger that a bookie has and the metadata lacks, and as one
that is kept if the bookie knows that it is newer. M5 restore and reconcile name the ledgers that are open in the
backup, and which of these still are; restore, where it can compare, those that were made since. M6 what was
acknowledged in ledgers that are CLOSED in the backup can be read, if a bookie that the backup names has it. M7 so it is
in those that are open there, if nothing of their metadata has changed since. M8 what a bookie of an older ensemble
lacks is copied there again, from another one that the backup names. R1 is left: who repairs by older metadata copies
nothing wrong.

A ledger that was open in the backup, and whose ensemble changed since, may lose what it had: its recovery believes
bookies that were replaced. One that was deleted since has no entries any more where bookies had heard of that.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.admin.backup import Restoration
from tallystick.admin.reconcile import Reconciliation
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import TallyError
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.repairs_judge import RepairJudge
from tallystick.sim.virtual.trace import Trace

Copy = tuple[BookieId, LedgerId]


class RestoreJudge(RepairJudge):
    """See the module."""

    def __init__(self, seed: int, trace: Trace) -> None:
        super().__init__(seed, trace)
        self.is_held = self.is_restored = False
        self.given_up: dict[BookieId, None] = {}  # to give up what is newer than the metadata
        self._saved: dict[LedgerId, LedgerMetadata] = {}  # in the backup
        self._older: dict[LedgerId, None] = {}  # made before the backup, and perhaps deleted before it
        self._ids: dict[LedgerId, None] = {}  # that no new ledger may have
        self._lost: dict[LedgerId, LedgerHistory] = {}  # made since the backup
        self._known: dict[Copy, Creation] = {}  # which ledgers each bookie knew when it was back
        self._found: dict[Copy, Creation] = {}  # and of which it had entries
        self._unchanged: dict[LedgerId, None] = {}  # since the backup
        self._readable: dict[LedgerId, dict[EntryId, None]] = {}  # what the bookies of the backup had

    # The backup, and the restore.

    def saved(self) -> None:
        """The metadata is in a backup, as it is now."""
        self._saved = {book.id: book.metadata for book in self.books.values() if not book.deleted}
        self._older = dict.fromkeys(self.books)
        self._trace.note("saved", list(self._saved))

    def put_back(self, done: Restoration) -> None:
        """The backup is in the place of the metadata; no bookie and no client runs."""
        self._trace.note("metadata restored", done.next_ledger, done.highest, done.compared)
        if done.unknown:
            self._trace.note("nobody can be asked what these have", list(done.unknown))
        self.is_held = self.is_restored = True
        there = [ledger for ledger, book in self.books.items() if not book.deleted]
        self._lost = {ledger: book for ledger, book in self.books.items() if ledger not in self._older}
        self._name_what_went_back(done, there)
        for ledger, book in self.books.items():
            if (metadata := self._saved.get(ledger)) is None:
                book.deleted = True  # as far as anybody can tell
            else:
                self._go_back(book, metadata)
        self._ids = dict.fromkeys(self.books) if done.compared else {}

    def _name_what_went_back(self, done: Restoration, there: Sequence[LedgerId]) -> None:
        still_open = [ledger for ledger, metadata in self._saved.items() if not metadata.is_closed]
        if sorted(still_open) != sorted(done.open_ledgers):
            self.fail("M5", f"{still_open} are open in the backup, and restore names {done.open_ledgers}")
        lost = [ledger for ledger in there if done.compared and ledger not in self._saved]
        if sorted(lost) != sorted(done.lost_ledgers):
            self.fail("M5", f"{lost} were made since the backup, and restore names {done.lost_ledgers}")

    def _go_back(self, book: LedgerHistory, metadata: LedgerMetadata) -> None:
        """The ledger is again as the backup has it: also one that was deleted since, of which nobody is asked more."""
        since = "deleted since" if book.deleted else "as it was" if metadata == book.metadata else "changed since"
        how = "closed" if metadata.is_closed else "open"
        self._trace.note(f"{how} in the backup, and", since, book.id)
        if since == "as it was":
            self._unchanged[book.id] = None
        elif not metadata.is_closed:
            book.may_lose = True
        book.metadata = metadata

    def came_back(self, bookie: BookieId, storage: Storage) -> None:
        """A bookie answers for the first time since the restore."""
        start = self.durability.start(bookie)
        assert start is not None, "no disk rots here"
        for ledger in storage.ledger_ids():
            identity = storage.identities.identity(ledger)
            assert identity is not None, "it is stored"
            self._known[bookie, ledger] = identity.creation
            if NO_ENTRY not in (storage.last_entry(ledger), start.last_entry(ledger)):  # of a power loss later, too
                self._found[bookie, ledger] = identity.creation
                self._ids[ledger] = None

    def all_came_back(self) -> None:
        """So have all others."""
        if any(ledger in self._lost for _, ledger in self._found):
            self._trace.note("newer ledgers on bookies")
        for book in self.back():
            end, promised = (
                (book.metadata.last_entry,) * 2 if book.metadata.is_closed else (book.appended - 1, book.acked)
            )
            entries = [
                entry for entry in range(end + 1) if any(self._has(name, book, entry) for name in book.places(entry))
            ]
            self._readable[book.id] = dict.fromkeys(entries)
            gone = [entry for entry in range(promised + 1) if entry not in self._readable[book.id]]
            if gone and book.id in self._unchanged:
                self.fail(self._promise(book), f"entries {gone} of ledger {book.id} are nowhere where the backup says")
            if gone:
                self._trace.note("no bookie of the backup has", book.id, gone)

    def _promise(self, book: LedgerHistory) -> str:
        return "M6" if self._saved[book.id].is_closed else "M7"

    def back(self) -> list[LedgerHistory]:
        """Return the ledgers of the backup that nobody has deleted since."""
        return [self.books[ledger] for ledger in self._saved if not self.books[ledger].deleted]

    # Afterwards.

    def made(self, ledger: LedgerId, metadata: LedgerMetadata, creation: Creation) -> None:
        if ledger in self._ids:
            self.fail("M1", f"ledger {ledger} is new, and that id was given before")
        super().made(ledger, metadata, creation)

    def told_of(self, found: Reconciliation) -> None:
        """An operator is shown what the metadata lacks, by all bookies."""
        kept = {ledger: run.is_kept for run in found.lacking for ledger in range(run.first, run.last + 1)}
        self._trace.note("lacking", kept)
        for (bookie, ledger), creation in self._found.items():
            if ledger in self._saved:
                continue
            if ledger not in kept:
                self.fail("M4", f"{bookie} has ledger {ledger}, and reconcile does not say that the metadata lacks it")
            if not kept[ledger] and self._is_newer(ledger, creation) and self._all_know(ledger):
                self.fail("M4", f"{bookie} knows that ledger {ledger} is newer, and reconcile says that it goes")
        now_open = [ledger for ledger in self._saved if not self.books[ledger].metadata.is_closed]
        if sorted(now_open) != sorted(found.still_open):
            self.fail("M5", f"{now_open} are open still, and reconcile names {found.still_open}")

    def _is_newer(self, ledger: LedgerId, creation: Creation) -> bool:
        return ledger in self._lost and creation == self._lost[ledger].creation

    def _all_know(self, ledger: LedgerId) -> bool:
        return all(self._is_newer(ledger, creation) for (_, each), creation in self._known.items() if each == ledger)

    def confirmed(self) -> None:
        """An operator lets collections go on."""
        self.look_at_copies()
        self.is_held = False
        self._trace.note("confirmed")

    def look_at_copies(self) -> None:
        """Check that bookies have what may not be gone."""
        for bookie, storage in self.storages().items():
            for (name, ledger), creation in self._found.items():
                if name != bookie or storage.last_entry(ledger) != NO_ENTRY:
                    continue
                if bookie in self.given_up and ledger in self._lost:
                    self._trace.note("newer ledger given up", bookie, ledger)
                if self.is_held:
                    self.fail("M2", f"{bookie} has nothing of ledger {ledger} any more, and nobody has confirmed that")
                if self._is_newer(ledger, creation) and bookie not in self.given_up:
                    self.fail("M3", f"{bookie} has nothing of ledger {ledger} any more, which is newer")

    def collected(self, bookie: BookieId, storage: Storage) -> None:
        super().collected(bookie, storage)
        if self.is_restored:
            self.look_at_copies()

    def shed(self, bookie: BookieId, ledgers: Sequence[LedgerId]) -> None:
        if self.is_held:
            self.fail("M2", f"{bookie} dropped its copies of {ledgers}, and nobody has confirmed that")
        super().shed(bookie, ledgers)

    def unread(self, book: LedgerHistory, entry: EntryId, error: TallyError) -> None:
        """A reader was refused this entry for good."""
        self._trace.note("unread", book.id, entry, error)
        if entry in self._readable[book.id]:
            self.fail(
                self._promise(book), f"entry {entry} of ledger {book.id} cannot be read, and a bookie had it: {error!r}"
            )

    def may_be_gone(self, book: LedgerHistory, entry: EntryId) -> bool:
        """Return whether no bookie that the backup names had an entry."""
        return entry not in self._readable[book.id]

    def _trace_move(self, book: LedgerHistory, first: EntryId, old: BookieId, new: BookieId) -> None:
        super()._trace_move(book, first, old, new)
        if self.is_restored and book.id in self._saved:
            self._trace.note("place moved again", book.id)

    def surplus(self) -> list[Copy]:
        return [] if self.is_held else super().surplus()

    def lacking(self) -> list[tuple[BookieId, LedgerId, EntryId]]:
        """Return what bookies of the backup lack though another one has it; for some time that is right."""
        return [
            (bookie, book.id, entry)
            for book in self.back()
            if book.metadata.is_closed
            for entry in self._readable[book.id]
            if entry <= book.metadata.last_entry
            for bookie in book.places(entry)
            if self._has(bookie, book, entry) is False
        ]

    def at_the_end(self) -> None:
        super().at_the_end()
        if self.is_held:
            self._trace.note("held to the end")
        elif not self.given_up and any(ledger in self._lost for _, ledger in self._found):
            self._trace.note("newer ledgers kept")

    def leftovers(self) -> list[Copy]:
        """Of what the restored metadata lacks bookies keep what is newer, until they are told."""
        if not self.is_restored:
            return super().leftovers()
        if self.is_held:
            return []
        return [
            (bookie, ledger)
            for bookie, ledger in super().leftovers()
            if ledger not in self._saved and (ledger not in self._lost or bookie in self.given_up)
        ]

    def _copies(self, book: LedgerHistory, entry: EntryId) -> None:
        if book.id not in self._saved or entry in self._readable[book.id]:
            super()._copies(book, entry)
