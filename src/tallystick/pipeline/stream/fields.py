"""Protobuf fields of many messages at once, by columns: each step takes one field of all messages that have it next.

It reads what encoders write, fields in the order of their numbers, each once, numbers of at most 56 bits, and knows
exactly what it read: a message with anything else is not ``whole``, and left to protobuf's own parser, the reference.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tallystick.pipeline.gather import Bytes, Flags, Numbers, Spans, windows

MOST_PAIRS = 64  # of a message: each takes a step of its own
INT_BITS = 31  # of a number of 32 bits that is not negative
_STOPS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_KEY, _VALUE = 0x0A, 0x12  # fields 1 and 2 of a pair, both texts


class Kind(enum.Enum):
    """What a field holds."""

    NUMBER = 0
    BYTES = 2
    PAIRS = 3  # any number of KeyValue


class Field(NamedTuple):
    """A field of a message. Numbers of more than ``bits`` are not read."""

    number: int
    kind: Kind
    bits: int = 56

    @property
    def tag(self) -> bytes:
        """How the field begins."""
        tag = self.number << 3 | (0 if self.kind is Kind.NUMBER else 2)
        return bytes((tag,)) if tag < 0x80 else bytes((tag & 0x7F | 0x80, tag >> 7))


@dataclass(slots=True)
class Pairs:
    """Names and values of some rows, in their order in each row."""

    rows: Numbers
    names: Spans
    values: Spans

    def of_rows_before(self, end: int) -> Pairs:
        """Returns those of the first rows."""
        chosen = np.flatnonzero(self.rows < end)
        return Pairs(self.rows[chosen], self.names.at(chosen), self.values.at(chosen))


@dataclass(slots=True)
class Fields:
    """What was read, by the fields' numbers; of a message that is not ``whole`` it says nothing.

    ``present`` says which messages have a field, and lacks those that none has. Absent numbers and spans are 0.
    """

    whole: Flags
    present: dict[int, Flags] = field(default_factory=dict)
    numbers: dict[int, Numbers] = field(default_factory=dict)
    spans: dict[int, Spans] = field(default_factory=dict)
    pairs: list[Pairs] = field(default_factory=list)

    def has(self, number: int) -> Flags:
        """Returns which messages have a field."""
        return self.present[number] if number in self.present else np.zeros(len(self.whole), np.bool_)

    def number(self, number: int) -> Numbers:
        """Returns the numbers of a field."""
        return self.numbers[number] if number in self.numbers else np.zeros(len(self.whole), np.int64)

    def span(self, number: int) -> Spans:
        """Returns where the bytes of a field are."""
        nothing = np.zeros(len(self.whole), np.int64)
        return self.spans[number] if number in self.spans else Spans(nothing, nothing)


def read_fields(data: Bytes, starts: Numbers, ends: Numbers, table: Sequence[Field]) -> Fields:
    """Read messages between ``starts`` and ``ends``. ``table``: the fields that are known, numbers ascending."""
    at, bad = starts.copy(), ends < starts
    fields = Fields(bad)
    for each in table:
        for _ in range(MOST_PAIRS if each.kind is Kind.PAIRS else 1):
            rows = np.flatnonzero(_begins(data, at, ends, each.tag) & ~bad)
            if not len(rows):
                break
            bad[rows] = ~_take(data, at, ends, rows, each, fields)
    fields.whole = (at == ends) & ~bad
    return fields


def _begins(data: Bytes, at: Numbers, ends: Numbers, tag: bytes) -> Flags:
    is_next: Flags = (data[at] == tag[0]) & (at + len(tag) <= ends)
    return is_next if len(tag) == 1 else is_next & (data[at + 1] == tag[1])


def _take(data: Bytes, at: Numbers, ends: Numbers, rows: Numbers, known: Field, fields: Fields) -> Flags:
    """Take one field of some rows. Returns which of them have a good one."""
    number, (values, place, good) = known.number, read_varints(data, at[rows] + len(known.tag))
    if known.kind is Kind.NUMBER:
        good &= values < 1 << known.bits
    stop = place if known.kind is Kind.NUMBER else place + values
    good &= stop <= ends[rows]
    if known.kind is Kind.PAIRS:
        names, pair_values, are_pairs = _read_pairs(data, np.where(good, place, 0), np.where(good, stop, 0))
        good &= are_pairs
        fields.pairs.append(Pairs(rows, names, pair_values))
    else:
        count = len(at)
        fields.present[number] = present = np.zeros(count, np.bool_)
        present[rows] = True
        if known.kind is Kind.NUMBER:
            fields.numbers[number] = _spread(values, rows, count)
        else:
            fields.spans[number] = Spans(_spread(place, rows, count), _spread(values, rows, count))
    at[rows] = np.where(good, stop, at[rows])
    return good


def _spread(values: Numbers, rows: Numbers, count: int) -> Numbers:
    if len(rows) == count:
        return values
    spread = np.zeros(count, np.int64)
    spread[rows] = values
    return spread


def _read_pairs(data: Bytes, starts: Numbers, ends: Numbers) -> tuple[Spans, Spans, Flags]:
    name_sizes, names, good = read_varints(data, starts + 1)
    good &= (ends - starts >= 4) & (data[starts] == _KEY) & (name_sizes <= ends - names)
    value_tags = np.where(good, names + name_sizes, 0)
    value_sizes, values, are_values = read_varints(data, value_tags + 1)
    good &= are_values & (value_tags < ends) & (data[value_tags] == _VALUE) & (values + value_sizes == ends)
    return Spans(names, name_sizes), Spans(values, value_sizes), good


def read_varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """Read a number of at most 8 bytes at each place. Returns the numbers, the places behind them, and which are good.

    A number is a varint: 7 bits a byte, the lowest first, and each byte but the last has its highest bit set.
    """
    words = windows(data, "<u8")[at]
    stops = ~words & _STOPS
    lowest = stops & (~stops + _ONE)
    good: Flags = stops != 0
    words &= lowest ^ (lowest - _ONE)
    words &= ~_STOPS
    words = words & np.uint64(0x007F007F007F007F) | (words & np.uint64(0x7F007F007F007F00)) >> _ONE
    words = words & np.uint64(0x00003FFF00003FFF) | (words & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
    words = words & np.uint64(0x000000000FFFFFFF) | (words & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
    _, exponents = np.frexp(lowest.astype(np.float64))  # of 2**n it is n + 1, and n + 1 is 8, 16, …
    return words.astype(np.int64), at + (exponents >> 3), good
