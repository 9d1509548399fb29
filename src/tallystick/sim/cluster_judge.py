"""The promises of a cluster, checked at each acknowledgement, read and change of metadata, and once more at the end.

P1 an acknowledged entry is on an ack quorum of disks where the metadata says. P2 nothing acknowledged lies beyond the
end. P3 a closed ledger never changes, and whoever closes or recovers it reports that end. P4 acknowledgements come in
order. P5 readers get the writer's bytes, none of them beyond the LAC. P6 a ledger in recovery is never open again.
P7 every entry of a closed ledger is on an ack quorum. P8 no bookie deletes a ledger that the metadata has. P9 when the
faults have ended, all that was begun comes to its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata, LedgerState
from tallystick.runtime.events import Event
from tallystick.sim.cluster_faults import BookPlan
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace


def content(seed: int, ledger: LedgerId, entry: EntryId, largest: int) -> bytes:
    """The payload of an entry: of any size, and never that of another one unless it is very short."""
    found = hashlib.blake2b(f"{seed} {ledger} {entry}".encode()).digest()
    size = int.from_bytes(found[:4], "big") % (largest + 1)
    return (found * (size // len(found) + 1))[:size]


@dataclass
class Book:
    """What is known of one ledger."""

    plan: BookPlan
    writer: LedgerWriter
    metadata: LedgerMetadata
    acked: EntryId = NO_ENTRY
    lengths: list[int] = field(default_factory=lambda: [0])  # up to each entry
    is_length_a_bound: bool = False  # a recovery said so: nobody gave it the last confirmed entry
    deleted: bool = False


class Judge:
    """Sees what really is, which no client does."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self.seed, self._trace = seed, trace
        self.books: dict[LedgerId, Book] = {}
        self.acks = 0
        self.violation: str | None = None
        self.alarm: tuple[int, Callable[[], None]] | None = None  # call this at that many acknowledgements

    def fail(self, promise: str, what: str) -> None:
        """The first one counts. It is raised too, which ends who looked."""
        self._trace.note("VIOLATION", promise, what)
        self.violation = self.violation or f"{promise}: {what}"
        raise Violation(self.violation)

    # Metadata.

    def created(self, plan: BookPlan, writer: LedgerWriter) -> None:
        """A writer has its new ledger."""
        self.books[writer.id] = Book(plan, writer, writer.metadata)

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None:
        """A change was accepted. None: the ledger was deleted."""
        book = self.books.get(ledger)
        if book is None:
            return
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
        if metadata.is_closed:
            self._closed(ledger, book)

    def _closed(self, ledger: LedgerId, book: Book) -> None:
        end = book.metadata.last_entry
        if book.acked > end:
            self.fail("P2", f"ledger {ledger} was closed at {end}, but {book.acked} was acknowledged before")
        length = self._length(ledger, end)
        short = book.is_length_a_bound and book.metadata.length < length
        if book.metadata.length != length and not short:
            self.fail("P3", f"ledger {ledger} was closed with length {book.metadata.length} instead of {length}")

    # Clients.

    def _content(self, ledger: LedgerId, entry: EntryId) -> bytes:
        return content(self.seed, ledger, entry, self.books[ledger].plan.largest)

    def _length(self, ledger: LedgerId, last_entry: EntryId) -> int:
        """Payload bytes up to the end of an entry."""
        lengths = self.books[ledger].lengths
        while len(lengths) <= last_entry + 1:
            lengths.append(lengths[-1] + len(self._content(ledger, len(lengths) - 1)))
        return lengths[last_entry + 1]

    def acknowledged(self, ledger: LedgerId, entry: EntryId) -> None:
        """A writer's caller was told that this entry is safe."""
        book = self.books[ledger]
        self._trace.note("acknowledged", ledger, entry)
        if entry != book.acked + 1:
            self.fail("P4", f"entry {entry} of ledger {ledger} was acknowledged after {book.acked}")
        if entry > book.writer.lac:
            self.fail("P4", f"entry {entry} of ledger {ledger} was acknowledged; its writer's LAC is {book.writer.lac}")
        book.acked = entry
        self.acks += 1
        if self.alarm is not None and self.acks > self.alarm[0]:
            (_, ring), self.alarm = self.alarm, None
            ring()
        if book.metadata.is_closed and entry > book.metadata.last_entry:
            self.fail(
                "P2", f"entry {entry} of ledger {ledger} was acknowledged behind its end {book.metadata.last_entry}"
            )

    def reported(self, ledger: LedgerId, last_entry: EntryId, length: int) -> None:
        """A client closed or recovered a ledger, and says that this is its end."""
        self._trace.note("reported", ledger, last_entry, length)
        metadata = self.books[ledger].metadata
        if not metadata.is_closed or (last_entry, length) != (metadata.last_entry, metadata.length):
            self.fail("P3", f"a client reports the end {last_entry} of ledger {ledger}: the metadata is {metadata}")

    def readable(self, ledger: LedgerId, last_entry: EntryId) -> None:
        """A reader may read so far."""
        book = self.books[ledger]
        limit = max(book.writer.lac, book.metadata.last_entry if book.metadata.is_closed else NO_ENTRY)
        if last_entry > limit:
            self.fail("P5", f"a reader of ledger {ledger} may read up to {last_entry}; {limit} is confirmed")

    def read(self, ledger: LedgerId, entry: Entry) -> None:
        """A reader got an entry."""
        self.readable(ledger, entry.id)
        if entry.data != self._content(ledger, entry.id):
            self.fail("P5", f"a reader got other bytes for entry {entry.id} of ledger {ledger}")
        if entry.length != self._length(ledger, entry.id):
            self.fail("P5", f"entry {entry.id} of ledger {ledger} says that {entry.length} bytes end with it")
        if entry.lac >= entry.id:
            self.fail("P5", f"entry {entry.id} of ledger {ledger} says that {entry.lac} was confirmed before it")

    def heard(self, event: Event) -> None:
        """What a client says of what it does."""
        if event.kind == "length is a lower bound":
            self.books[event.fields["ledger"]].is_length_a_bound = True

    # Bookies.

    def collected(self, bookie: BookieId, storage: Storage) -> None:
        """A bookie has deleted ledgers."""
        for ledger, book in self.books.items():
            kept = storage.kept(ledger)
            if not book.deleted and kept is not None and kept.deleted:
                self.fail("P8", f"{bookie} deleted ledger {ledger}, which the metadata has")

    def at_the_end(self, storages: Mapping[BookieId, Storage]) -> None:
        """All ledgers are closed, and every bookie has come back from a loss of power."""
        for ledger, book in self.books.items():
            if book.deleted:
                continue
            if not book.metadata.is_closed:
                self.fail("P9", f"ledger {ledger} was not closed, though nothing stood in the way")
            for entry in range(book.metadata.last_entry + 1):
                self._copies(ledger, book, entry, storages)

    def _copies(self, ledger: LedgerId, book: Book, entry: EntryId, storages: Mapping[BookieId, Storage]) -> None:
        ensemble = book.metadata.ensemble_of(entry)
        places = [ensemble[(entry + number) % len(ensemble)] for number in range(book.plan.shape[1])]
        found = [bookie for bookie in places if self._has(storages[bookie], ledger, entry)]
        if len(found) < book.plan.shape[2]:
            promise = "P1" if entry <= book.acked else "P7"
            self.fail(promise, f"entry {entry} of ledger {ledger} is on {found} of its write set {places} alone")

    def _has(self, storage: Storage, ledger: LedgerId, entry: EntryId) -> bool:
        code, frame = storage.read(ledger, entry)
        if code != Code.OK:
            return False
        payload = self._content(ledger, entry)
        return not payload or frame.endswith(payload)
