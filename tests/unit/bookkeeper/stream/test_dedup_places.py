"""Where numbered appends are: runs, compared with a place for each number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.dedup_places import DedupPlaces
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position

NUMBERS = 40


@given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, NUMBERS), st.integers(0, 9)), max_size=30))
def test_each_number_is_where_it_came_first(entries: list[tuple[str, int, int]]) -> None:
    """As long as numbers ascend; of those that go down the place is not kept."""
    most = 5
    places, kept = DedupPlaces(most), dict[tuple[str, int], Position]()
    order: list[list[tuple[str, int]]] = []  # of each entry the numbers that it was the first to have
    for entry, (producer, first, more) in enumerate(entries):
        last, highest = first + more, max((number for one, number in kept if one == producer), default=-1)
        places.add(producer, first, last, Position(1, entry))
        own = [(producer, number) for number in range(first, last + 1) if number > highest]
        kept |= {each: Position(1, entry, each[1] - first if more else -1) for each in own}
        if own:
            order.append(own)
        if len(order) > most:
            for each in order.pop(0):
                del kept[each]
    for producer in "pq":
        expected = [kept.get((producer, number), EARLIEST) for number in range(NUMBERS + 10)]
        assert places.of(producer, 0, NUMBERS + 10) == expected
        assert [places.of(producer, number, 1)[0] for number in range(NUMBERS + 10)] == expected


def test_a_range_that_nobody_has_is_nowhere() -> None:
    places = DedupPlaces(5)
    places.add("p", 10, 12, Position(1, 0))
    batch = [Position(1, 0, index) for index in range(3)]
    assert places.of("p", 8, 7) == [EARLIEST] * 2 + batch + [EARLIEST] * 2
    assert places.of("p", 0, 3) == places.of("q", 10, 3) == [EARLIEST] * 3
