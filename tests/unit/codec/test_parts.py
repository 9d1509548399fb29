"""Bytes in parts against the same bytes in one piece."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.checksum import crc32c
from tallystick.codec.parts import copy_parts, crc32c_of_parts

PARTS = st.lists(st.binary(max_size=50), max_size=10)


@given(PARTS, st.integers(0, (1 << 32) - 1))
def test_the_crc_of_parts_is_that_of_the_whole(parts: list[bytes], crc: int) -> None:
    assert crc32c_of_parts([memoryview(part) for part in parts], crc) == crc32c(b"".join(parts), crc)


@given(PARTS, st.integers(0, 20))
def test_parts_are_copied_to_the_start(parts: list[bytes], rest: int) -> None:
    whole = b"".join(parts)
    memory = bytearray(b"." * (len(whole) + rest))
    assert copy_parts(parts, memoryview(memory)) == len(whole)
    assert bytes(memory) == whole + b"." * rest


def test_parts_without_room_are_refused() -> None:
    with pytest.raises(ValueError):
        copy_parts([b"abc", b"def"], memoryview(bytearray(5)))
