"""Bitmaps of entries: compared with a set of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.acked_bitmaps import MOST_WORDS, bitmaps_of, runs_of
from tallystick.bookkeeper.wire.stream_values import AckedRange, Position

BITS = st.sets(st.integers(0, 400))


def words_of(bits: set[int]) -> list[int]:
    return [sum(1 << bit % 64 for bit in bits if bit // 64 == word) for word in range(max(bits, default=0) // 64 + 1)]


@given(BITS)
def test_runs_are_those_of_a_set(bits: set[int]) -> None:
    runs = runs_of(words_of(bits), most=500)
    assert {entry for first, last in runs for entry in range(first, last + 1)} == bits
    assert all(b > a + 1 for (_, a), (b, _) in itertools.pairwise(runs))


@given(st.lists(st.tuples(st.integers(-1, 300), st.integers(1, 300))))
def test_words_have_what_the_ranges_have(spans: list[tuple[int, int]]) -> None:
    """Whether they overlap or not, and in any order."""
    ranges = [AckedRange(Position(7, after), Position(7, after + count)) for after, count in spans]
    bits = {entry for after, count in spans for entry in range(after + 1, after + count + 1)}
    found = bitmaps_of(ranges)
    assert found == ({7: [*words_of(bits), *([0] * (max(bits) < 64))]} if bits else {})


def test_words_of_java_have_a_sign() -> None:
    assert runs_of([-1, -(1 << 63), 1], most=9) == [(0, 63), (127, 128)]


def test_ledgers_ascend() -> None:
    ranges = [AckedRange(Position(ledger, 4), Position(ledger, 5)) for ledger in (9, 2)]
    assert bitmaps_of(ranges) == {2: [32, 0], 9: [32, 0]}
    assert list(bitmaps_of(ranges) or ()) == [2, 9]


def test_bitmaps_have_a_bound() -> None:
    last = MOST_WORDS * 64 - 1
    assert bitmaps_of([AckedRange(Position(1, last - 1), Position(1, last))]) is not None
    assert bitmaps_of([AckedRange(Position(1, last), Position(1, last + 1))]) is None
    two = [AckedRange(Position(ledger, last - 1), Position(ledger, last)) for ledger in (1, 2)]
    assert bitmaps_of(two) is None


def test_what_bitmaps_cannot_say() -> None:
    assert bitmaps_of([AckedRange(Position(1, 4), Position(2, 5))]) is None
    assert bitmaps_of([AckedRange(Position(1, -3), Position(1, 5))]) is None


def test_so_many_runs_and_no_more() -> None:
    assert len(runs_of([0b10101], most=3)) == 3
    with pytest.raises(ValueError, match="too many ranges"):
        runs_of([0b10101], most=2)
