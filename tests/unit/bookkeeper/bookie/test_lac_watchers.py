"""Who waits for which ledger's LAC, compared with a plain list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.bookkeeper.bookie import lac_watchers
from tallystick.bookkeeper.bookie.lac_watchers import MOST_OF_ONE, MOST_WATCHERS, LacWatchersCore
from tallystick.bookkeeper.wire.values import MAX_ID

FOR_EVER = 1e9
FENCED = MAX_ID + 1


def core(most: int = MOST_WATCHERS, most_of_one: int = MOST_OF_ONE) -> LacWatchersCore[str]:
    return LacWatchersCore(most, most_of_one)


def wait(made: LacWatchersCore[str], ledger: int, past: int, owner: str = "a", deadline: float = FOR_EVER) -> int:
    watcher, leaving = made.wait(owner, "host", ledger, past, deadline)
    assert watcher is not None and not leaving
    return watcher


def test_one_leaves_when_the_lac_has_passed_its_entry_and_no_sooner() -> None:
    made = core()
    first, second = wait(made, 1, 4), wait(made, 1, 5)
    other = wait(made, 2, 4)
    assert made.moved(1, 4) == [] and made.moved(3, 9) == []
    assert made.moved(1, 5) == [first] and made.moved(1, 5) == []
    assert set(made.watched) == {1, 2}
    assert made.moved(1, 6) == [second] and made.moved(2, 99) == [other]
    assert not made.watched and not len(made), "adds of nobody's ledger look at nothing"


def test_a_fence_lets_all_of_its_ledger_go() -> None:
    made = core()
    watchers = [wait(made, 1, (1 << 63) - 1), wait(made, 1, -1)]
    other = wait(made, 2, -1)
    assert made.moved(1, FENCED) == watchers[::-1] and made.moved(3, FENCED) == []
    assert made.moved(2, 0) == [other]


def test_so_many_leave_at_once_and_the_others_when_it_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lac_watchers, "LEAVE_AT_ONCE", 2)
    made = core()
    watchers = [wait(made, 1, 4, deadline=1.0) for _ in range(5)]
    assert not made.lets_go(1, 4) and not made.lets_go(2, 9) and made.lets_go(1, 5)
    assert made.moved(1, 5) == watchers[:2] and made.passed(1.0) == watchers[2:4] and made.wake_at() == 1.0
    assert made.moved(1, 5) == watchers[4:] and not made.lets_go(1, 5)


def test_each_leaves_at_its_deadline() -> None:
    made = core()
    late, early = wait(made, 1, 4, deadline=2.0), wait(made, 2, 4, deadline=1.0)
    assert made.wake_at() == 1.0 and made.passed(0.9) == []
    assert made.passed(1.0) == [early] and made.wake_at() == 2.0
    assert made.moved(1, 5) == [late]
    assert made.wake_at() is None and made.passed(3.0) == []


def test_those_of_a_connection_end_with_it() -> None:
    made = core()
    wait(made, 1, 4), wait(made, 2, 4)
    other = wait(made, 1, 4, "b")
    assert len(made.forget("a")) == 2 and made.forget("a") == []
    assert set(made.watched) == {1}
    assert made.moved(1, 5) == [other]


def test_all_and_those_of_one_connection_are_bounded() -> None:
    made = core(most=5, most_of_one=3)
    watchers = [wait(made, ledger, 4) for ledger in range(3)]
    assert made.wait("a", "host", 9, 4, FOR_EVER) == (None, [])
    wait(made, 9, 4, "b"), wait(made, 9, 4, "c")
    assert made.wait("d", "host", 9, 4, FOR_EVER) == (None, [])
    assert made.moved(0, 5) == watchers[:1]
    wait(made, 9, 4)


def test_the_oldest_of_the_host_with_most_makes_room_for_another_hosts() -> None:
    made = core(most=4)
    watchers = [wait(made, ledger, 4, owner) for ledger, owner in ((1, "a"), (2, "b"), (3, "a"), (4, "a"))]
    second, leaving = made.wait("c", "other", 1, 4, FOR_EVER)
    assert second is not None and leaving == watchers[:1]
    assert made.moved(1, 5) == [second]
    wait(made, 5, 4, "b")
    assert made.wait("c", "other", 6, 4, FOR_EVER)[1] == watchers[1:2]
    assert made.wait("c", "other", 7, 4, FOR_EVER)[1] == watchers[2:3]
    assert made.wait("c", "other", 8, 4, FOR_EVER) == (None, []), "both hosts have half"
    assert len(made) == 4 and set(made.watched) == {4, 5, 6, 7}
    made.forget("a"), made.forget("b"), made.forget("c")
    assert not made._shares._hosts


def test_what_has_left_takes_no_memory() -> None:
    """Who polls an idle ledger with short time-outs, and who polls a busy one with long ones."""
    made = core()
    for at in range(5000):
        wait(made, 1, 4, deadline=at)
        made.passed(at)
        wait(made, 2, at)
        made.moved(2, at + 1)
        wait(made, 3, 4, "gone")
        made.forget("gone")
    assert not made.watched and not made._places and not made._by_owner
    wait(made, 1, 4)
    assert len(made._deadlines.items) < 200
    for at in range(5000):
        wait(made, 1, 4, "b", deadline=at)
        made.passed(at)
    assert len(made.watched[1].items) < 200


@dataclass
class Twin:
    """The same in one list."""

    waiting: list[tuple[int, str, int, int, float]] = field(default_factory=list)

    def leave(self, leaving: list[tuple[int, str, int, int, float]]) -> set[int]:
        self.waiting = [each for each in self.waiting if each not in leaving]
        return {each[0] for each in leaving}


STEPS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from("abc"), st.integers(1, 3), st.integers(-1, 5), st.integers(0, 20)),
    st.tuples(st.just("moved"), st.integers(1, 3), st.integers(-1, 7) | st.just(FENCED)),
    st.tuples(st.just("passed"), st.integers(0, 20)),
    st.tuples(st.just("forget"), st.sampled_from("abc")),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=80))
def test_the_same_leave_as_from_a_list(steps: list[tuple[Any, ...]]) -> None:
    made, twin = core(), Twin()
    for kind, *given_ in steps:
        if kind == "wait":
            owner, ledger, past, deadline = given_
            twin.waiting.append((wait(made, ledger, past, owner, deadline), owner, ledger, past, deadline))
            continue
        first = given_[0]
        gone: Callable[[tuple[int, str, int, int, float]], bool] = {
            "moved": lambda each: each[2] == first and each[3] < given_[-1],  # noqa: B023  # called at once
            "passed": lambda each: each[4] <= first,  # noqa: B023
            "forget": lambda each: each[1] == first,  # noqa: B023
        }[kind]
        assert set(getattr(made, kind)(*given_)) == twin.leave([each for each in twin.waiting if gone(each)])
        assert len(made) == len(twin.waiting) and set(made.watched) == {each[2] for each in twin.waiting}
        assert made.wake_at() == min((each[4] for each in twin.waiting), default=None)
