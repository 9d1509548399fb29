"""Which entries of a ledger are on which places, and who of those should be replaced.

A *place* is a slot of one fragment: one bookie's stripe of a run of entries. Places of the newest fragment of a ledger
that is not CLOSED have no end yet: their entries are nobody's to copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.lost_runs import lost_of, without_lost
from tallystick.bookkeeper.wire.values import BookieId, Ensemble, EntryId, Fragment, LedgerMetadata, Slot

SHOWN_RUNS = 8

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
    found = list[Place]()
    ends = [fragment.first - 1 for fragment in metadata.fragments[1:]]
    if metadata.is_closed:
        ends.append(metadata.last_entry)
    for fragment, last in zip(metadata.fragments, ends, strict=False):
        for slot, bookie in enumerate(fragment.bookies):
            if bookies is None or bookie in bookies:
                found.append(Place(fragment.first, last, slot, bookie, fragment.bookies))
    return found


def doubles(metadata: LedgerMetadata, bookies: Collection[BookieId]) -> list[Place]:
    """Return the places of these bookies that another place of the same fragment shares its bookie with, but for the
    first one of each."""
    return [place for place in places(metadata, bookies) if place.bookie in place.ensemble[: place.slot]]


def stripe(metadata: LedgerMetadata, place: Place) -> Sequence[EntryId]:
    """Return the entries of a place, without those that were given up."""
    entries = Striping.of(metadata).stripe(place.slot, place.first, place.last)
    return without_lost(entries, lost_of(metadata.custom))


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


def text_of(runs: Sequence[tuple[EntryId, EntryId]]) -> str:
    """Return runs of entries as text, the first ones."""
    shown = [f"{first}-{last}" if first < last else str(first) for first, last in runs[:SHOWN_RUNS]]
    return ", ".join(shown) + (", …" if len(runs) > SHOWN_RUNS else "")


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
