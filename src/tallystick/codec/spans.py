"""Values that lie scattered in one buffer: in one column where each begins, in another how many bytes it has.

A column is whatever has whole numbers of 64 bits as its buffer: an array, or one of numpy's.
"""

from __future__ import annotations

from array import array
from operator import add
from typing import Any

from tallystick.codec.checksum import crc32, crc32c
from tallystick.codec.implementation import with_twin

Buffer = bytes | bytearray | memoryview

_NUMBER_BYTES = 8


@with_twin
def crc32c_of_spans(data: Buffer, offsets: Any, sizes: Any) -> array[int]:
    """The CRC32C of each value. Raises ValueError for one that is not inside ``data``."""
    return array("q", map(crc32c, _values(data, offsets, sizes)))


@with_twin
def crc32_of_spans(data: Buffer, offsets: Any, sizes: Any) -> array[int]:
    """The CRC32 of each value, as ``crc32c_of_spans``."""
    return array("q", map(crc32, _values(data, offsets, sizes)))


@with_twin
def joined_spans(data: Buffer, offsets: Any, sizes: Any) -> bytes:
    """The values, one after another. Raises ValueError for one that is not inside ``data``."""
    return b"".join(_values(data, offsets, sizes))


def _values(data: Buffer, offsets: Any, sizes: Any) -> list[memoryview]:
    view, starts, lengths = memoryview(data), whole_numbers(offsets), whole_numbers(sizes)
    if len(starts) != len(lengths):
        raise ValueError("there are as many offsets as sizes")
    if starts and not (min(starts) >= 0 <= min(lengths) and max(map(add, starts, lengths)) <= len(view)):
        raise ValueError("a value is not inside its buffer")
    return [view[start : start + size] for start, size in zip(starts, lengths, strict=True)]


def whole_numbers(column: Any) -> list[int]:
    """The numbers of a column. Raises ValueError for those of another width."""
    view = memoryview(column)
    if view.itemsize != _NUMBER_BYTES:
        raise ValueError("a column has numbers of 64 bits")
    return view.cast("B").cast("q").tolist()
