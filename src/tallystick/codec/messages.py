"""Protobuf messages that lie scattered in one buffer, by columns: of each field that is known one, over all messages.

What encoders write is read: fields in the order of their numbers, each once, numbers of at most 56 bits. A message with
anything else is not whole, and left to protobuf's own parser; of it there is nothing in the columns.

A table has three bytes for each field, numbers ascending: its number, its kind, and how many bits a number may have. A
``Scan`` is four columns in bytes: flags of the messages that are whole; for each field a flag of each message, whether
it has it; for each field whole numbers of 64 bits, of a NUMBER its value, of BYTES where they begin and how many they
are, each over all messages; and for each pair, in the order of the messages, five numbers: its message, where its name
begins and how many bytes that has, and its value the same.
"""

from __future__ import annotations

from array import array
from typing import Any

from tallystick.codec.implementation import with_twin
from tallystick.codec.spans import whole_numbers

Buffer = bytes | bytearray | memoryview
Scan = tuple[bytes, bytes, bytes, bytes]

NUMBER, BYTES, PAIRS = 0, 2, 3  # kinds of fields: pairs are any number of messages with two texts, a name and a value
MOST_PAIRS = 64  # of a message
MOST_FIELDS = 32  # of a table
_VARINT_BYTES = 8
_NAME, _VALUE = 0x0A, 0x12  # how the texts of a pair begin
_SHORTEST_PAIR = 4
_LENGTH_BYTES = 4


@with_twin
def scan_messages(data: Buffer, starts: Any, ends: Any, table: bytes) -> Scan:
    """Read the messages between each two places. One that ends before it starts is not whole.

    Raises ValueError for places outside of the buffer.
    """
    places, view = list(zip(whole_numbers(starts), whole_numbers(ends), strict=True)), memoryview(data)
    rows = _Rows(len(places), table)
    for row, (start, end) in enumerate(places):
        if start < 0 or not 0 <= end <= len(view):
            raise ValueError("a message is not inside its buffer")
        rows.take(row, view, start, end)
    return rows.scan()


@with_twin
def scan_members(
    data: Buffer, starts: Any, ends: Any, counts: Any, table: bytes, size_field: int, longest: int
) -> tuple[int, bytes, Scan]:
    """Read batches between each two places: so many members each, whose messages have their length in front, of at most
    ``longest``, and behind them as many bytes of content as the field with the number ``size_field`` says.

    Returns how many batches were read, up to the first that has another form or no room for its members; where the
    content of each member begins; and the messages. Those from that batch on are not whole. Raises ValueError as
    ``scan_messages``, and for counts that are negative.
    """
    member_counts, view = whole_numbers(counts), memoryview(data)
    batches = list(zip(whole_numbers(starts), whole_numbers(ends), member_counts, strict=True))
    if min(member_counts, default=0) < 0:
        raise ValueError("a batch has some members")
    rows, contents = _Rows(sum(member_counts), table), array("q", bytes(8 * sum(member_counts)))
    at_size = rows.column_of(size_field)
    row = 0
    for batch, (start, end, count) in enumerate(batches):
        if start < 0 or not 0 <= end <= len(view):
            raise ValueError("a batch is not inside its buffer")
        first = row
        for row in range(first, first + count):
            metadata = start + _LENGTH_BYTES
            content = metadata + int.from_bytes(view[start:metadata], "big") if metadata <= end else end + 1
            if content > end or content - metadata > longest or not rows.take(row, view, metadata, content):
                break
            start, contents[row] = content + rows.columns[at_size][row], content
            if start > end:
                break
        else:
            row = first + count
            continue
        rows.drop(first)
        contents[first:] = array("q", bytes(8 * (len(contents) - first)))
        return batch, contents.tobytes(), rows.scan()
    return len(batches), contents.tobytes(), rows.scan()


