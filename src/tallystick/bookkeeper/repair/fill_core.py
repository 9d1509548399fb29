"""What a bookie with ledgers in limbo must have before they leave it, and when a ledger that is gone leaves it.

::

    metadata, as of now       CLOSED     every entry that a fragment places here is here, and synced      it leaves
                              open       entries of all fragments but the last are fetched                it stays
                              names the bookie in no fragment                                             it leaves
                              none       twice, a minute apart                                            it leaves
                              unreadable                                                                  it stays
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.lost_runs import is_lost, lost_of
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata

GONE_S = 60.0


def is_named(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Return whether a fragment places entries at the bookie."""
    return any(bookie in fragment.bookies for fragment in metadata.fragments)


def placed(metadata: LedgerMetadata, bookie: BookieId, first: EntryId = 0) -> Iterator[EntryId]:
    """Return the entries from ``first`` on that the bookie must have, ascending: what is known to be confirmed, and
    placed at it, and was not given up. Of the last fragment of a ledger that is not closed nothing is known."""
    striping, fragments, lost = Striping.of(metadata), metadata.fragments, lost_of(metadata.custom)
    ends = [fragment.first for fragment in fragments[1:]]
    ends.append(metadata.last_entry + 1 if metadata.is_closed else fragments[-1].first)
    for fragment, end in zip(fragments, ends, strict=True):
        slots = [slot for slot, name in enumerate(fragment.bookies) if name == bookie]
        if not slots:
            continue
        for entry in range(max(first, fragment.first), end):
            if any(striping.stores(slot, entry) for slot in slots) and not is_lost(lost, entry):
                yield entry


def missing(entries: Iterable[EntryId], stored: Iterable[range], most: int) -> list[EntryId]:
    """Return those of the entries that are not stored, ``most`` at once; both ascend."""
    runs = iter(stored)
    run = next(runs, range(0))

    def lacks(entry: EntryId) -> bool:
        nonlocal run
        while run.stop <= entry:
            after = next(runs, None)
            if after is None:
                return True
            run = after
        return entry < run.start

    return list(islice(filter(lacks, entries), most))


def other_replicas(metadata: LedgerMetadata, bookie: BookieId, entry: EntryId) -> list[BookieId]:
    """Return the bookies of an entry's write set, without this one; entries begin at different ones of them."""
    ensemble = metadata.ensemble_of(entry)
    return [name for slot in Striping.of(metadata).slots(entry) if (name := ensemble[slot]) != bookie]


class GoneLedgers:
    """Ledgers whose metadata was not there when it was looked at, and since when."""

    def __init__(self) -> None:
        self._since: dict[LedgerId, float] = {}

    def absent(self, ledger: LedgerId, now: float) -> bool:
        """The metadata has no such ledger. Returns whether that was so before, and a minute ago."""
        return now - self._since.setdefault(ledger, now) >= GONE_S

    def present(self, ledger: LedgerId) -> None:
        """The metadata has it, or it has left limbo."""
        self._since.pop(ledger, None)
