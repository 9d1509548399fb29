"""Where entries are in the entry logs: per ledger a map of pages, each a dense array of locations and a sparse rest.

A location is ``log id << 40 | offset of the frame in the log``; 0 means "not there" (log ids start at 1). A page covers
4,096 entry ids: ids may be as high as 2^63 - 1 and a striped bookie sees gaps. Its dense array begins with slot 0 and
has zeros in the gaps, at most 16 for each entry; entries that lie farther apart are in the sparse rest, sorted. So an
entry takes 8 bytes where ids are dense, and never more than some 200, an otherwise empty page included.

``codec.pages`` has a page's measures, and splits what an entry log brings by page. Another thread may look through a
ledger's ids while the loop enters locations: a sparse rest is replaced as a whole, and what moves from it to its page
is there before it leaves the rest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container

from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.pages import PADDING, PAGE_BITS, SLOT_MASK, dense_locations

OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1

Location = int


class Pages(dict[int, "array[int]"]):
    """Page number to dense array; ``sparse`` has what lies behind it: slots, then as many locations."""

    __slots__ = ("sparse",)

    def __init__(self) -> None:
        super().__init__()
        self.sparse: dict[int, array[int]] = {}


def get(pages: Pages, entry: EntryId) -> Location:
    """Return the entry's location, 0 if there is none."""
    page = pages.get(entry >> PAGE_BITS)
    slot = entry & SLOT_MASK
    if page is not None and slot < len(page):
        return page[slot]
    rest = pages.sparse.get(entry >> PAGE_BITS) if pages.sparse else None
    if rest is None:
        return 0
    at = _place(rest, slot)
    return rest[at + len(rest) // 2] if at >= 0 else 0


def _place(rest: array[int], slot: int) -> int:
    """Return where a slot is in a sparse rest, -1 if it is not there."""
    at = bisect_left(rest, slot, 0, len(rest) // 2)
    return at if at < len(rest) // 2 and rest[at] == slot else -1


def put(pages: Pages, number: int, slot: int, locations: array[int]) -> None:
    """Enter the locations of one page from ``slot`` on. They replace older ones; zeros replace nothing."""
    page = pages.get(number)
    end = len(page) if page is not None else 0
    if slot - end > PADDING and slot - end > PADDING * (len(locations) - locations.count(0)):
        _put_sparse(pages, number, slot, locations)
        return
    if page is None:
        page = pages[number] = array("Q")
    if number in pages.sparse:  # what was beyond the end may not be any more; it is older than what comes
        _pad(page, slot + len(locations))
        _absorb(pages, number, page)
    _pad(page, slot)
    if len(page) == slot or 0 not in locations:
        page[slot : slot + len(locations)] = locations
        return
    _pad(page, slot + len(locations))
    for at, location in enumerate(locations, slot):
        if location:
            page[at] = location


def drop(pages: Pages, logs: Container[int]) -> None:
    """Forget the locations in these logs."""
    for number in list(pages):
        page = pages[number]
        if any(location >> OFFSET_BITS in logs for location in page):
            pages[number] = array("Q", [0 if location >> OFFSET_BITS in logs else location for location in page])
    for number, rest in list(pages.sparse.items()):
        count = len(rest) // 2
        kept = [at for at in range(count) if rest[at + count] >> OFFSET_BITS not in logs]
        if not kept:
            del pages.sparse[number]
        elif len(kept) < count:
            pages.sparse[number] = array("Q", [*(rest[at] for at in kept), *(rest[at + count] for at in kept)])


def highest(pages: Pages) -> EntryId:
    """Return the highest entry that has a location, -1 if none has."""
    numbers: list[int] = sorted({*pages, *pages.sparse}, reverse=True)
    for number in numbers:
        rest, page = pages.sparse.get(number), pages.get(number, array("Q"))
        if rest:
            return (number << PAGE_BITS) + int(rest[len(rest) // 2 - 1])
        slot = next((slot for slot in range(len(page) - 1, -1, -1) if page[slot]), -1)
        if slot >= 0:
            return (number << PAGE_BITS) + slot
    return -1


def _pad(page: array[int], size: int) -> None:
    if len(page) < size:
        page.frombytes(bytes(8 * (size - len(page))))


def _put_sparse(pages: Pages, number: int, slot: int, locations: array[int]) -> None:
    rest = pages.sparse.setdefault(number, array("Q"))
    for place, location in enumerate(locations, slot):
        if not location:
            continue
        count = len(rest) // 2
        at = bisect_left(rest, place, 0, count)
        if at < count and rest[at] == place:
            rest[at + count] = location
        else:
            entered = array("Q", (place,)), array("Q", (location,))
            rest = rest[:at] + entered[0] + rest[at : at + count] + entered[1] + rest[at + count :]
            pages.sparse[number] = rest
    count = len(rest) // 2
    page = pages.get(number)
    if rest[count - 1] - (len(page) if page is not None else 0) < PADDING * count:  # it is dense by now
        if page is None:
            page = pages[number] = array("Q")
        _pad(page, rest[count - 1] + 1)
        _absorb(pages, number, page)


def _absorb(pages: Pages, number: int, page: array[int]) -> None:
    """Move what lies in a dense page, or not far behind it, from its sparse rest to it."""
    rest = pages.sparse[number]
    count = len(rest) // 2
    at = 0
    while at < count and rest[at] - len(page) <= PADDING:
        _pad(page, rest[at] + 1)
        page[rest[at]] = rest[at + count]
        at += 1
    if at < count:
        pages.sparse[number] = rest[at:count] + rest[at + count :]
    else:
        del pages.sparse[number]


def last_of(number: int, slot: int, locations: array[int]) -> EntryId:
    """Return the highest entry of a piece of a page; pieces do not end in a zero."""
    return (number << PAGE_BITS) + slot + len(locations) - 1


def neighbours(pages: Pages, first: EntryId, count: int, end: Location) -> int:
    """Count how many of ``count`` entries from ``first`` lie one after another in one log before the location ``end``.

    A log is sorted by (ledger, entry) and has an entry once. So when a slice of a page has locations of one log only,
    nothing lies between them.
    """
    page = pages.get(first >> PAGE_BITS)
    slot = first & SLOT_MASK
    run = page[slot : slot + count] if page is not None and slot < len(page) else _sparse_run(pages, first, count)
    if not run or not run[0]:
        return 0
    if min(run) != run[0] or max(run) > run[0] | OFFSET_MASK:
        foreign = (at for at, location in enumerate(run) if not run[0] <= location <= run[0] | OFFSET_MASK)
        run = run[: next(foreign)]
    return bisect_left(run, end)


def locations(pages: Pages, entries: array[int]) -> array[int]:
    """Return where entries are, up to the first that is in no log."""
    places = dense_locations(pages, entries)
    while pages.sparse and len(places) < len(entries) and (place := get(pages, entries[len(places)])):
        places.append(place)
    return places


def _sparse_run(pages: Pages, first: EntryId, count: int) -> array[int]:
    """Return the locations of entries from ``first`` on that are in the sparse rest without a gap."""
    rest = pages.sparse.get(first >> PAGE_BITS, array("Q"))
    slot, slots = first & SLOT_MASK, len(rest) // 2
    at = _place(rest, slot)
    if at < 0:
        return array("Q")
    size = next((step for step in range(1, min(count, slots - at)) if rest[at + step] != slot + step), None)
    stop = at + (min(count, slots - at) if size is None else size)
    return rest[at + slots : stop + slots]
