"""What is known of one simulated ledger by who sees everything: its plan, its content, what was promised of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.sim.cluster_faults import BookPlan


def content(seed: int, ledger: LedgerId, creation: Creation, entry: EntryId, largest: int) -> bytes:
    """Return the payload of an entry: of any size, and never that of another one unless it is very short."""
    digest = hashlib.blake2b(f"{seed} {ledger} {creation} {entry}".encode()).digest()
    size = int.from_bytes(digest[:4], "big") % (largest + 1)
    return (digest * (size // len(digest) + 1))[:size]


@dataclass(eq=False)
class LedgerHistory:
    """One ledger; ``creation`` tells it from a later one with its id. It has a plan and a writer once that was told."""

    seed: int
    id: LedgerId
    creation: Creation
    metadata: LedgerMetadata
    plan: BookPlan | None = None
    writer: LedgerWriter | None = None
    appended: int = 0  # entries that its writer was given
    batched: EntryId = NO_ENTRY  # the last of the newest batch: its caller is told of all of it at once
    written: EntryId = NO_ENTRY  # acknowledged
    acked: EntryId = NO_ENTRY  # promised to be durable: with deferred sync what was forced
    is_fenced: bool = False  # its writer was told so
    lengths: list[int] = field(default_factory=lambda: [0])  # up to each entry
    is_length_a_bound: bool = False  # a recovery said so: nobody gave it the last confirmed entry
    deleted: bool = False
    is_replaced: bool = False  # another ledger has its id
    all_refuse: bool = False  # all its bookies were fenced for its deletion
    refused_from: EntryId | None = None  # appended after that
    damaged: dict[BookieId, int] = field(default_factory=dict)  # entries that were appended when this bookie was
    may_lose: bool = False  # a bookie forgot what it had while the end was not stored: recovery believes its "no"

    def content(self, entry: EntryId) -> bytes:
        assert self.plan is not None
        return content(self.seed, self.id, self.creation, entry, self.plan.largest)

    @property
    def confirmed(self) -> EntryId:
        """The last entry that may be read."""
        end = self.metadata.last_entry if self.metadata.is_closed else NO_ENTRY
        return end if self.writer is None else max(self.writer.lac, end)

    @property
    def defers(self) -> bool:
        return self.plan is not None and self.plan.defers

    def length(self, last_entry: EntryId) -> int:
        """Return the payload bytes up to the end of an entry."""
        while len(self.lengths) <= last_entry + 1:
            self.lengths.append(self.lengths[-1] + len(self.content(len(self.lengths) - 1)))
        return self.lengths[last_entry + 1]

    def places(self, entry: EntryId) -> list[BookieId]:
        """Return the entry's write set, by the metadata; counted here on purpose, not by the code that is checked."""
        ensemble = self.metadata.ensemble_of(entry)
        return [ensemble[(entry + number) % len(ensemble)] for number in range(self.metadata.write_quorum)]

    def copies(self, entry: EntryId) -> int:
        """Return on how many bookies of its write set an entry must be: those that lost what they had do not count."""
        damaged_places = [bookie for bookie in self.places(entry) if entry < self.damaged.get(bookie, 0)]
        return self.metadata.ack_quorum - len(damaged_places)
