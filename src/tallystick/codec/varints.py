"""Numbers as protobuf writes them, seven bits a byte and the lowest first, in columns of many that lie in even rows.

A *plane* is one byte of all numbers of a column, as one integer of Python: a step is one operation for all of them. The
bytes that a number is written in are septets, made of its plain bytes, and the other way round::

    plain bytes   hgfedcba 21ponmlk        septets   1gfedcba 1onmlk.h 0.....21p, the low bits first

Columns hold numbers of nine septets at most, as a positive int64 has, and of one width; all others go one by one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

_WIDEST_COLUMN = 9  # septets

_KEPT_ROWS = 4096  # so many consecutive numbers are made as a sum
_GOES_ON = bytes(range(0x80, 0x100))  # septets behind which there is more of a number
_MARK = bytes(byte | 0x80 for byte in range(0x100))  # what makes such ones of all
_SHORT, _SHORT_BYTES = "i", 4  # of the array for numbers of as many septets
_LONG, _LONG_BYTES = "q", 8


def encode_varint(number: int) -> bytes:
    """Return the bytes of one number; a negative one has ten, as an int64 in protobuf."""
    number &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@lru_cache(maxsize=4096)
def encode_short_varint(number: int) -> bytes:
    """As ``encode_varint`` for lengths and others that come again."""
    return encode_varint(number)


def decode_varint(data: bytes) -> int:
    """Return the number that the bytes are, all of them, as an unsigned one. They are not judged."""
    return data[0] & 0x7F | _decode_rest(data[1:]) if len(data) > 1 else data[0]


@lru_cache(maxsize=4096)
def decode_short_varint(data: bytes) -> int:
    """As ``decode_varint`` for lengths and others that come again."""
    return decode_varint(data)


@lru_cache(maxsize=4096)
def _decode_rest(data: bytes) -> int:
    """Return the number without its lowest bits: numbers that follow each other have the same ones."""
    number = 0
    for at, byte in enumerate(data, 1):
        number |= (byte & 0x7F) << 7 * at
    return number


class Column:
    """Numbers of one width, ready to be written into rows: ``septets[i]`` is septet i of all of them."""

    __slots__ = ("septets", "width")

    def __init__(self, septets: list[bytes]) -> None:
        self.septets, self.width = septets, len(septets)

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Column | None:
        """Return the column of at least one number; None if their widths differ, or are too great for one."""
        count, width = len(numbers), max(1, (numbers[0].bit_length() + 6) // 7)
        if width > _WIDEST_COLUMN or numbers[-1].bit_length() > 7 * width:
            return None
        planes = _planes_of(numbers, count, width)
        if planes is None:
            return None
        septets = [
            (planes[low] >> right & mask | planes[high] << left & high_mask).to_bytes(count, "little")
            for low, right, mask, high, left, high_mask in _septet_steps(width, _rows(count))
        ]
        if width > 1 and 0 in septets[-1]:
            return None
        return cls([*[septet.translate(_MARK) for septet in septets[:-1]], septets[-1]])

    def write(self, rows: bytearray, row_bytes: int, start: int) -> None:
        """Write the numbers into rows of ``row_bytes`` each, at ``start`` of each."""
        for at, septet in enumerate(self.septets, start):
            rows[at::row_bytes] = septet


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


class Numbers(NamedTuple):
    """The numbers of a column: ``planes[i]`` is byte i of all of them, the lowest first; further ones are zero."""

    planes: list[bytes]

    def to_list(self) -> list[int]:
        """Return them one by one."""
        planes = self.planes
        code, size = (_SHORT, _SHORT_BYTES) if len(planes) <= _SHORT_BYTES else (_LONG, _LONG_BYTES)
        raw = bytearray(size * len(planes[0]))
        for at, plane in enumerate(planes):
            raw[at::size] = plane
        numbers = array(code, bytes(raw))
        if sys.byteorder != "little":
            numbers.byteswap()
        return numbers.tolist()


def take_columns(rows: bytearray, row_bytes: int, spans: Sequence[tuple[int, int]]) -> list[Numbers] | None:
    """Return the numbers that stand in the spans of rows which are alike in everything else; None if these are not.

    A span is what a number takes in a row, start and stop, nine bytes at most. What stands there is overwritten.
    """
    count = len(rows) // row_bytes
    blank, columns = bytes(count), []
    for start, stop in spans:
        septets = []
        for at in range(start, stop):
            septet = rows[at::row_bytes]
            if septet.translate(None, _GOES_ON) if at < stop - 1 else not septet.isascii():
                return None
            septets.append(int.from_bytes(septet, "little"))
            rows[at::row_bytes] = blank
        columns.append(Numbers(_planes(septets, count)))
    return columns if rows == rows[:row_bytes] * count else None


def _planes(septets: list[int], count: int) -> list[bytes]:
    return [
        (septets[low] >> right & mask | septets[high] << left & high_mask).to_bytes(count, "little")
        for low, right, mask, high, left, high_mask in _plane_steps(len(septets), _rows(count))
    ]


def _planes_of(numbers: Sequence[int], count: int, width: int) -> list[int] | None:
    """Return the planes of numbers; None if one does not fit into so many septets."""
    code, size = (_SHORT, _SHORT_BYTES) if width <= _SHORT_BYTES else (_LONG, _LONG_BYTES)
    highest, end = (7 * width - 1) // 8, size * count
    if isinstance(numbers, range) and numbers.step == 1 and count <= _KEPT_ROWS and numbers[0] >= 0:
        ones, ramp, most = _ramp(size, _rows(count))
        raw = (ramp + ones * numbers[0]).to_bytes(most, "little")
        return [int.from_bytes(raw[at:end:size], "little") for at in range(highest + 1)]
    try:
        lanes = array(code, numbers if isinstance(numbers, list) else list(numbers))  # from a list it is the fastest
    except OverflowError:
        return None
    if sys.byteorder != "little":
        lanes.byteswap()
    raw = lanes.tobytes()
    planes = [int.from_bytes(raw[at::size], "little") for at in range(size)]
    beyond = 0xFF << 7 * width - 8 * highest & 0xFF
    if any(planes[highest + 1 :]) or planes[highest] & _plane(beyond, _rows(count)):
        return None
    return planes


_Step = tuple[int, int, int, int, int, int]  # two planes: index, bits to the right or left, and what stays of it


def _steps(places: Sequence[int], bits: int, made_bits: int, count: int) -> list[_Step]:
    """Return the steps to planes of ``made_bits`` each from planes of ``bits``, of which there are ``places``."""
    steps = []
    for at in range((len(places) * bits + made_bits - 1) // made_bits):
        low, right = divmod(made_bits * at, bits)
        mask = (1 << min(bits - right, made_bits)) - 1
        high = low + 1 if low + 1 < len(places) else low
        high_mask = ((1 << made_bits) - 1) & ~mask if high > low else 0
        steps.append((low, right, _plane(mask, count), high, bits - right, _plane(high_mask, count)))
    return steps


@lru_cache(maxsize=128)
def _septet_steps(width: int, count: int) -> list[_Step]:
    return _steps(range((7 * width + 7) // 8), 8, 7, count)[:width]


@lru_cache(maxsize=128)
def _plane_steps(width: int, count: int) -> list[_Step]:
    return _steps(range(width), 7, 8, count)


@lru_cache(maxsize=32)
def _ramp(size: int, count: int) -> tuple[int, int, int]:
    """Return 1, 1, 1, … and 0, 1, 2, … in numbers of ``size`` bytes, and how many bytes their sums have."""
    ones = int.from_bytes((1).to_bytes(size, "little") * count, "little")
    ramp = int.from_bytes(b"".join(at.to_bytes(size, "little") for at in range(count)), "little")
    return ones, ramp, size * count


def _rows(count: int) -> int:
    """Return for how many rows the planes of steps are, so that these serve for many counts: the rest is cut off."""
    return 1 << (count - 1).bit_length()


@lru_cache(maxsize=512)
def _plane(byte: int, count: int) -> int:
    """Return a plane of the same byte in so many rows."""
    return int.from_bytes(bytes((byte,)) * count, "little")
