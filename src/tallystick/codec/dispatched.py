"""What a run of dispatched records adds to the files of queues and index, in one piece each.

``store.units`` has the form of a unit, ``store.index_file`` that of an entry.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from tallystick.codec.implementation import with_twin

PAGE_BITS = 10  # so many bits of a slot's number say where in its page it is
_UNIT = struct.Struct(">qiq")
_ENTRY = struct.Struct(">iqii")
_INT_MAX = 0x7FFFFFFF


@with_twin
def encode_units(physicals: Sequence[int], sizes: Sequence[int], tags_codes: Sequence[int]) -> bytes:
    """The units of records that are given by columns. Raises struct.error for a number that is too large."""
    return b"".join(map(_UNIT.pack, physicals, sizes, tags_codes))


@with_twin
def add_index_entries(
    hashes: Sequence[int],
    physicals: Sequence[int],
    stored_ms: Sequence[int],
    begin_ms: int,
    number: int,
    slots: array[int],
    dirty_pages: bytearray,
) -> tuple[bytes, int]:
    """The index entries ``number``, ``number`` + 1, … of keys that are given by columns; and how many slots were free.

    ``slots``, numbers of 32 bits, have the newest entry of each slot, 0 for none, and get the new ones; a byte of
    ``dirty_pages`` becomes 1 for each page of slots that changes. Raises struct.error for a number that is too large.
    """
    slot_count, previous = len(slots), list[int]()
    for entry, key_hash in enumerate(hashes, number):
        slot = key_hash % slot_count
        previous.append(slots[slot])
        slots[slot] = entry
        dirty_pages[slot >> PAGE_BITS] = 1
    after = {ms: min(max(0, ms - begin_ms) // 1000, _INT_MAX) for ms in set(stored_ms)}
    seconds = [after[ms] for ms in stored_ms]
    return b"".join(map(_ENTRY.pack, hashes, physicals, seconds, previous)), previous.count(0)
