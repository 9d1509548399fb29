"""Numbers as protobuf writes them, seven bits a byte and the lowest first, in columns of many that lie in even rows.

A number is spread over the bytes of a 64-bit lane, and one integer of Python is all lanes of a column: a step is one
operation for all of them::

    28 bits            …ddddddd ccccccc bbbbbbb aaaaaaa       where the number is
    spread             0ddddddd 0ccccccc 0bbbbbbb 0aaaaaaa    three steps: halves, quarters, bytes
    as it is written   aaaaaaa+80 bbbbbbb+80 ccccccc+80 ddddddd

Columns hold numbers of eight bytes (56 bits) and of one width; all others go one by one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache

Buffer = bytes | bytearray | memoryview

WIDEST_COLUMN = 8  # bytes of a number

_LANE = 8
_KEPT_LANES = 4096  # masks of so many lanes are made once
_GOES_ON = bytes(range(0x80, 0x100))  # bytes behind which there is more of a number
_MARK = bytes(byte | 0x80 for byte in range(0x100))  # what writes that into them
# The halves, quarters and bytes that a lane is spread over: (narrowest width that needs the step, bits to move, of how
# many bits the low part is, mask of the high part before the move).
_STEPS = (
    (5, 4, 0x0FFFFFFF, 0x00FFFFFFF0000000),
    (3, 2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000),
    (2, 1, 0x007F007F007F007F, 0x3F803F803F803F80),
)


def encode_varint(number: int) -> bytes:
    """Return the bytes of one number; a negative one has ten, as an int64 in protobuf."""
    number &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode_varint(data: Buffer) -> int:
    """Return the number that the bytes are, all of them, as an unsigned one. They are not judged."""
    number = 0
    for at, byte in enumerate(data):
        number |= (byte & 0x7F) << 7 * at
    return number


class Column:
    """Numbers of one width, ready to be written into rows: ``columns[i]`` is byte i of all of them."""

    __slots__ = ("columns", "width")

    def __init__(self, columns: list[bytes]) -> None:
        self.columns, self.width = columns, len(columns)

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Column | None:
        """Return the column of at least one number; None if their widths differ, or are too great for one."""
        try:
            lanes = array("q", numbers)
        except OverflowError:
            return None
        count = len(lanes)
        if sys.byteorder != "little":
            lanes.byteswap()
        value = int.from_bytes(lanes.tobytes(), "little")
        width = max(1, (numbers[0].bit_length() + 6) // 7)
        if width > WIDEST_COLUMN or value & _repeated((1 << 64) - (1 << 7 * width), count):
            return None
        for narrowest, bits, low, high in _STEPS:
            if width >= narrowest:
                value = value & _repeated(low, count) | (value & _repeated(high, count)) << bits
        spread = value.to_bytes(_LANE * count, "little")
        columns = [spread[at::_LANE].translate(_MARK) for at in range(width - 1)]
        columns.append(spread[width - 1 :: _LANE])
        return None if width > 1 and 0 in columns[-1] else cls(columns)

    def write(self, rows: bytearray, row_bytes: int, start: int) -> None:
        """Write the numbers into rows of ``row_bytes`` each, at ``start`` of each."""
        for at, column in enumerate(self.columns, start):
            rows[at::row_bytes] = column


def encode_varints(numbers: Sequence[int]) -> list[bytes]:
    """Return the bytes of each number."""
    column = Column.of(numbers) if numbers else None
    if column is None:
        return list(map(encode_varint, numbers))
    width = column.width
    flat = bytearray(width * len(numbers))
    column.write(flat, width, 0)
    encoded = bytes(flat)
    return [encoded[at : at + width] for at in range(0, len(encoded), width)]


def take_columns(rows: bytearray, row_bytes: int, spans: Sequence[tuple[int, int]]) -> list[array[int]] | None:
    """Return the numbers that stand in the spans of rows which are alike in everything else; None if these are not.

    A span is what a number takes in a row, start and stop, ``WIDEST_COLUMN`` at most. What stands there is overwritten.
    """
    count = len(rows) // row_bytes
    blank, columns = bytes(count), []
    for start, stop in spans:
        lanes = bytearray(_LANE * count)
        for lane_byte, at in enumerate(range(start, stop)):
            column = rows[at::row_bytes]
            is_last = at == stop - 1
            if not column.isascii() if is_last else column.translate(None, _GOES_ON):
                return None
            lanes[lane_byte::_LANE] = column
            rows[at::row_bytes] = blank
        columns.append(_gathered(lanes, stop - start))
    return columns if rows == rows[:row_bytes] * count else None


def _gathered(lanes: bytearray, width: int) -> array[int]:
    """Return the numbers that are spread over lanes."""
    count = len(lanes) // _LANE
    value = int.from_bytes(lanes, "little") & _repeated(0x7F7F7F7F7F7F7F7F, count)
    for narrowest, bits, low, high in reversed(_STEPS):
        if width >= narrowest:
            value = value & _repeated(low, count) | value >> bits & _repeated(high, count)
    numbers = array("q", value.to_bytes(_LANE * count, "little"))
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


def _repeated(pattern: int, count: int) -> int:
    """Return the pattern in so many lanes, or in some more."""
    if count > _KEPT_LANES:
        return int.from_bytes(pattern.to_bytes(_LANE, "little") * count, "little")
    return _power_of_two_lanes(pattern, 1 << (count - 1).bit_length())


@lru_cache(maxsize=256)
def _power_of_two_lanes(pattern: int, count: int) -> int:
    return int.from_bytes(pattern.to_bytes(_LANE, "little") * count, "little")
