"""Protobuf fields of many messages at once, by columns, as ``codec.messages`` reads them: what is not whole is left to
protobuf's own parser, the reference."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from tallystick.codec import messages
from tallystick.pipeline.gather import Flags, Numbers, Spans

INT_BITS = 31  # of a number of 32 bits that is not negative


class Kind(enum.IntEnum):
    """What a field holds."""

    NUMBER = messages.NUMBER
    BYTES = messages.BYTES
    PAIRS = messages.PAIRS


class Field(NamedTuple):
    """A field of a message. Numbers of more than ``bits`` are not read."""

    number: int
    kind: Kind
    bits: int = 56


class Table:
    """The fields of messages that are known, numbers ascending."""

    def __init__(self, *fields: Field) -> None:
        self.packed = bytes(number for field in fields for number in field)
        self.columns: dict[int, tuple[int, int]] = {}  # by a field's number: of its flags, and of its numbers
        self.flag_columns, self.number_columns = len(fields), 0
        for place, field in enumerate(fields):
            self.columns[field.number] = place, self.number_columns
            self.number_columns += {Kind.NUMBER: 1, Kind.BYTES: 2, Kind.PAIRS: 0}[field.kind]


class Pairs(NamedTuple):
    """Names and values of some rows, in their order in each row; rows ascend."""

    rows: Numbers
    names: Spans
    values: Spans

    def of_rows_before(self, end: int) -> Pairs:
        """Returns those of the first rows."""
        return self.at(slice(int(np.searchsorted(self.rows, end))))

    def at(self, places: Any) -> Pairs:
        """Returns some of them."""
        return Pairs(self.rows[places], self.names.at(places), self.values.at(places))


class Fields:
    """What was read, by the fields' numbers: absent numbers and spans are 0, as are those of a message that is not
    ``whole``."""

    def __init__(self, table: Table, scan: messages.Scan) -> None:
        whole, present, columns, pairs = scan
        self.whole: Flags = np.frombuffer(whole, np.bool_)
        count = len(self.whole)
        self._table = table
        self._present: list[Flags] = list(np.frombuffer(present, np.bool_).reshape(table.flag_columns, count))
        self._columns: list[Numbers] = list(np.frombuffer(columns, np.int64).reshape(table.number_columns, count))
        rows, names, name_sizes, values, value_sizes = np.frombuffer(pairs, np.int64).reshape(-1, 5).T.copy()
        self.pairs = Pairs(rows, Spans(names, name_sizes), Spans(values, value_sizes))

    def has(self, number: int) -> Flags:
        """Returns which messages have a field."""
        return self._present[self._table.columns[number][0]]

    def number(self, number: int) -> Numbers:
        """Returns the numbers of a field."""
        return self._columns[self._table.columns[number][1]]

    def span(self, number: int) -> Spans:
        """Returns where the bytes of a field are."""
        column = self._table.columns[number][1]
        return Spans(self._columns[column], self._columns[column + 1])
