"""Long polls are answered by what happens, or by one timer; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from support.machines import LoopFactory, virtual_loop
from support.requesters import Asker
from support.waiting import until
from tallystick.bookkeeper.bookie import lac_watchers, long_polls
from tallystick.bookkeeper.bookie.lac_watchers import MOST_OF_ONE
from tallystick.bookkeeper.bookie.long_polls import LONGEST_S, LongPolls
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.runtime.places import Places


class Polls(LongPolls):
    """It notes who was answered, and when."""

    def __init__(self) -> None:
        self.lacs: dict[int, int] = {}
        self.counts = Counts()
        self.askers = defaultdict[str, Asker](Asker)
        self.answered: list[tuple[str, float]] = []
        super().__init__(lambda ledger: self.lacs.get(ledger, -1), self.counts)

    def poll(self, name: str, ledger: int = 1, past: int = 4, timeout_s: float = 10.0, owner: str = "a") -> bool:
        def wake() -> None:
            self.answered.append((name, asyncio.get_running_loop().time()))

        return self.hold(self.askers[owner], ledger, past, timeout_s, wake)

    def move(self, ledger: int, lac: int) -> None:
        self.lacs[ledger] = lac
        self.added([ledger, ledger])


def on_a_loop(test: Callable[[Polls], Coroutine[Any, Any, None]], make_loop: LoopFactory = virtual_loop) -> None:
    async def body() -> None:
        polls = Polls()
        await test(polls)
        polls.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(body())


def test_a_poll_is_answered_when_the_lac_moves_or_the_ledger_is_fenced() -> None:
    async def body(polls: Polls) -> None:
        assert polls.poll("moved") and polls.poll("fenced", ledger=2) and polls.poll("waits", ledger=3)
        assert polls.poll("fenced", ledger=2, past=MAX_ID), "which no writer passes, and any stranger asks for"
        assert polls.counts.long_polls_waiting == 4
        polls.move(1, 4)
        polls.move(9, 5)
        await asyncio.sleep(1)
        assert not polls.answered
        polls.move(1, 5)
        polls.fenced(2)
        assert not polls.answered, "in the next turn, not within the add"
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["moved", "fenced", "fenced"]
        assert polls.counts.long_polls_waiting == 1 and list(polls.watched) == [3]

    on_a_loop(body)


def test_a_poll_is_answered_after_its_time_out_and_none_waits_for_ever() -> None:
    async def body(polls: Polls) -> None:
        began = asyncio.get_running_loop().time()
        for name, timeout_s in (("c", 1e9), ("b", 2.0), ("a", 1.0)):
            polls.poll(name, timeout_s=timeout_s)
        await asyncio.sleep(LONGEST_S + 1)
        times = [(name, round(at - began, 2)) for name, at in polls.answered]
        assert times == [("a", 1.0), ("b", 2.0), ("c", LONGEST_S)]
        assert not polls.watched and polls.counts.long_polls_waiting == 0

    on_a_loop(body)


def test_those_of_a_connection_that_has_ended_are_forgotten() -> None:
    async def body(polls: Polls) -> None:
        polls.poll("gone")
        polls.poll("left", owner="b")
        polls.forget(polls.askers["a"])
        polls.forget(polls.askers["nobody"])
        polls.move(1, 5)
        await asyncio.sleep(20)
        assert [name for name, _ in polls.answered] == ["left"]

    on_a_loop(body)


def test_one_too_many_is_not_held() -> None:
    async def body(polls: Polls) -> None:
        assert all(polls.poll("held") for _ in range(MOST_OF_ONE))
        assert not polls.poll("refused") and polls.poll("held", owner="b")
        await asyncio.sleep(20)
        assert [name for name, _ in polls.answered] == ["held"] * (MOST_OF_ONE + 1)

    on_a_loop(body)


def test_very_many_are_answered_over_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "TURN_S", 0.0)  # one in each

    async def body(polls: Polls) -> None:
        for number in range(10):
            polls.poll(str(number))
        polls.move(1, 5)
        for count in range(1, 11):
            await asyncio.sleep(0)
            assert len(polls.answered) == count
        polls.forget(polls.askers["a"])

    on_a_loop(body)


def test_another_hosts_poll_is_held_in_the_place_of_one_that_is_answered() -> None:
    async def body(polls: Polls) -> None:
        polls._core._shares = Places(3)
        polls.askers["b"].peer = "127.0.0.2"
        assert all(polls.poll(name) for name in ("oldest", "older", "newest")) and not polls.poll("refused")
        assert polls.poll("guest", owner="b")
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["oldest"] and polls.counts.long_polls_waiting == 3

    on_a_loop(body)


def test_one_hosts_thousands_keep_another_hosts_poll_waiting_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "TURN_S", 0.0)  # one in each

    async def body(polls: Polls) -> None:
        polls.askers["b"].peer = "127.0.0.2"
        for number in range(50):
            polls.poll(f"a{number}")
        polls.poll("b", owner="b")
        polls.move(1, 5)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["a0", "b", "a1"]

    on_a_loop(body)


def test_too_many_that_are_to_be_answered_are_not_joined_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "MOST_WATCHERS", 2)
    monkeypatch.setattr(long_polls, "TURN_S", 0.0)  # one in each

    async def body(polls: Polls) -> None:
        assert all(polls.poll(name) for name in "abc")
        polls.move(1, 5)
        await asyncio.sleep(0)
        assert not polls.poll("d", past=5)
        await asyncio.sleep(0)
        assert polls.poll("e", past=5) and [name for name, _ in polls.answered] == ["a", "b"]

    on_a_loop(body)


def test_not_all_that_a_lac_lets_go_leave_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """8,192 of them took an add 50 ms."""
    monkeypatch.setattr(long_polls, "LEAVE_AT_ONCE", 4)
    monkeypatch.setattr(lac_watchers, "LEAVE_AT_ONCE", 4)

    async def body(polls: Polls) -> None:
        for number in range(10):
            polls.poll(str(number))
        polls.poll("other", ledger=2)
        polls.poll("early", past=0, timeout_s=0.0)
        polls.move(1, 3)
        polls.move(1, 5)
        polls.fenced(2)
        assert len(polls._wakes) == 12, "the add takes out none"
        counts = []
        while polls._wakes or polls._ready:
            await asyncio.sleep(0)
            counts.append(len(polls.answered))
        assert counts[0] <= 5 and max(after - before for before, after in itertools.pairwise(counts)) <= 5
        assert sorted(name for name, _ in polls.answered) == [*map(str, range(10)), "early", "other"]

    on_a_loop(body)


def test_polls_of_deleted_ledgers_are_answered() -> None:
    async def body(polls: Polls) -> None:
        polls.poll("deleted"), polls.poll("stays", ledger=2)
        polls.deleted([3, 1])
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["deleted"]

    on_a_loop(body)


def test_of_who_ends_while_its_answers_wait_for_a_turn_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "TURN_S", 0.0)  # one in each

    async def body(polls: Polls) -> None:
        for number in range(3):
            polls.poll(f"a{number}")
            polls.poll(f"b{number}", owner="b")
        polls.move(1, 5)
        await asyncio.sleep(0)
        polls.forget(polls.askers["a"])
        assert polls.counts.long_polls_waiting == 3
        await asyncio.sleep(1)
        assert [name for name, _ in polls.answered] == ["a0", "b0", "b1", "b2"]

    on_a_loop(body)


def test_a_lac_that_is_told_behind_a_fence_holds_nobody() -> None:
    async def body(polls: Polls) -> None:
        assert polls.poll("near", past=4) and polls.poll("far", past=100)
        polls.fenced(1)
        polls.move(1, 5)
        await asyncio.sleep(0)
        assert sorted(name for name, _ in polls.answered) == ["far", "near"]

    on_a_loop(body)


def test_a_host_whose_answers_take_long_has_fewer_of_them() -> None:
    async def body(polls: Polls) -> None:
        asker = Asker("127.0.0.2")
        for _ in range(20):
            polls.hold(asker, 1, 4, 10.0, lambda: time.sleep(0.005))
        for number in range(100):
            polls.poll(str(number))
        polls.move(1, 5)
        await until(lambda: len(polls.answered) == 100)
        assert polls.counts.long_polls_waiting > 8

    on_a_loop(body, asyncio.new_event_loop)


def test_of_who_ends_while_it_is_to_be_answered_nothing_is_kept_or_made() -> None:
    async def body(polls: Polls) -> None:
        polls.poll("a"), polls.poll("gone", owner="gone"), polls.poll("b", owner="b")
        polls.move(1, 5)
        polls.forget(polls.askers["a"])
        polls.askers["gone"].gone = True
        assert polls.counts.long_polls_waiting == 2
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["b"] and polls.counts.long_polls_waiting == 0
        polls.poll("closed", ledger=2)
        polls.poll("moved", ledger=3)
        polls.move(3, 5)
        polls.close()
        await asyncio.sleep(20)
        assert len(polls.answered) == 1

    on_a_loop(body)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_deadlines_that_are_past_or_near_are_kept_on_real_loops(make_loop: LoopFactory) -> None:
    """Some loops have other handles for such."""

    async def body(polls: Polls) -> None:
        for number in range(60):
            assert polls.poll(f"{number}", timeout_s=(60 - number) % 4 / 4000)
            if number % 7 == 0:
                polls.poll("gone", timeout_s=0.0001, owner="b")
                polls.forget(polls.askers["b"])
        assert polls.poll("last", timeout_s=0.05)
        await until(lambda: not polls.watched and len(polls.answered) == 61)
        assert sorted(name for name, _ in polls.answered) == sorted([*map(str, range(60)), "last"])

    on_a_loop(body, make_loop)


def test_a_fault_of_one_answer_ends_its_connection_and_leaves_the_others() -> None:
    def broken() -> None:
        raise ValueError("a fault of ours")

    async def body(polls: Polls) -> None:
        polls.hold(polls.askers["a"], 1, 4, 10.0, broken)
        polls.poll("first", owner="b")
        polls.move(1, 5)
        await asyncio.sleep(0)
        polls.poll("second", owner="b")
        polls.fenced(1)
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["first", "second"]
        assert [repr(error) for error in polls.askers["a"].faults] == ["ValueError('a fault of ours')"]

    on_a_loop(body)
