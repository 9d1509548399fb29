"""Where entries are, by pages of their ids: an entry log's index has pieces of them (``bookkeeper.bookie.index``)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tallystick.codec.implementation import with_twin

PAGE_BITS = 12
PAGE_SLOTS = 1 << PAGE_BITS
SLOT_MASK = PAGE_SLOTS - 1
PADDING = 16  # so many zeros an entry may cost
_NO_PAGE = array("Q")


@with_twin
def page_pieces(entries: array[int], starts: array[int], base: int) -> list[tuple[int, int, array[int]]]:
    """Ascending entries by page: (page number, first slot, locations with zeros in the gaps) of each piece.

    An entry's location is ``base`` and its start. Behind a gap wider than ``PADDING`` another piece of the page begins.
    """
    locations = array("Q", [base + start for start in starts])
    pieces: list[tuple[int, int, array[int]]] = []
    start = 0
    while start < len(entries):
        first = entries[start]
        stop = bisect_left(entries, ((first >> PAGE_BITS) + 1) << PAGE_BITS, start)
        if entries[stop - 1] - first == stop - start - 1:
            pieces.append((first >> PAGE_BITS, first & SLOT_MASK, locations[start:stop]))
        else:
            pieces += _scattered(entries[start:stop], locations[start:stop])
        start = stop
    return pieces


def _scattered(entries: array[int], locations: array[int]) -> Iterator[tuple[int, int, array[int]]]:
    wide = (at for at in range(1, len(entries)) if entries[at] - entries[at - 1] > PADDING + 1)
    for start, stop in pairwise((0, *wide, len(entries))):
        first = entries[start]
        piece = array("Q", bytes(8 * (entries[stop - 1] - first + 1)))
        for entry, location in zip(entries[start:stop], locations[start:stop], strict=True):
            piece[entry - first] = location
        yield first >> PAGE_BITS, first & SLOT_MASK, piece


@with_twin
def dense_locations(pages: Mapping[int, array[int]], entries: Sequence[int]) -> array[int]:
    """The location of each entry, up to the first that has none: its slot is behind its page or has a zero there."""
    locations, page = array("Q"), _NO_PAGE
    number: int | None = None
    for entry in entries:
        if entry >> PAGE_BITS != number:
            number = entry >> PAGE_BITS
            page = pages.get(number, _NO_PAGE)
        slot = entry & SLOT_MASK
        if slot >= len(page) or not page[slot]:
            break
        locations.append(page[slot])
    return locations
