"""Long polls are answered by what happens, or by one timer; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.machines import virtual_loop
from tallystick.bookkeeper.bookie import long_polls
from tallystick.bookkeeper.bookie.lac_watchers import MOST_OF_ONE
from tallystick.bookkeeper.bookie.long_polls import LONGEST_S, LongPolls
from tallystick.bookkeeper.bookie.metrics import Counts


class Polls(LongPolls):
    """It notes who was answered, and when."""

    def __init__(self) -> None:
        self.lacs: dict[int, int] = {}
        self.counts = Counts()
        self.answered: list[tuple[str, float]] = []
        super().__init__(lambda ledger: self.lacs.get(ledger, -1), self.counts)

    def poll(self, name: str, ledger: int = 1, past: int = 4, timeout_s: float = 10.0, owner: str = "a") -> bool:
        def wake() -> None:
            self.answered.append((name, asyncio.get_running_loop().time()))

        return self.hold(owner, ledger, past, timeout_s, wake)

    def move(self, ledger: int, lac: int) -> None:
        self.lacs[ledger] = lac
        self.added([ledger, ledger])


def in_virtual_time(test: Callable[[Polls], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        polls = Polls()
        await test(polls)
        polls.close()

    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(body())


def test_a_poll_is_answered_when_the_lac_moves_or_the_ledger_is_fenced() -> None:
    async def body(polls: Polls) -> None:
        assert polls.poll("moved") and polls.poll("fenced", ledger=2) and polls.poll("waits", ledger=3)
        assert polls.counts.long_polls_waiting == 3
        polls.move(1, 4)
        polls.move(9, 5)
        await asyncio.sleep(1)
        assert not polls.answered
        polls.move(1, 5)
        polls.fenced(2)
        assert not polls.answered, "in the next turn, not within the add"
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["moved", "fenced"]
        assert polls.counts.long_polls_waiting == 1 and list(polls.watched) == [3]

    in_virtual_time(body)


def test_a_poll_is_answered_after_its_time_out_and_none_waits_for_ever() -> None:
    async def body(polls: Polls) -> None:
        began = asyncio.get_running_loop().time()
        for name, timeout_s in (("c", 1e9), ("b", 2.0), ("a", 1.0)):
            polls.poll(name, timeout_s=timeout_s)
        await asyncio.sleep(LONGEST_S + 1)
        times = [(name, round(at - began, 2)) for name, at in polls.answered]
        assert times == [("a", 1.0), ("b", 2.0), ("c", LONGEST_S)]
        assert not polls.watched and polls.counts.long_polls_waiting == 0

    in_virtual_time(body)


def test_those_of_a_connection_that_has_ended_are_forgotten() -> None:
    async def body(polls: Polls) -> None:
        polls.poll("gone")
        polls.poll("left", owner="b")
        polls.forget("a")
        polls.forget("nobody")
        polls.move(1, 5)
        await asyncio.sleep(20)
        assert [name for name, _ in polls.answered] == ["left"]

    in_virtual_time(body)


def test_one_too_many_is_not_held() -> None:
    async def body(polls: Polls) -> None:
        assert all(polls.poll("held") for _ in range(MOST_OF_ONE))
        assert not polls.poll("refused") and polls.poll("held", owner="b")
        await asyncio.sleep(20)
        assert [name for name, _ in polls.answered] == ["held"] * (MOST_OF_ONE + 1)

    in_virtual_time(body)


def test_very_many_are_answered_over_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "TURN_S", 0.0)  # one in each

    async def body(polls: Polls) -> None:
        for number in range(10):
            polls.poll(str(number))
        polls.move(1, 5)
        for count in range(1, 11):
            await asyncio.sleep(0)
            assert len(polls.answered) == count
        polls.forget("a")

    in_virtual_time(body)


def test_who_ends_while_it_is_to_be_answered_is_answered_no_worse() -> None:
    async def body(polls: Polls) -> None:
        polls.poll("a")
        polls.move(1, 5)
        polls.forget("a")
        await asyncio.sleep(0)
        assert [name for name, _ in polls.answered] == ["a"], "the connection drops it"
        polls.poll("closed", ledger=2)
        polls.poll("moved", ledger=3)
        polls.move(3, 5)
        polls.close()
        await asyncio.sleep(20)
        assert len(polls.answered) == 1

    in_virtual_time(body)
