"""The index against a dictionary."""

from __future__ import annotations

import sys
from array import array
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.bookie import index
from tallystick.codec.pages import PADDING, PAGE_BITS, page_pieces

ids = st.one_of(st.integers(0, 9000), st.integers((1 << 60) - 5, (1 << 60) + 5000))


def enter(pages: index.Pages, log: int, entries: list[int]) -> dict[int, int]:
    """The entries as one log would have them, 100 bytes each."""
    locations = [(log << index.OFFSET_BITS) + 32 + 100 * place for place in range(len(entries))]
    for number, slot, piece in page_pieces(array("q", entries), array("Q", locations), 0):
        index.put(pages, number, slot, piece)
    return dict(zip(entries, locations, strict=True))


@given(st.lists(st.sets(ids, min_size=1, max_size=60), max_size=6))
def test_get_gives_the_newest_location(logs: list[set[int]]) -> None:
    pages = index.Pages()
    twin: dict[int, int] = {}
    for log, entries in enumerate(logs, 1):
        twin |= enter(pages, log, sorted(entries))
    for entry in {*twin, 0, 1, 4095, 4096, 1 << 60, (1 << 63) - 1}:
        assert index.get(pages, entry) == twin.get(entry, 0)


SCATTERED = st.one_of(
    st.sets(st.integers(0, 5000), min_size=1, max_size=40),
    st.builds(lambda first, size: set(range(first, first + size)), st.integers(0, 4095), st.integers(1, 400)),
    st.builds(lambda first, step: set(range(first, 4096, step)), st.integers(0, 4095), st.integers(1, 60)),
)


@given(st.lists(SCATTERED, max_size=8))
def test_dense_and_sparse_pages_are_one_map(logs: list[set[int]]) -> None:
    pages = index.Pages()
    twin: dict[int, int] = {}
    for log, entries in enumerate(logs, 1):
        twin |= enter(pages, log, sorted(entries))
    assert [index.get(pages, entry) for entry in range(5600)] == [twin.get(entry, 0) for entry in range(5600)]
    assert all(
        slot >= len(pages.get(number, ())) for number, rest in pages.sparse.items() for slot in rest[: len(rest) // 2]
    )


@given(st.lists(st.sets(st.integers(0, 300), min_size=1), min_size=1, max_size=4), st.data())
def test_neighbours_lie_together_in_one_log(logs: list[set[int]], data: st.DataObject) -> None:
    pages = index.Pages()
    twin: dict[int, int] = {}
    for log, entries in enumerate(logs, 1):
        twin |= enter(pages, log, sorted(entries))
    first, count = data.draw(st.integers(0, 310)), data.draw(st.integers(1, 50))
    end = twin.get(first, 0) + data.draw(st.integers(0, 3000))
    expected = 0
    while expected < count and 0 < twin.get(first + expected, 0) < end:
        if expected and twin[first + expected] != twin[first + expected - 1] + 100:
            break
        expected += 1
    assert index.neighbours(pages, first, count, end) == expected


@given(st.lists(st.sets(st.integers(0, 300), min_size=1), min_size=1, max_size=4), st.data())
def test_locations_are_those_up_to_the_first_that_is_in_no_log(logs: list[set[int]], data: st.DataObject) -> None:
    pages, apart = index.Pages(), data.draw(st.sampled_from((1, 30, 4096)))  # sparse ones, too, and on several pages
    twin: dict[int, int] = {}
    for log, entries in enumerate(logs, 1):
        twin |= enter(pages, log, sorted(entry * apart for entry in entries))
    asked = sorted(entry * apart for entry in data.draw(st.sets(st.integers(0, 310), min_size=1)))
    expected = [twin[entry] for entry in takewhile(twin.__contains__, asked)]
    assert list(index.locations(pages, array("q", asked))) == expected


def test_entries_that_lie_close_are_dense_and_those_that_lie_apart_are_sparse() -> None:
    pages = index.Pages()
    enter(pages, 1, [0, 2, 3])
    assert (list(map(len, pages.values())), pages.sparse) == ([4], {})
    enter(pages, 2, [(1 << 60) + 1])
    assert len(pages) == 2 and len(pages[(1 << 60) >> PAGE_BITS]) == 2
    enter(pages, 3, [300, 4000])
    assert (len(pages[0]), list(pages.sparse[0][:2])) == (4, [300, 4000])
    enter(pages, 4, list(range(4, 290)))  # near enough to the next entry to be padded up to it
    assert (len(pages[0]), list(pages.sparse[0][:1])) == (301, [4000])
    enter(pages, 5, list(range(301, 400)))
    enter(pages, 6, list(range(3000, 3300)))
    assert (len(pages[0]), list(pages.sparse[0][:1])) == (3300, [4000])


def test_a_sparse_page_becomes_dense_when_enough_entries_are_there() -> None:
    pages = index.Pages()
    for entry in range(4000, 4090):
        enter(pages, 1, [entry])
    assert not pages and len(pages.sparse[0]) == 180
    for entry in range(0, 4000, 24):
        enter(pages, 2, [entry])
    assert not pages.sparse and len(pages[0]) == 4090
    assert index.get(pages, 4089) == (1 << index.OFFSET_BITS) + 32
    assert index.get(pages, 24) == (2 << index.OFFSET_BITS) + 32


def test_no_pattern_of_ids_costs_more_than_a_bound_for_each_entry() -> None:
    """Kept in memory and written: dense zeros and the heads of pieces included."""
    for stride in (1, 2, 15, 16, 17, 18, 40, 100, 1000, 4095, 4096, 4097, 5000, 1 << 40):
        for size in (1, 2, 7):
            pages, written = index.Pages(), 0
            entries = [start * stride + 3000 + at * 3 for start in range(200) for at in range(size)]
            entries = sorted(set(entries))
            for number, slot, piece in page_pieces(array("q", entries), array("Q", range(len(entries))), 1):
                index.put(pages, number, slot, piece)
                written += 24 + 8 * len(piece)
            kept = sum(map(sys.getsizeof, (*pages.values(), *pages.sparse.values())))
            assert kept <= 260 * len(entries), (stride, size)
            assert written <= 8 * (PADDING + 4) * len(entries), (stride, size)
            assert [index.get(pages, entry) for entry in entries] == list(range(1, len(entries) + 1))
