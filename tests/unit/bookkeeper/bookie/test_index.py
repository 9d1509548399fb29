"""The index against a dictionary."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.bookie import index

ids = st.one_of(st.integers(0, 9000), st.integers((1 << 60) - 5, (1 << 60) + 5000))


def enter(pages: index.Pages, log: int, entries: list[int]) -> dict[int, int]:
    """The entries as one log would have them, 100 bytes each."""
    locations = [(log << index.OFFSET_BITS) + 32 + 100 * place for place in range(len(entries))]
    for number, slot, piece in index.split(array("q", entries), array("Q", locations)):
        index.put(pages, number, slot, piece)
    return dict(zip(entries, locations, strict=True))


@given(st.lists(st.sets(ids, min_size=1, max_size=60), max_size=6))
def test_get_gives_the_newest_location(logs: list[set[int]]) -> None:
    pages: index.Pages = {}
    twin: dict[int, int] = {}
    for log, entries in enumerate(logs, 1):
        twin |= enter(pages, log, sorted(entries))
    for entry in {*twin, 0, 1, 4095, 4096, 1 << 60, (1 << 63) - 1}:
        assert index.get(pages, entry) == twin.get(entry, 0)


@given(st.lists(st.sets(st.integers(0, 300), min_size=1), min_size=1, max_size=4), st.data())
def test_neighbours_lie_together_in_one_log(logs: list[set[int]], data: st.DataObject) -> None:
    pages: index.Pages = {}
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


def test_a_page_is_as_long_as_its_highest_entry() -> None:
    pages: index.Pages = {}
    enter(pages, 1, [0, 2, 3])
    assert list(map(len, pages.values())) == [4]
    enter(pages, 2, [(1 << 60) + 1])
    assert len(pages) == 2 and len(pages[(1 << 60) >> index.PAGE_BITS]) == 2
