from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.pipeline.cuts import Limits, Stretch, cut

stretches = st.lists(
    st.builds(
        lambda first, count, item_bytes: Stretch(first, first + count - 1, item_bytes),
        st.integers(0, 1000),
        st.integers(1, 300),
        st.integers(1, 5000),
    ),
    max_size=8,
)


@given(stretches, st.integers(1, 100_000), st.integers(1, 9))
def test_each_item_comes_once_and_in_order(wanted: list[Stretch], max_bytes: int, min_partitions: int) -> None:
    partitions = cut(wanted, Limits(max_bytes, min_partitions))
    found = [(number, item) for pieces in partitions for number, p in pieces for item in range(p.first, p.last + 1)]
    assert found == [(number, item) for number, s in enumerate(wanted) for item in range(s.first, s.last + 1)]
    assert all(pieces and all(piece.size > 0 for _, piece in pieces) for pieces in partitions)


@given(stretches, st.integers(1, 100_000))
def test_no_partition_is_fatter_than_allowed_by_more_than_an_item(wanted: list[Stretch], max_bytes: int) -> None:
    for pieces in cut(wanted, Limits(max_bytes)):
        size = sum(piece.size for _, piece in pieces)
        assert size < max_bytes + max(piece.item_bytes for _, piece in pieces)


def test_nothing_is_no_partition() -> None:
    assert cut([], Limits()) == []


def test_a_stretch_without_items_is_in_no_partition() -> None:
    some = Stretch(0, 9, 10)
    assert cut([some, Stretch(5, 4, 10), some], Limits()) == [[(0, some), (2, some)]]


def test_no_partition_has_more_items_than_it_may() -> None:
    parts = cut([Stretch(0, 6, 1), Stretch(3, 3, 1), Stretch(0, 3, 1)], Limits(max_partition_items=5))
    assert parts == [
        [(0, Stretch(0, 4, 1))],
        [(0, Stretch(5, 6, 1)), (1, Stretch(3, 3, 1)), (2, Stretch(0, 1, 1))],
        [(2, Stretch(2, 3, 1))],
    ]
    assert cut([], Limits(max_partition_items=5)) == []
