"""Values that lie scattered in a buffer become the same arrays as values that are given one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.pipeline.gather import Spans, binary, integers, joined, maps, texts

VALUES = st.lists(st.binary(max_size=6) | st.binary(min_size=64, max_size=66), max_size=8)


def scattered(values: list[bytes]) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Spans]:
    parts = [part for value in values for part in (b"--", value)]
    sizes = np.array([len(value) for value in values], np.int64)
    return joined(parts), Spans(np.cumsum(sizes + 2) - sizes, sizes)


@given(VALUES, st.data())
def test_values_are_gathered_whatever_their_sizes(values: list[bytes], data: st.DataObject) -> None:
    valid = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    buffer, spans = scattered(values)
    gathered = binary(buffer, spans, np.array(valid, np.bool_))
    gathered.validate(full=True)
    assert gathered.to_pylist() == [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
    assert binary(buffer, spans).to_pylist() == values


@given(st.lists(st.none() | st.text(max_size=3).map(str.encode) | st.binary(max_size=3), max_size=6))
def test_texts_are_what_java_shows_of_bytes(values: list[bytes | None]) -> None:
    assert texts(pa.array(values, pa.binary())).to_pylist() == [
        None if value is None else value.decode(errors="replace") for value in values
    ]


def test_a_character_that_two_values_share_is_whole_in_neither() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert texts(pa.array([first, second], pa.binary())).to_pylist() == ["�", "�"]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_numbers_and_nulls(kind: pa.DataType) -> None:
    numbers = integers(np.array([1, -2, 3]), kind, np.array([True, False, True]))
    assert numbers.type == kind and numbers.to_pylist() == [1, None, 3]


def test_maps_have_the_pairs_between_two_offsets() -> None:
    pairs = maps(np.array([0, 1, 1, 3]), pa.array(["a", "b", "c"]), pa.array(["1", "2", "3"]))
    assert pairs.to_pylist() == [[("a", "1")], [], [("b", "2"), ("c", "3")]]
