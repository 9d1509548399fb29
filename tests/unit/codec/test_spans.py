"""Values that lie scattered in one buffer."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.checksum import crc32, crc32c
from tallystick.codec.spans import crc32_of_spans, crc32c_of_spans, joined_spans

DATA = bytes(range(200))


BOUNDS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)).map(sorted), max_size=20)


@given(BOUNDS)
def test_values_are_joined(bounds: list[list[int]]) -> None:
    offsets, sizes = array("q", [start for start, _ in bounds]), array("q", [end - start for start, end in bounds])
    assert joined_spans(DATA, offsets, sizes) == b"".join(DATA[start:end] for start, end in bounds)


@given(BOUNDS)
def test_each_value_has_its_crc(bounds: list[list[int]]) -> None:
    offsets, sizes = array("q", [start for start, _ in bounds]), array("q", [end - start for start, end in bounds])
    expected = array("q", [crc32c(DATA[start:end]) for start, end in bounds])
    assert crc32c_of_spans(DATA, offsets, sizes) == expected == crc32c_of_spans(memoryview(DATA), offsets, sizes)
    assert crc32_of_spans(DATA, offsets, sizes) == array("q", [crc32(DATA[start:end]) for start, end in bounds])


BIG = (1 << 63) - 1


@pytest.mark.parametrize("offset, size", [(0, 201), (200, 1), (201, 0), (-1, 1), (5, -1), (BIG, BIG), (1, BIG)])
def test_a_value_outside_the_buffer_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ValueError, match="inside"):
        crc32c_of_spans(DATA, array("q", [3, offset]), array("q", [4, size]))
    with pytest.raises(ValueError, match="inside"):
        joined_spans(DATA, array("q", [3, offset]), array("q", [4, size]))


def test_columns_of_other_numbers_or_of_unlike_length_are_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        crc32c_of_spans(DATA, array("i", [3, 4]), array("q", [4]))
    with pytest.raises(ValueError, match="64 bits"):
        crc32c_of_spans(DATA, array("q", [4]), bytes(8))
    with pytest.raises(ValueError, match="as many"):
        crc32c_of_spans(DATA, array("q", [3, 4]), array("q", [4]))
