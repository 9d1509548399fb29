"""One timer for the times of many."""

from __future__ import annotations

import asyncio

import pytest

from support.machines import machine
from tallystick.bookkeeper.stream.due_times import AT_ONCE, DueTimes


class One:
    def __init__(self, told: list[tuple[str, float]], name: str) -> None:
        self.told, self.name = told, name

    def due(self) -> None:
        self.told.append((self.name, asyncio.get_running_loop().time()))


async def test_each_is_told_once_at_its_last_time() -> None:
    times, told = DueTimes(machine().clock), list[tuple[str, float]]()
    a, b, c, d = (One(told, name) for name in "abcd")
    began = asyncio.get_running_loop().time()
    times.set(d, began + 15)
    times.set(d, began + 40)
    times.set(a, began + 30)
    times.set(b, began + 10)
    times.set(c, began + 20)
    times.set(a, began + 5)
    times.forget(c)
    await asyncio.sleep(100)
    assert [name for name, _ in told] == ["a", "b", "d"]
    assert [at - began for _, at in told] == pytest.approx([5, 10, 40], abs=0.01)


async def test_many_that_are_due_together_leave_others_their_turn() -> None:
    times, told = DueTimes(machine().clock), list[tuple[str, float]]()
    loop = asyncio.get_running_loop()
    between: list[int] = []

    class First(One):
        def due(self) -> None:
            super().due()
            loop.call_soon(lambda: between.append(len(told)))

    for n in range(3 * AT_ONCE):
        times.set((One if n % AT_ONCE else First)(told, str(n)), loop.time() + 1)
    await asyncio.sleep(5)
    assert between == [AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE]


async def test_a_fault_of_one_takes_nobody_elses_time() -> None:
    """Of all streams whose time had come with it no ledger was rolled over any more, and nothing was trimmed."""
    times, told, faults = DueTimes(machine().clock), list[tuple[str, float]](), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: faults.append(context.get("exception")))

    class Broken(One):
        def due(self) -> None:
            raise ValueError("a fault of ours")

    for name, at in (("a", 1), ("broken", 1), ("b", 1), ("c", 2)):
        times.set((Broken if name == "broken" else One)(told, name), loop.time() + at)
    await asyncio.sleep(5)
    assert [name for name, _ in told] == ["a", "b", "c"] and len(faults) == 1


async def test_times_that_are_set_again_and_again_take_no_room() -> None:
    times, told = DueTimes(machine().clock), list[tuple[str, float]]()
    one = One(told, "one")
    for n in range(10_000):
        times.set(one, asyncio.get_running_loop().time() + 1000 + n)
    assert len(times._heap) < 3 * AT_ONCE
    times.close()
    await asyncio.sleep(20_000)
    assert told == []
