"""The promises of a cluster, checked at each acknowledgement, read and change of metadata, and once more at the end.

P1 an acknowledged entry, with deferred sync a forced one, is on an ack quorum of disks where the metadata says, which
does not change for a ledger with deferred sync, and a LAC that a bookie took is on its disk. P2 nothing acknowledged
lies beyond the end, and nothing is acknowledged that was appended after a deletion that fenced all bookies. P3 a closed
ledger never changes, and whoever closes or recovers it reports that end. P4 acknowledgements come in order, without
gaps where the caller gives the ids. P5 readers get the writer's bytes, none of them beyond the LAC, none of another
ledger that had the id, and nobody says more of a LAC than its writer confirmed. P6 a ledger in recovery is never open
again, is read when no write set can collect an ack quorum any more, each fence being on its bookie's disk, and its
writer, once it knows, says nothing more of it. P7 every entry of a closed ledger is on an ack quorum. P8 no bookie
deletes a ledger that the metadata has. P9 when the faults have ended, all that was begun comes to its end, deleted
ledgers give their space back, and who follows a ledger gets what is confirmed.

A bookie that lost its disk, or got an older one, may say "no such entry" of what it had, and is believed (Q15). Of one
such bookie a ledger may lose what was appended before, if its end was not stored; nothing that came after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata, LedgerState
from tallystick.runtime.events import Event
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_durability import Durability
from tallystick.sim.cluster_faults import BookPlan
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace

Look = Callable[[BookieId, LedgerId, EntryId], tuple[int, bytes] | None]  # what a bookie has; None: it is away


class ClusterJudge:
    """Checks the promises against the metadata and the bookies' disks, which no client sees."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self.seed, self._trace = seed, trace
        self.books: dict[LedgerId, LedgerHistory] = {}  # the newest ledger of each id
        self._replaced: list[LedgerHistory] = []
        self.promise_count = self._ack_count = 0
        self.violation: str | None = None
        self.stop: Callable[[], None] = lambda: None  # settable: ends the life, also where nobody hears the violation
        self.alarm: tuple[int, Callable[[], None]] | None = None  # call this at that many acknowledgements
        self.storages: Callable[[], Mapping[BookieId, Storage]] = dict  # of the bookies that answer
        self.look: Look = lambda bookie, ledger, entry: None
        self.durability = Durability(self.fail)

    def fail(self, promise: str, what: str) -> None:
        """Raise Violation, which ends who looked. The first one counts."""
        self._trace.note("VIOLATION", promise, what)
        self.violation = self.violation or f"{promise}: {what}"
        self.stop()
        raise Violation(self.violation)

    # Metadata.

    def made(self, ledger: LedgerId, metadata: LedgerMetadata, creation: Creation) -> None:
        """A ledger is in the metadata."""
        before = self.books.get(ledger)
        if before is not None:
            if not before.deleted:
                self.fail("P6", f"ledger {ledger} was made while there was one")
            before.is_replaced = True
            self._replaced.append(before)
        self._trace.note("made", ledger, creation)
        self.books[ledger] = LedgerHistory(self.seed, ledger, creation, metadata)

    def claimed(self, plan: BookPlan, writer: LedgerWriter) -> LedgerHistory:
        """A writer has its new ledger. Returns it."""
        book = self.books[writer.id]
        book.plan, book.writer = plan, writer
        return book

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None:
        """A change was accepted. None: the ledger was deleted."""
        book = self.books[ledger]
        if metadata is None:
            book.deleted = True
            self._trace.note("deleted", ledger)
            return
        before, book.metadata = book.metadata, metadata
        fragments = [(fragment.first, *fragment.bookies) for fragment in metadata.fragments]
        self._trace.note("metadata", ledger, metadata.state.name, fragments, metadata.last_entry, metadata.length)
        if before.is_closed:
            self.fail("P3", f"closed metadata of ledger {ledger} was replaced")
        if before.state is LedgerState.IN_RECOVERY and metadata.state is LedgerState.OPEN:
            self.fail("P6", f"ledger {ledger} was in recovery and is open again")
        if book.defers and metadata.state is LedgerState.OPEN and metadata.fragments != before.fragments:
            self.fail("P1", f"the ensemble of ledger {ledger} changed, whose entries are not all durable")
        if metadata.is_closed:
            self._closed(book)
        if book.defers and before.state is LedgerState.OPEN and metadata.last_entry > book.acked:
            self.fail("P1", f"the writer of ledger {ledger} ends it at {metadata.last_entry}; {book.acked} is forced")

    def _closed(self, book: LedgerHistory) -> None:
        end, ledger = book.metadata.last_entry, book.id
        if book.acked > end and not book.may_lose:
            self.fail("P2", f"ledger {ledger} was closed at {end}, but {book.acked} was acknowledged before")
        if end >= book.appended:
            self.fail("P3", f"ledger {ledger} was closed at {end}, and only {book.appended} entries were appended")
        length = book.length(end)
        short = book.is_length_a_bound and book.metadata.length < length
        if book.metadata.length != length and not short:
            self.fail("P3", f"ledger {ledger} was closed with length {book.metadata.length} instead of {length}")

    # Clients.

    def acknowledged(self, book: LedgerHistory, entry: EntryId) -> None:
        """A writer's caller was told that this entry is safe."""
        assert book.writer is not None
        self._trace.note("acknowledged", book.id, entry)
        if entry != book.written + 1:
            self.fail("P4", f"entry {entry} of ledger {book.id} was acknowledged after {book.written}")
        if entry >= book.appended:
            self.fail("P4", f"entry {entry} of ledger {book.id} was acknowledged, and {book.appended} is missing")
        book.written = entry
        if book.defers:  # and may be lost
            return self._ack()
        if entry > book.writer.lac:
            self.fail("P4", f"entry {entry} of ledger {book.id} is acknowledged; its writer's LAC is {book.writer.lac}")
        self._promised(book, entry)

    def forced(self, book: LedgerHistory, last_entry: EntryId) -> None:
        """A writer's caller was told that all entries up to this one are durable."""
        self._trace.note("forced", book.id, last_entry)
        if last_entry > max(book.written, book.batched):
            self.fail("P4", f"{last_entry} of ledger {book.id} was forced, and {book.written} is acknowledged")
        if book.defers and not book.deleted:
            self.durability.has(book, book.acked + 1, last_entry)
        while book.acked < last_entry:
            self._promised(book, book.acked + 1)

    def _promised(self, book: LedgerHistory, entry: EntryId) -> None:
        book.acked = max(book.acked, entry)
        self.promise_count += 1
        self._ack()
        if book.metadata.is_closed and entry > book.metadata.last_entry and not self._was_lost(book, entry):
            self.fail(
                "P2", f"entry {entry} of ledger {book.id} was acknowledged behind its end {book.metadata.last_entry}"
            )
        if not book.deleted:
            lacking = [name for name in book.places(entry) if self._has(name, book, entry) is False]
            if book.metadata.write_quorum - len(lacking) < book.copies(entry):
                self.fail("P1", f"entry {entry} of ledger {book.id} is acknowledged, and {lacking} do not have it")
            if not book.defers and entry & (entry + 1) == 0:  # of some: it takes long to look
                self.durability.has(book, entry, entry)
        if book.refused_from is not None and entry >= book.refused_from:
            self.fail("P2", f"entry {entry} of ledger {book.id} was appended after its deletion, and acknowledged")

    def _ack(self) -> None:
        """Count an acknowledgement, of whatever kind."""
        self._ack_count += 1
        if self.alarm is not None and self._ack_count > self.alarm[0]:
            (_, ring), self.alarm = self.alarm, None
            ring()

    def _was_lost(self, book: LedgerHistory, entry: EntryId) -> bool:
        """Return whether the entry was sent to a bookie before that forgot it."""
        return book.may_lose and entry < max(book.damaged.values())

    def reported(self, book: LedgerHistory, last_entry: EntryId, length: int) -> None:
        """A client closed or recovered a ledger, and says that this is its end."""
        self._trace.note("reported", book.id, last_entry, length)
        metadata = book.metadata
        if not metadata.is_closed or (last_entry, length) != (metadata.last_entry, metadata.length):
            self.fail("P3", f"a client reports the end {last_entry} of ledger {book.id}: the metadata is {metadata}")

    def readable(self, book: LedgerHistory, last_entry: EntryId) -> None:
        """A reader was told that it may read so far."""
        if last_entry > book.confirmed and not book.is_replaced:
            self.fail("P5", f"a reader of ledger {book.id} may read up to {last_entry}; {book.confirmed} is confirmed")

    def read(self, book: LedgerHistory, entry: Entry) -> None:
        """A reader got an entry. Of an id that another ledger has now, nobody can say whose it is."""
        if book.is_replaced:
            return
        self.readable(book, entry.id)
        if entry.data != book.content(entry.id):
            self.fail("P5", f"a reader got other bytes for entry {entry.id} of ledger {book.id}")
        if entry.length != book.length(entry.id):
            self.fail("P5", f"entry {entry.id} of ledger {book.id} says that {entry.length} bytes end with it")
        if entry.lac >= entry.id:
            self.fail("P5", f"entry {entry.id} of ledger {book.id} says that {entry.lac} was confirmed before it")

    def followed(self, book: LedgerHistory, first: EntryId) -> None:
        """A reader that follows the ledger had all before ``first``, and the ledger has ended."""
        if book.is_replaced or book.deleted:
            return
        if not book.metadata.is_closed or first <= book.metadata.last_entry:
            self.fail("P8", f"a tail of ledger {book.id} ended before {first}: the metadata is {book.metadata}")

    def told(self, ledger: LedgerId, lac: EntryId, by: str) -> None:
        """Somebody says that a ledger is confirmed so far. A bookie may mean an earlier one of the id."""
        books = [self.books[ledger], *(book for book in self._replaced if book.id == ledger)]
        if lac > (confirmed := max(book.confirmed for book in books)):
            self.fail("P5", f"{by} says that ledger {ledger} is confirmed up to {lac}: {confirmed} is")

    def told_by_writer(self, ledger: LedgerId) -> None:
        """A writer says how far it confirmed its ledger."""
        self._trace.note("LAC told", ledger)
        if self.books[ledger].is_fenced:
            self.fail("P6", f"the writer of ledger {ledger} was fenced, and says how far it confirmed it")

    def keeps_lac(self, ledger: LedgerId, bookie: BookieId, lac: EntryId) -> None:
        """A bookie says that it keeps how far a writer has confirmed its ledger."""
        if not self._had(ledger):
            self.durability.keeps_lac(self.books[ledger], bookie, lac)

    def fence_read(self, ledger: LedgerId, bookie: BookieId) -> None:
        """A bookie has answered who fences a ledger."""
        storage = self.storages().get(bookie)
        if storage is not None and storage.is_fenced(ledger):
            self.durability.keeps_fence(ledger, bookie)

    def on_event(self, event: Event) -> None:
        """A client has reported an event."""
        if event.kind == "length is a lower bound":
            self.books[event.fields["ledger"]].is_length_a_bound = True
        elif event.kind == "fence covers every write set":
            self._fenced(self.books[event.fields["ledger"]])
        elif event.kind == "ledger deleted":
            self.books[event.fields["ledger"]].all_refuse = not event.fields["unfenced"]

    def _fenced(self, book: LedgerHistory) -> None:
        """A recovery says that the ledger is fenced. A bookie that cannot be asked counts as fenced."""
        if book.deleted or book.metadata.is_closed:  # another recovery was faster: nothing is added any more
            return
        ensemble = book.metadata.ensemble
        free = [name not in book.damaged and self._takes_adds(name, book.id) for name in ensemble]
        for first in range(len(ensemble)):  # counted here on purpose, not by the code that is checked
            places = [(first + number) % len(ensemble) for number in range(book.metadata.write_quorum)]
            if sum(free[place] for place in places) >= book.metadata.ack_quorum:
                self.fail("P6", f"recovery of ledger {book.id} reads, and of {ensemble} these are not fenced: {free}")

    def is_fenced(self, bookie: BookieId, ledger: LedgerId) -> bool:
        """Return whether a ledger may be fenced at a bookie."""
        storage = self.storages().get(bookie)
        return storage is None or storage.is_fenced(ledger)

    def _takes_adds(self, bookie: BookieId, ledger: LedgerId) -> bool:
        storage = self.storages().get(bookie)
        if storage is None:
            return False
        identity = storage.identities.identity(ledger)  # one that is remembered as deleted refuses adds too
        return not storage.is_fenced(ledger) and (identity is None or not identity.deleted)

    # Bookies.

    def damaged(self, bookie: BookieId, *, forgets: bool) -> None:
        """A bookie lost what it had, or can read it no longer; ``forgets``: it says that it never had it."""
        self._trace.note("damaged", bookie)
        for book in self.books.values():
            book.damaged[bookie] = book.appended
            if forgets and not book.metadata.is_closed and bookie in book.metadata.ensemble:
                book.may_lose = True

    def collected(self, bookie: BookieId, storage: Storage) -> None:
        """A bookie has deleted ledgers."""
        for ledger, book in self.books.items():
            identity = storage.identities.identity(ledger)
            if book.deleted or identity is None or not identity.deleted:
                continue
            if identity.creation == book.creation or (identity.creation == UNKNOWN and not self._had(ledger)):
                self.fail("P8", f"{bookie} deleted ledger {ledger}, which the metadata has")

    def _had(self, ledger: LedgerId) -> bool:
        """Return whether an earlier ledger had this id."""
        return any(book.id == ledger for book in self._replaced)

    def leftovers(self) -> list[tuple[BookieId, LedgerId]]:
        """Return what is left of deleted ledgers; for some time that is right."""
        return [
            (bookie, ledger)
            for ledger, book in self.books.items()
            for bookie, storage in self.storages().items()
            if book.deleted and (identity := storage.identities.identity(ledger)) is not None and not identity.deleted
        ]

    def at_the_end(self) -> None:
        """All ledgers are closed, and every bookie has come back from a loss of power."""
        for book in self.books.values():
            if book.deleted or book.plan is None:
                continue
            if not book.metadata.is_closed:
                self.fail("P9", f"ledger {book.id} was not closed, though nothing stood in the way")
            for entry in range(book.metadata.last_entry + 1):
                self._copies(book, entry)

    def _copies(self, book: LedgerHistory, entry: EntryId) -> None:
        places = book.places(entry)
        holders = [bookie for bookie in places if self._has(bookie, book, entry)]
        if len(holders) < book.copies(entry):
            promise = "P1" if entry <= book.acked else "P7"
            self.fail(promise, f"entry {entry} of ledger {book.id} is on {holders} of its write set {places} alone")

    def _has(self, bookie: BookieId, book: LedgerHistory, entry: EntryId) -> bool | None:
        """Return whether a bookie has the writer's bytes of an entry; None while it is away."""
        copy = self.look(bookie, book.id, entry)
        if copy is None:
            return None
        code, frame = copy
        payload = book.content(entry)
        return code == Code.OK and (not payload or frame.endswith(payload))
