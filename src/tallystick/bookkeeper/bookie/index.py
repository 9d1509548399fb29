"""Where entries are in the entry logs: per ledger a sparse map of pages, each a dense array of locations.

A location is ``log id << 40 | offset of the frame in the log``; 0 means "not there" (log ids start at 1). A page covers
4,096 entry ids and is only as long as its highest entry: ids may be as high as 2^63 - 1 and a striped bookie sees gaps.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from tallystick.bookkeeper.wire.values import EntryId

OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1
PAGE_BITS = 12
PAGE_SLOTS = 1 << PAGE_BITS
SLOT_MASK = PAGE_SLOTS - 1

Location = int
Pages = dict[int, "array[int]"]


def get(pages: Pages, entry: EntryId) -> Location:
    """The entry's location, or 0."""
    page = pages.get(entry >> PAGE_BITS)
    slot = entry & SLOT_MASK
    return page[slot] if page is not None and slot < len(page) else 0


def put(pages: Pages, number: int, slot: int, locations: array[int]) -> None:
    """Enter the locations of one page from ``slot`` on. They replace older ones; zeros replace nothing."""
    page = pages.get(number)
    if page is None:
        page = pages[number] = array("Q")
    if len(page) < slot:
        page.frombytes(bytes(8 * (slot - len(page))))
    if len(page) == slot or 0 not in locations:
        page[slot : slot + len(locations)] = locations
        return
    page.frombytes(bytes(8 * max(0, slot + len(locations) - len(page))))
    for at, location in enumerate(locations, slot):
        if location:
            page[at] = location


def split(entries: array[int], locations: array[int]) -> Iterator[tuple[int, int, array[int]]]:
    """Ascending entries and their locations by page: (page number, first slot, locations with zeros in the gaps)."""
    start = 0
    while start < len(entries):
        first = entries[start]
        number = first >> PAGE_BITS
        stop = bisect_left(entries, (number + 1) << PAGE_BITS, start)
        span = entries[stop - 1] - first + 1
        dense = locations[start:stop]
        if span != stop - start:
            dense = array("Q", bytes(8 * span))
            for entry, location in zip(entries[start:stop], locations[start:stop], strict=True):
                dense[entry - first] = location
        yield number, first & SLOT_MASK, dense
        start = stop


def last_of(number: int, slot: int, locations: array[int]) -> EntryId:
    """The highest entry of a piece of a page; pieces do not end in a zero."""
    return (number << PAGE_BITS) + slot + len(locations) - 1


def neighbours(pages: Pages, first: EntryId, count: int, end: Location) -> int:
    """How many of ``count`` entries from ``first`` lie one after another in one log before the location ``end``.

    A log is sorted by (ledger, entry) and has an entry once. So when a slice of a page has locations of one log only,
    nothing lies between them.
    """
    page = pages.get(first >> PAGE_BITS)
    slot = first & SLOT_MASK
    if page is None or slot >= len(page) or not page[slot]:
        return 0
    run = page[slot : slot + count]
    if min(run) != run[0] or max(run) > run[0] | OFFSET_MASK:
        foreign = (at for at, location in enumerate(run) if not run[0] <= location <= run[0] | OFFSET_MASK)
        run = run[: next(foreign)]
    return bisect_left(run, end)