class _Rows:
    """A ``Scan`` in the making."""

    def __init__(self, count: int, table: bytes) -> None:
        if len(table) % 3 or len(table) > 3 * MOST_FIELDS:
            raise ValueError("a table has three bytes for each field")
        self.fields = list(zip(table[::3], table[1::3], table[2::3], strict=True))
        if any(kind not in (NUMBER, BYTES, PAIRS) or bits > 62 for _, kind, bits in self.fields):
            raise ValueError("a table has other kinds of fields")
        self.whole = bytearray(count)
        self.present = [bytearray(count) for _ in self.fields]
        column_count = sum(_COLUMNS[kind] for _, kind, _ in self.fields)
        self.columns = [array("q", bytes(8 * count)) for _ in range(column_count)]
        self.pairs: list[tuple[int, int, int, int, int]] = []

    def column_of(self, number: int) -> int:
        """Returns the column of a field. Raises ValueError if that is none with a number."""
        column = 0
        for each, kind, _ in self.fields:
            if (each, kind) == (number, NUMBER):
                return column
            column += _COLUMNS[kind]
        raise ValueError("the field is none of the table, or has no number")

    def take(self, row: int, view: memoryview, at: int, end: int) -> bool:
        """Take a message. Returns whether it is whole."""
        pair_count, column = len(self.pairs), 0
        for place, (number, kind, bits) in enumerate(self.fields):
            tag = _tag_of(number, kind)
            for _ in range(MOST_PAIRS if kind == PAIRS else 1):
                if at + len(tag) > end or view[at : at + len(tag)] != tag:
                    break
                value, at, good = _read_varint(view, at + len(tag), end)
                if not good or (value >= 1 << bits if kind == NUMBER else value > end - at):
                    return self._not_whole(row, pair_count)
                self.present[place][row] = 1
                if kind == PAIRS:
                    pair = _read_pair(view, at, at + value)
                    if pair is None:
                        return self._not_whole(row, pair_count)
                    self.pairs.append((row, *pair))
                elif kind == BYTES:
                    self.columns[column][row], self.columns[column + 1][row] = at, value
                else:
                    self.columns[column][row] = value
                at += 0 if kind == NUMBER else value
            column += _COLUMNS[kind]
        if at != end:
            return self._not_whole(row, pair_count)
        self.whole[row] = 1
        return True

    def drop(self, first: int) -> None:
        """Forget the messages from ``first`` on."""
        for row in range(first, len(self.whole)):
            self._not_whole(row, len(self.pairs))
        self.pairs = [pair for pair in self.pairs if pair[0] < first]

    def _not_whole(self, row: int, pair_count: int) -> bool:
        for column in (self.whole, *self.present, *self.columns):
            column[row] = 0
        del self.pairs[pair_count:]
        return False

    def scan(self) -> Scan:
        columns = b"".join(column.tobytes() for column in self.columns)
        pairs = array("q", [number for pair in self.pairs for number in pair])
        return bytes(self.whole), b"".join(self.present), columns, pairs.tobytes()


_COLUMNS = {NUMBER: 1, BYTES: 2, PAIRS: 0}


def _tag_of(number: int, kind: int) -> bytes:
    """Returns how a field begins."""
    tag = number << 3 | (0 if kind == NUMBER else 2)
    return bytes((tag,)) if tag < 0x80 else bytes((tag & 0x7F | 0x80, tag >> 7))


def _read_varint(view: memoryview, at: int, end: int) -> tuple[int, int, bool]:
    """Returns a number, 7 bits a byte, the lowest first, the place behind it, and whether it is all there."""
    value = 0
    for place, byte in enumerate(view[at : min(end, at + _VARINT_BYTES)]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1, True
    return 0, at, False


def _read_pair(view: memoryview, at: int, end: int) -> tuple[int, int, int, int] | None:
    """Returns where a name begins, how many bytes it has, and its value the same."""
    if end - at < _SHORTEST_PAIR or view[at] != _NAME:
        return None
    name_size, name, good = _read_varint(view, at + 1, end)
    if not good or name_size >= end - name or view[name + name_size] != _VALUE:
        return None
    value_size, value, good = _read_varint(view, name + name_size + 1, end)
    return (name, name_size, value, value_size) if good and value + value_size == end else None
