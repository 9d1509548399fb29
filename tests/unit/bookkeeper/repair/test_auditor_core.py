"""Which bookies are lost, and when."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.repair.auditor_core import AuditorCore, Hold, Lose, Return
from tallystick.bookkeeper.wire.values import BookieId

KNOWN = tuple(f"b{number}" for number in range(9))


def without(*gone: str) -> list[str]:
    return [bookie for bookie in KNOWN if bookie not in gone]


def test_a_bookie_is_lost_when_it_was_gone_for_the_whole_grace() -> None:
    core = AuditorCore(600)
    assert core.looked(0, KNOWN, KNOWN) == [] and core.wake_at() is None
    assert core.looked(10, KNOWN, without("b1")) == [] and core.wake_at() == 610
    assert core.looked(609.9, KNOWN, without("b1")) == []
    assert core.looked(610, KNOWN, without("b1")) == [Lose(("b1",))]
    assert core.looked(700, KNOWN, without("b1")) == [] and core.lost == ("b1",) and core.wake_at() is None


def test_one_that_comes_back_begins_anew() -> None:
    core = AuditorCore(600)
    core.looked(0, KNOWN, without("b1"))
    assert core.looked(599, KNOWN, KNOWN) == [Return("b1", 599)]
    assert core.looked(601, KNOWN, without("b1")) == [] and core.wake_at() == 1201
    core.looked(1201, KNOWN, without("b1"))
    assert core.looked(1300, KNOWN, KNOWN) == [Return("b1", 699)] and core.lost == ()


def test_a_rolling_restart_loses_nobody() -> None:
    core = AuditorCore(60)
    for turn, bookie in enumerate(KNOWN * 3):
        actions = core.looked(turn * 50, KNOWN, without(bookie))
        assert all(isinstance(action, Return) for action in actions)
    assert core.lost == ()


def test_too_many_at_once_are_held_for_another_grace() -> None:
    core, gone = AuditorCore(600), ("b0", "b1", "b2", "b3")
    core.looked(0, KNOWN, without(*gone))
    assert core.looked(600, KNOWN, without(*gone)) == [Hold(gone, 1200)]
    assert core.wake_at() == 1200
    assert core.looked(1199, KNOWN, without(*gone)) == []
    assert core.looked(1200, KNOWN, without(*gone)) == [Lose(gone)]


def test_a_third_is_not_too_many() -> None:
    core, gone = AuditorCore(600), ("b0", "b1", "b2")
    core.looked(0, KNOWN, without(*gone))
    assert core.looked(600, KNOWN, without(*gone)) == [Lose(gone)]


def test_one_of_two_is_not_too_many() -> None:
    core = AuditorCore(600)
    core.looked(0, ["b0", "b1"], ["b0"])
    assert core.looked(600, ["b0", "b1"], ["b0"]) == [Lose(("b1",))]


def test_those_that_go_one_by_one_within_a_grace_are_too_many() -> None:
    core = AuditorCore(600)
    core.looked(0, KNOWN, without("b0"))
    core.looked(200, KNOWN, without("b0", "b1"))
    core.looked(400, KNOWN, without("b0", "b1", "b2"))
    core.looked(599, KNOWN, without("b0", "b1", "b2", "b3"))
    assert core.looked(600, KNOWN, without("b0", "b1", "b2", "b3")) == [Hold(("b0",), 1200)]


def test_a_lost_one_counts_for_those_that_go_within_its_grace() -> None:
    core, known = AuditorCore(600), ["b0", "b1", "b2", "b3"]
    core.looked(0, known, known[1:])
    core.looked(599, known, known[2:])
    assert core.looked(600, known, known[2:]) == [Hold(("b0",), 1200)]
    core.looked(1199, known, known[2:])
    assert core.looked(1200, known, known[2:])[0] == Lose(("b0",))


def test_held_ones_that_come_back_are_not_lost() -> None:
    core, gone = AuditorCore(600), ("b0", "b1", "b2", "b3")
    core.looked(0, KNOWN, without(*gone))
    core.looked(600, KNOWN, without(*gone))
    core.looked(900, KNOWN, without("b0"))
    assert core.looked(1200, KNOWN, without("b0")) == [Lose(("b0",))]


def test_an_order_waits_for_nothing_once() -> None:
    core, gone = AuditorCore(600), ("b0", "b1", "b2", "b3")
    core.looked(0, KNOWN, without(*gone))
    assert core.looked(1, KNOWN, without(*gone), is_ordered=True) == [Lose(gone)]
    assert core.looked(2, KNOWN, without(*gone, "b4")) == []


def test_one_that_nobody_knows_any_more_is_forgotten() -> None:
    core = AuditorCore(600)
    core.looked(0, KNOWN, without("b8"))
    assert core.looked(1, KNOWN[:8], KNOWN[:8]) == [Return("b8", 1)] and core.absent == {}


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions are called in it."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_of_thousands_of_bookies_none_is_compared_with_all_others() -> None:
    """All in one turn of the loop: 3,000 that went at once took 600 ms."""
    bookies, core = [f"b{number}" for number in range(3000)], AuditorCore(600)
    for now in (0, 600, 1200):
        assert calls_of(partial(core.looked, now, bookies, ["b0"])) < 40 * len(bookies)
    assert len(core.lost) == 2999


class PlainCore(AuditorCore):
    """It compares each bookie that is due with all that are absent."""

    def _masses(self, due: Sequence[BookieId], known: int) -> list[BookieId]:
        masses = list[BookieId]()
        for bookie in due:
            together = sum(abs(self._since[bookie] - other) <= self.grace_s for other in self._since.values())
            if together > 1 and 3 * together > known:
                masses.append(bookie)
        return masses


@given(st.lists(st.sets(st.sampled_from(KNOWN)), max_size=12), st.integers(0, 4))
def test_too_many_are_those_of_the_plain_count(gone: list[set[str]], grace_s: int) -> None:
    core, plain = AuditorCore(grace_s), PlainCore(grace_s)
    for now, absent in enumerate(gone):
        assert core.looked(now, KNOWN, without(*absent)) == plain.looked(now, KNOWN, without(*absent))
        assert core.wake_at() == plain.wake_at()
