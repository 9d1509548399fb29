"""The promises (P1 to P9), checked at the instant of each ack, close and fence, and once more at the end of a run."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.values import Ensemble, EntryId, LedgerMetadata, LedgerState
from tallystick.sim.bookies import Cluster
from tallystick.sim.world import World


class Violation(AssertionError):
    """A promise was broken; the text starts with its number."""


def content(seed: int, entry: EntryId) -> int:
    """The payload that entry must have: looks random, so that no two are mixed up unnoticed."""
    return (seed * 0x9E3779B97F4A7C15 + (entry + 1) * 0xBF58476D1CE4E5B9) % (1 << 64)


def length_up_to(entry: EntryId) -> int:
    """The ledger's length in a run: entry i has i + 1 payload bytes."""
    return (entry + 1) * (entry + 2) // 2


class Checker:
    """Sees what really is, which no client does."""

    def __init__(self, world: World, cluster: Cluster, striping: Striping) -> None:
        self.world, self.cluster, self.striping = world, cluster, striping
        self.metadata: LedgerMetadata | None = None
        self.acked: EntryId = -1
        self.ends: list[EntryId] = []  # stored in CLOSED metadata

    def on_metadata(self, metadata: LedgerMetadata) -> None:
        """A compare-and-set was accepted."""
        before, self.metadata = self.metadata, metadata
        if before is not None and before.is_closed:
            self._fail("P3", f"closed metadata was replaced: {before} by {metadata}")
        if before is not None and before.state is LedgerState.IN_RECOVERY and metadata.state is LedgerState.OPEN:
            self._fail("P6", "a ledger in recovery was opened again")
        if metadata.is_closed:
            self._on_close(metadata)

    def _on_close(self, metadata: LedgerMetadata) -> None:
        self.ends.append(metadata.last_entry)
        if self.acked > metadata.last_entry:
            self._fail("P2", f"closed at {metadata.last_entry}, but {self.acked} was acknowledged before")
        for entry in range(metadata.last_entry + 1):
            if self._copies(metadata, entry) < self.striping.ack_quorum:
                self._fail("P7", f"closed at {metadata.last_entry}, but entry {entry} is not on an ack quorum")
        want = length_up_to(metadata.last_entry)
        if metadata.length != want:
            self._fail("P3", f"closed at {metadata.last_entry} with length {metadata.length} instead of {want}")

    def on_ack(self, entry: EntryId) -> None:
        """The writer told its caller that ``entry`` is safe."""
        assert self.metadata is not None
        if entry != self.acked + 1:
            self._fail("P4", f"entry {entry} acknowledged after {self.acked}")
        self.acked = entry
        if self.metadata.is_closed and entry > self.metadata.last_entry:
            self._fail("P2", f"entry {entry} acknowledged after the ledger was closed at {self.metadata.last_entry}")
        copies = self._copies(self.metadata, entry)
        if copies < self.striping.ack_quorum:
            self._fail("P1", f"entry {entry} acknowledged with {copies} synced copies where the metadata says")

    def on_recovery_read(self, ensemble: Ensemble) -> None:
        """Recovery leaves its fence step: no write set may be able to collect an ack quorum any more (Q12)."""
        size, quorum = self.striping.ensemble_size, self.striping.write_quorum
        free = [not self.cluster.bookies[bookie].durable_fence for bookie in ensemble]
        for first in range(size):  # counted here on purpose, not by the production code that is checked
            if sum(free[(first + i) % size] for i in range(quorum)) >= self.striping.ack_quorum:
                self._fail("P6", f"recovery reads with an ack quorum of {ensemble} not fenced: {free}")

    def on_reported_end(self, last_entry: EntryId) -> None:
        """A closer or recoverer reports success."""
        assert self.metadata is not None
        if not self.metadata.is_closed or last_entry != self.metadata.last_entry:
            self._fail("P3", f"a client reports end {last_entry}, the metadata says {self.metadata.last_entry}")

    def on_calm_writer(self, appended: int) -> None:
        """A writer that nobody stopped had time enough after the faults."""
        if self.acked + 1 != appended:
            self._fail("P9", f"{appended} entries were appended and only {self.acked + 1} acknowledged")

    def at_the_end(self, seed: int) -> None:
        """Everything is calm: what was acknowledged is there, and the same from every bookie."""
        assert self.metadata is not None
        if not self.metadata.is_closed:
            self._fail("P9", "the ledger was not closed although nothing stood in the way")
        for entry in range(max(self.acked, self.metadata.last_entry) + 1):
            if not any(self._has(bookie, entry) for bookie in self._write_set(self.metadata, entry)):
                self._fail("P8", f"entry {entry} is on none of the bookies that the metadata names")
        for bookie in self.cluster.bookies.values():
            for entry, stored in bookie.entries.items():
                if stored.content != content(seed, entry):
                    self._fail("P5", f"{bookie.id} has other bytes for entry {entry}")

    def _write_set(self, metadata: LedgerMetadata, entry: EntryId) -> list[str]:
        ensemble = metadata.ensemble_of(entry)
        return [ensemble[slot] for slot in self.striping.slots(entry)]

    def _has(self, bookie: str, entry: EntryId) -> bool:
        return entry in self.cluster.bookies[bookie].durable

    def _copies(self, metadata: LedgerMetadata, entry: EntryId) -> int:
        return sum(self._has(bookie, entry) for bookie in self._write_set(metadata, entry))

    def _fail(self, promise: str, what: str) -> None:
        self.world.note("VIOLATION", promise, what)
        raise Violation(f"{promise}: {what}")
