"""What dispatched records add to queues and index; both codecs are compared in test_implementation.py, too."""

from __future__ import annotations

import struct
from array import array

import pytest

from tallystick.codec.dispatched import add_index_entries, encode_units
from tallystick.rocketmq.store.index_file import ENTRY
from tallystick.rocketmq.store.units import UNIT


def test_units_are_packed_one_after_another() -> None:
    units = [(0, 100, -1), (1 << 62, 0x7FFFFFFF, 1 << 62), (300, 1, 0)]
    physicals, sizes, tags_codes = map(list, zip(*units, strict=True))
    assert encode_units(physicals, sizes, tags_codes) == b"".join(UNIT.pack(*unit) for unit in units)
    assert encode_units([], [], []) == b""


@pytest.mark.parametrize("unit", [(1 << 63, 1, 1), (1, 1 << 31, 1), (1, 1, -1 - (1 << 63))])
def test_a_unit_with_a_number_too_large_is_refused(unit: tuple[int, int, int]) -> None:
    with pytest.raises(struct.error):
        encode_units(*([number] for number in unit))


def test_entries_are_chained_behind_their_slots() -> None:
    slots, dirty_pages = array("i", [0, 4, 0] + [0] * 1500), bytearray(2)
    hashes, physicals, stored_ms = [1, 1502, 1, 1503 + 1], [10, 20, 30, 40], [5000, 6999, 4000, 1 << 60]
    data, free_slots = add_index_entries(hashes, physicals, stored_ms, 5000, 9, slots, dirty_pages)
    assert list(ENTRY.iter_unpack(data)) == [
        (1, 10, 0, 4),  # the slot's entry before
        (1502, 20, 1, 0),
        (1, 30, 0, 9),  # no time before the file's first
        (1504, 40, 0x7FFFFFFF, 11),  # the same slot again, and the longest time
    ]
    assert free_slots == 1 and dirty_pages == b"\x01\x01"
    assert (slots[1], slots[1502], slots.count(0)) == (12, 10, 1501)


@pytest.mark.parametrize("key_hash", [1 << 31, (1 << 32) - 1, -1 - (1 << 31)])
def test_an_entry_with_a_hash_too_large_is_refused(key_hash: int) -> None:
    with pytest.raises(struct.error):
        add_index_entries([key_hash], [1], [1], 0, 1, array("i", [0] * 5), bytearray(1))


@pytest.mark.parametrize("begin_ms", [-(1 << 62), -(1 << 63)])
def test_times_may_be_as_far_apart_as_numbers_can_be(begin_ms: int) -> None:
    data, _ = add_index_entries([1], [1], [(1 << 63) - 1], begin_ms, 1, array("i", [0] * 5), bytearray(1))
    assert ENTRY.unpack(data) == (1, 1, 0x7FFFFFFF, 0)


def test_slots_without_a_page_are_not_written() -> None:
    slots = array("i", [0] * 1025)
    with pytest.raises(IndexError):
        add_index_entries([1024], [1], [1], 0, 1, slots, bytearray(1))
    with pytest.raises(ZeroDivisionError):
        add_index_entries([1], [1], [1], 0, 1, array("i"), bytearray(1))
