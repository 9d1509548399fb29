"""Columns of numbers against one number at a time, and both against protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import requests_pb2 as pb
from tallystick.codec.varints import Column, decode_varint, encode_varint, encode_varints, take_columns

ANY = st.integers(-(1 << 63), (1 << 63) - 1)


def of_width(width: int) -> st.SearchStrategy[int]:
    return st.integers(0 if width == 1 else 1 << 7 * (width - 1), (1 << 7 * width) - 1)


@given(ANY)
def test_a_number_is_written_as_protobuf_writes_it(number: int) -> None:
    encoded = encode_varint(number)
    assert pb.OfLedger(ledger=number).SerializeToString() == b"\x08" + encoded
    assert decode_varint(encoded) == number & (1 << 64) - 1


@given(st.lists(ANY | st.integers(0, 300) | of_width(9), max_size=20))
def test_numbers_of_any_widths_are_written_as_each_alone(numbers: list[int]) -> None:
    assert encode_varints(numbers) == list(map(encode_varint, numbers))


@given(
    st.integers(1, 9), st.integers(1, 9), st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3), st.data()
)
def test_columns_are_rows_of_numbers(
    first_width: int, second_width: int, before: bytes, between: bytes, behind: bytes, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 40))
    first, second = (
        data.draw(st.lists(of_width(width), min_size=count, max_size=count)) for width in (first_width, second_width)
    )
    rows = [
        b"".join((before, encode_varint(one), between, encode_varint(other), behind))
        for one, other in zip(first, second, strict=True)
    ]
    row, at = len(rows[0]), len(before)
    other_at = at + first_width + len(between)
    blank = bytearray(b"".join((before, bytes(first_width), between, bytes(second_width), behind)) * count)
    for numbers, place in ((first, at), (second, other_at)):
        column = Column.of(numbers)
        assert column is not None
        column.write(blank, row, place)
    assert blank == b"".join(rows)
    spans = [(at, at + first_width), (other_at, other_at + second_width)]
    columns = take_columns(bytearray(blank), row, spans)
    assert columns is not None and [each.to_list() for each in columns] == [first, second]
    if before + between + behind:  # a row that is not like the others
        place = data.draw(st.sampled_from([i for i in range(row) if not any(a <= i < b for a, b in spans)]))
        which = data.draw(st.integers(0, count - 1))
        blank[which * row + place] ^= data.draw(st.integers(1, 255))
        assert (take_columns(bytearray(blank), row, spans) is None) == (count > 1)


@given(st.integers(1, 9), st.integers(0, 8), st.integers(2, 30), st.data())
def test_a_number_of_another_width_is_none_of_a_column(width: int, at: int, count: int, data: st.DataObject) -> None:
    rows = bytearray(encode_varint((1 << 7 * width) - 1) * count)
    place = data.draw(st.integers(0, count - 1)) * width + min(at, width - 1)
    rows[place] ^= 0x80
    assert take_columns(rows, width, [(0, width)]) is None


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=30), ANY)
def test_a_column_has_one_width(numbers: list[int], other: int) -> None:
    mixed = [*numbers, other]
    column = Column.of(mixed)
    widths = {len(encode_varint(number)) for number in mixed}
    assert (column is not None) == (len(widths) == 1 and widths <= set(range(1, 10)))


@given(st.integers(1, 9), st.integers(0, 10), st.integers(1, 20), st.integers(1, 2))
def test_consecutive_numbers_are_a_column_unless_their_width_grows(
    width: int, before: int, count: int, step: int
) -> None:
    first = max(0, (1 << 7 * width) - before)
    numbers = range(first, first + step * count, step)
    assert encode_varints(numbers) == list(map(encode_varint, numbers))


@pytest.mark.parametrize("count", [4095, 4096, 4097, 10_000])
def test_columns_of_many(count: int) -> None:
    numbers = range(1 << 28, (1 << 28) + count)
    column = Column.of(numbers)
    assert column is not None and column.width == 5
    rows = bytearray(5 * count)
    column.write(rows, 5, 0)
    columns = take_columns(rows, 5, [(0, 5)])
    assert columns is not None and columns[0].to_list() == list(numbers)
    assert Column.of([1 << 64]) is None
