"""Entries whose ids the caller gives: the core against a twin that keeps every entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.given_ids import HELD_BYTES, GivenIdsCore, Hold, Refusal, Refuse, Release


class Twin:
    """Keeps every entry that was ever taken."""

    def __init__(self, bound: int) -> None:
        self.bound, self.taken, self.released = bound, dict[int, int](), set[int]()

    def appended(self, entry: int, size: int) -> Release | Hold | Refuse:
        if entry in self.taken:
            return Refuse(Refusal.EXISTS)
        missing = next(one for one in range(len(self.taken) + 1) if one not in self.taken)
        held = sum(self.taken[one] + HELD_BYTES for one in self.taken if one > missing)
        if entry != missing and held >= self.bound:
            return Refuse(Refusal.FULL)
        self.taken[entry] = size
        if entry != missing:
            return Hold()
        last = max(end for end in self.taken if all(one in self.taken for one in range(end + 1)))
        return Release(entry, last)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 400)), max_size=80), st.integers(1, 5000))
def test_the_core_does_as_its_twin(appends: list[tuple[int, int]], bound: int) -> None:
    core, twin = GivenIdsCore(0, bound), Twin(bound)
    for entry, size in appends:
        assert core.appended(entry, size) == twin.appended(entry, size)
        assert core.held_bytes < bound + 400 + HELD_BYTES


def test_29_an_id_that_is_confirmed_under_way_or_held_is_refused() -> None:
    core = GivenIdsCore(5, 1000)
    assert core.appended(4, 1) == Refuse(Refusal.EXISTS)
    assert core.appended(7, 1) == Hold()
    assert core.appended(7, 1) == Refuse(Refusal.EXISTS)
    assert core.appended(5, 1) == Release(5, 5)
    assert core.appended(5, 1) == Refuse(Refusal.EXISTS)
    assert core.appended(6, 1) == Release(6, 7)
    assert core.held_bytes == 0


def test_the_lowest_missing_id_is_let_in_however_much_is_held() -> None:
    core = GivenIdsCore(0, 1)
    assert core.appended((1 << 63) - 1, 10**9) == Hold()
    assert core.appended(2, 0) == Refuse(Refusal.FULL)
    assert core.appended(0, 10**9) == Release(0, 0)
    assert core.appended(1, 10**9) == Release(1, 1)
