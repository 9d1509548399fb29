"""Striping against its definition, and the worked examples of the documents."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.striping import Striping


@st.composite
def stripings(draw: st.DrawFn, largest: int = 6) -> Striping:
    ensemble = draw(st.integers(1, largest))
    write = draw(st.integers(1, ensemble))
    return Striping(ensemble, write, draw(st.integers(1, write)))


@pytest.mark.rule("Q4")
def test_q4_round_robin_over_three_bookies() -> None:
    striping = Striping(3, 2, 2)
    assert [striping.slots(entry) for entry in range(4)] == [(0, 1), (1, 2), (2, 0), (0, 1)]


@given(stripings(), st.integers(0, 5), st.integers(0, 40), st.integers(-1, 40))
def test_stripes_follow_from_the_write_sets(striping: Striping, slot: int, first: int, size: int) -> None:
    slot %= striping.ensemble_size
    last = first + size - 1
    expected = [entry for entry in range(first, last + 1) if slot in striping.slots(entry)]
    assert list(striping.stripe(slot, first, last)) == expected
    assert striping.count(slot, first, last) == len(expected)
    assert [striping.entry(slot, first, index) for index in range(len(expected))] == expected
    assert striping.next(slot, first) == next(e for e in range(first, first + 10) if slot in striping.slots(e))
    assert striping.stores(slot, first) == (slot in striping.slots(first))


@given(stripings(), st.integers(0, 5), st.permutations(range(12)), st.integers(0, 12))
def test_runs_hold_exactly_the_given_entries(striping: Striping, slot: int, order: list[int], size: int) -> None:
    slot %= striping.ensemble_size
    entries = [entry for entry in order[:size] if striping.stores(slot, entry)]
    runs = striping.runs(slot, entries)
    assert [entry for first, last in runs for entry in striping.stripe(slot, first, last)] == sorted(entries)
    for (_, last), (first, _) in pairwise(runs):
        assert striping.next(slot, last + 1) < first, "two runs that touch must be one"


def test_an_ordered_stripe_is_one_run() -> None:
    assert Striping(3, 2, 2).runs(0, [0, 2, 3, 5]) == [(0, 5)]
    assert Striping(3, 2, 2).runs(0, [0, 3, 5]) == [(0, 0), (3, 5)]
    assert Striping(3, 3, 2).runs(1, [4, 5, 5]) == [(4, 5)]


@pytest.mark.rule("Q12")
@pytest.mark.parametrize(("write", "ack", "needed"), [(5, 3, 3), (3, 2, 2), (3, 3, 1)])
def test_q12_so_many_fences_of_a_write_set_suffice(write: int, ack: int, needed: int) -> None:
    striping = Striping(write, write, ack)
    assert striping.no_quorum == needed
    for count in range(write + 1):
        assert all(striping.covered(slots) == (count >= needed) for slots in combinations(range(write), count))


@pytest.mark.rule("Q12")
def test_q12_with_striping_each_write_set_counts() -> None:
    assert not any(Striping(3, 2, 2).covered([slot]) for slot in range(3))
    assert all(Striping(3, 2, 2).covered(pair) for pair in combinations(range(3), 2))
    # Here a plain count over the ensemble, E - Qa + 1, would ask for one more.
    assert Striping(4, 2, 2).covered([0, 2]) and not Striping(4, 2, 2).covered([0, 1])
    assert Striping(6, 3, 2).covered([0, 1, 3, 4])


@pytest.mark.rule("Q12")
@given(stripings(), st.sets(st.integers(0, 5)))
def test_q12_covered_means_no_entry_can_be_acknowledged(striping: Striping, fenced: set[int]) -> None:
    can_ack = [
        sum(slot not in fenced for slot in striping.slots(entry)) >= striping.ack_quorum
        for entry in range(striping.ensemble_size)
    ]
    assert striping.covered(fenced) == (not any(can_ack))
