"""The ids of all entries of a ledger, compared with a plain set of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from support.stores import Store
from tallystick.bookkeeper.bookie import steps
from tallystick.bookkeeper.bookie.index import Pages, put
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.codec.pages import PAGE_SLOTS

ENTRIES = st.lists(
    st.one_of(
        st.integers(0, 100),
        st.integers(0, 3 * PAGE_SLOTS),
        st.sampled_from([PAGE_SLOTS - 1, PAGE_SLOTS, (1 << 63) - 1, (1 << 62) + 5]),
    ),
    min_size=1,
    max_size=40,
)


def runs(store: Store, ledger: int = 5) -> list[range]:
    found = store.storage.stored_ids(ledger)
    assert found is not None
    return list(found.runs())


def ids(found: list[range]) -> set[int]:
    assert all(before.stop < after.start for before, after in pairwise(found)), "ascending, and none touches the next"
    assert all(found)
    return {entry for run in found for entry in run}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ENTRIES, st.booleans()), min_size=1, max_size=5))
def test_they_are_those_of_a_set_wherever_entries_are(steps: list[tuple[list[int], bool]]) -> None:
    store, added = Store(), set[int]()
    for entries, checkpoint in steps:
        store.fill(5, entries, b"x")
        added.update(entries)
        if checkpoint:
            store.storage.checkpoint()
        assert ids(runs(store)) == added


def test_a_ledger_that_is_not_here_has_none_and_one_that_is_only_fenced_has_no_ids() -> None:
    store = Store()
    assert store.storage.stored_ids(5) is None
    store.storage.fence(5, b"k" * 20)
    assert runs(store) == []


def test_what_a_checkpoint_moves_meanwhile_is_among_them() -> None:
    store = Store()
    store.fill(5, range(0, 300, 3), b"x")
    plan = store.storage.checkpoints.begin()
    store.fill(5, [1, 1000], b"x")
    before = store.storage.stored_ids(5)
    assert before is not None
    store.storage.checkpoints.run(plan)
    store.storage.checkpoint()
    assert ids(list(before.runs())) == {*range(0, 300, 3), 1, 1000}


def test_ids_in_no_order_are_sorted_in_parts() -> None:
    many = [*range(3 * steps.SORTED_AT_ONCE)]
    for ordered in (many, many[::-1]):
        found = StoredIds(Pages(), [], [ordered])
        assert list(found.runs()) == [range(len(many))]


def test_an_entry_that_moves_within_its_page_is_seen_at_any_moment() -> None:
    """Another thread may look through it while its sparse rest becomes dense."""
    pages, entered = Pages(), set[int]()
    for slot in (*range(0, 3000, 25), *range(1, 3000, 25), *range(2, 3000, 7)):
        put(pages, 0, slot, array("Q", [7]))
        entered.add(slot)
        assert ids(list(StoredIds.of(pages, []).runs())) == entered


def test_many_runs_are_found_one_by_one() -> None:
    store = Store()
    store.fill(5, range(0, 2000, 2), b"x")
    store.storage.checkpoint()
    found = store.storage.stored_ids(5)
    assert found is not None
    lazily: Iterator[range] = found.runs()
    assert next(lazily) == range(0, 1) and len(list(lazily)) == 999


def test_a_snapshot_looks_at_no_page_by_itself() -> None:
    """The loop waits for it: with 300,000 sparse pages that took 0.1 s."""

    class Looked(Pages):
        looks = 0

        def __contains__(self, number: object) -> bool:
            self.looks += 1
            return super().__contains__(number)

    pages = Looked()
    for number in range(50):
        put(pages, number, 0, array("Q", [7]))
        put(pages, number, 3000, array("Q", [7]))
    pages.looks = 0
    found = StoredIds.of(pages, [])
    assert pages.looks == 0
    assert ids(list(found.runs())) == {number * PAGE_SLOTS + slot for number in range(50) for slot in (0, 3000)}
