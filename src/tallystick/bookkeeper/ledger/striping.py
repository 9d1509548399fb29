"""Which bookies of an ensemble hold an entry (Q4), and how many responses settle what is asked about it (Q12, Q15).

::

    E=3, Qw=2        entry   0  1  2  3  4  5 …
                     slot 0  x     x  x     x         entry i is on the Qw slots that start at i mod E, round-robin
                     slot 1  x  x     x  x            a slot's own entries are its *stripe*
                     slot 2     x  x     x  x

Follows the original's ``RoundRobinDistributionSchedule``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import lt

from tallystick.bookkeeper.wire.values import EntryId, LedgerMetadata, Slot


@dataclass(frozen=True)
class Striping:
    """The three sizes of a ledger, E >= Qw >= Qa >= 1, and the arithmetic on them."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Striping:
        """Return the striping of a ledger's sizes."""
        return striping_of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    @property
    def striped(self) -> bool:
        """Whether bookies of the ensemble have only some entries; False if each has every one."""
        return self.ensemble_size > self.write_quorum

    @property
    def no_quorum(self) -> int:
        """Qf: so many explicit "no" from a write set leave fewer than Qa bookies that could have acknowledged (Q15)."""
        return self.write_quorum - self.ack_quorum + 1

    def slots(self, entry: EntryId) -> tuple[Slot, ...]:
        """Return the write set of an entry as places in the ensemble."""
        return _write_set(self.ensemble_size, self.write_quorum, entry % self.ensemble_size)

    def stores(self, slot: Slot, entry: EntryId) -> bool:
        return (slot - entry) % self.ensemble_size < self.write_quorum

    def next(self, slot: Slot, entry: EntryId) -> EntryId:
        """Return the first entry >= ``entry`` of the slot's stripe."""
        return entry + max(0, (slot - entry) % self.ensemble_size - self.write_quorum + 1)

    def stripe(self, slot: Slot, first: EntryId, last: EntryId) -> Sequence[EntryId]:
        """Return the entries ``first`` … ``last`` of the slot's stripe, ascending."""
        if not self.striped:
            return range(first, last + 1)
        return [entry for entry in range(first, last + 1) if self.stores(slot, entry)]

    def count(self, slot: Slot, first: EntryId, last: EntryId) -> int:
        """Count the entries ``first`` … ``last`` of the slot's stripe."""
        cycles, rest = divmod(max(0, last - first + 1), self.ensemble_size)
        return cycles * self.write_quorum + sum(self.stores(slot, first + i) for i in range(rest))

    def entry(self, slot: Slot, first: EntryId, index: int) -> EntryId:
        """Return the entry of the slot's stripe that has so many of it before it from ``first`` on."""
        cycles, rest = divmod(index, self.write_quorum)
        entry = self.next(slot, first + cycles * self.ensemble_size)
        for _ in range(rest):
            entry = self.next(slot, entry + 1)
        return entry

    def runs(self, slot: Slot, entries: Sequence[EntryId]) -> list[tuple[EntryId, EntryId]]:
        """Return entries of one stripe as runs (first, last) without a gap: one if they are in order and complete."""
        if not entries:
            return []
        first, last = entries[0], entries[-1]
        if self.count(slot, first, last) == len(entries) and all(map(lt, entries, islice(entries, 1, None))):
            return [(first, last)]
        runs: list[tuple[EntryId, EntryId]] = []
        for entry in sorted(entries):
            if runs and entry <= self.next(slot, runs[-1][1] + 1):
                runs[-1] = (runs[-1][0], entry)
            else:
                runs.append((entry, entry))
        return runs

    def covered(self, responding_slots: Collection[Slot]) -> bool:
        """Return whether no write set has Qa slots left outside ``responding_slots`` (Q12).

        This is the true bound: it looks at each cyclic window of Qw slots. A count over the whole ensemble would ask
        for more where the silent bookies are far apart.
        """
        silent = [slot not in responding_slots for slot in range(self.ensemble_size)]
        return all(sum(silent[slot] for slot in self.slots(first)) < self.ack_quorum for first in range(len(silent)))


@lru_cache(maxsize=64)
def striping_of(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Striping:
    """Return one object for all ledgers of these sizes."""
    return Striping(ensemble_size, write_quorum, ack_quorum)


@lru_cache(maxsize=1024)
def _write_set(ensemble_size: int, write_quorum: int, first: Slot) -> tuple[Slot, ...]:
    return tuple((first + i) % ensemble_size for i in range(write_quorum))
