"""Which entries of a ledger are on which places, and who of those should be replaced.

A *place* is a slot of one fragment: one bookie's stripe of a run of entries. Places of the newest fragment of a ledger
that is not CLOSED have no end yet: their entries are nobody's to copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.lost_runs import joined, lost_of, without_lost
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, Fragment, LedgerMetadata, Slot

SHOWN_RUNS = 8
PART_ENTRIES = 1024  # ids of one part of a stripe: to look for them in a long list takes some milliseconds

Sources = Callable[[EntryId], Sequence[BookieId]]  # whom to read an entry from, one after the other


@dataclass(frozen=True)
class Place:
    """The stripe of ``slot`` of the entries ``first`` … ``last`` is on ``bookie``; none if ``last`` is before
    ``first``."""

    first: EntryId
    last: EntryId
    slot: Slot
    bookie: BookieId
    ensemble: Ensemble


def places(metadata: LedgerMetadata, bookies: Collection[BookieId] | None = None) -> list[Place]:
    """Return the places of these bookies (None: of all) in fragments that have an end."""
    result = list[Place]()
    ends = [fragment.first - 1 for fragment in metadata.fragments[1:]]
    if metadata.is_closed:
        ends.append(metadata.last_entry)
    for fragment, last in zip(metadata.fragments, ends, strict=False):
        for slot, bookie in enumerate(fragment.bookies):
            if bookies is None or bookie in bookies:
                result.append(Place(fragment.first, last, slot, bookie, fragment.bookies))
    return result


def doubles(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> list[Place]:
    """Return the places of these bookies that another place of the same fragment shares its bookie with, but for the
    first one of each."""
    return [place for place in places(metadata, bookies) if place.bookie in place.ensemble[: place.slot]]


def stripe(metadata: LedgerMetadata, place: Place) -> Iterator[Sequence[EntryId]]:
    """Yield the entries of a place, without those that were given up, in parts: of millions, each an object, nobody
    has all at once."""
    striping, lost = Striping.of(metadata), lost_of(metadata.custom)
    for part in parts(place.first, place.last):
        yield without_lost(striping.stripe(place.slot, part[0], part[-1]), lost)


def parts(first: EntryId, last: EntryId) -> Iterator[range]:
    """Yield the entries ``first`` … ``last`` in parts that one turn of the loop has time for."""
    for at in range(first, last + 1, PART_ENTRIES):
        yield range(at, min(at + PART_ENTRIES, last + 1))


def within(entries: Sequence[EntryId], runs: Sequence[tuple[EntryId, EntryId]] | None) -> Sequence[EntryId]:
    """Return those of ascending entries that are in these runs, which ascend; all for None."""
    if runs is None:
        return entries
    return [
        entry for first, last in runs for entry in entries[bisect_left(entries, first) : bisect_right(entries, last)]
    ]


def is_open_at(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> bool:
    """Return whether one of these bookies is in a fragment that has no end yet."""
    return not metadata.is_closed and any(bookie in bookies for bookie in metadata.ensemble)


def runs_of(entries: Sequence[EntryId]) -> list[tuple[EntryId, EntryId]]:
    """Return ascending entries as runs, the first and the last entry of each."""
    runs = list[tuple[EntryId, EntryId]]()
    for entry in entries:
        if runs and runs[-1][1] == entry - 1:
            runs[-1] = (runs[-1][0], entry)
        else:
            runs.append((entry, entry))
    return runs


class Runs:
    """Runs of the entries that are added: the first ``most``; ``is_cut``: there are more."""

    def __init__(self, most: int) -> None:
        self._runs, self._most = list[tuple[EntryId, EntryId]](), most
        self.is_cut = False

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, entries: Iterable[EntryId]) -> None:
        """Add some, which lie behind those of before as a rule."""
        for first, last in runs_of(sorted(entries)):
            if self._runs and self._runs[-1][1] == first - 1:
                self._runs[-1] = (self._runs[-1][0], last)
            elif len(self._runs) < self._most:
                self._runs.append((first, last))
            else:
                self.is_cut = True
                return

    def all(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Return them in order."""
        return joined(self._runs)


def text_of(runs: Iterable[tuple[EntryId, EntryId]]) -> str:
    """Return runs of entries as text, the first ones."""
    texts = [f"{first}-{last}" if first < last else str(first) for first, last in islice(runs, SHOWN_RUNS + 1)]
    return ", ".join(texts[:SHOWN_RUNS]) + (", …" if len(texts) > SHOWN_RUNS else "")


def names(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> list[BookieId]:
    """Return which of these bookies any fragment names, in the order of the fragments."""
    return list(
        dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.bookies if bookie in bookies)
    )


def others(place: Place, entry: EntryId, striping: Striping) -> list[BookieId]:
    """Return the other bookies that should have an entry of the place."""
    return [place.ensemble[slot] for slot in striping.slots(entry) if slot != place.slot]


def replaced(metadata: LedgerMetadata, place: Place, target: BookieId) -> LedgerMetadata | None:
    """Return the metadata with the target at the place.

    Returns None if that is not what was copied: the place has another bookie, other entries, or its ensemble has the
    target already, which would have two copies of an entry then.
    """
    if place not in places(_as_copied(metadata, place), [place.bookie]):
        return None
    fragments = list[Fragment]()
    for fragment in metadata.fragments:
        if fragment.first == place.first:
            if target in fragment.bookies:
                return None
            bookies = (*fragment.bookies[: place.slot], target, *fragment.bookies[place.slot + 1 :])
            fragment = Fragment(fragment.first, bookies)
        fragments.append(fragment)
    return replace(metadata, fragments=tuple(fragments))


def _as_copied(metadata: LedgerMetadata, place: Place) -> LedgerMetadata:
    """Return the metadata with the other places of the fragment as they were: they may have changed meanwhile."""
    fragments = list[Fragment]()
    for fragment in metadata.fragments:
        if fragment.first == place.first and fragment.bookies[place.slot] == place.bookie:
            fragment = Fragment(fragment.first, place.ensemble)
        fragments.append(fragment)
    return replace(metadata, fragments=tuple(fragments))
