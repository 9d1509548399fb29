from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tallystick.runtime.turn_steps import TurnSteps


def counting(done: list[str], name: str, count: int) -> Iterator[None]:
    for _ in range(count):
        done.append(name)
        yield


async def test_a_turn_has_so_many_steps_however_many_works_come_in_it() -> None:
    done: list[str] = []
    steps = TurnSteps(4)
    for name in "abc":
        steps.run(counting(done, name, 3))
    assert "".join(done) == "aaa", "the end of each is a step, too"
    await asyncio.sleep(0)
    assert "".join(done) == "aaabbb"
    await asyncio.sleep(0)
    assert "".join(done) == "aaabbbccc"
    await asyncio.sleep(0)
    steps.run(counting(done, "d", 1))
    assert done[-1] == "d", "at once, where there is nothing else to do"


async def test_a_step_may_bring_other_work() -> None:
    done: list[str] = []
    steps = TurnSteps(100)

    def work() -> Iterator[None]:
        steps.run(counting(done, "b", 1))
        done.append("a")
        yield

    steps.run(work())
    assert done == ["a", "b"]


async def test_a_step_that_fails_keeps_no_other_work_from_being_done() -> None:
    done, failed = list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context["exception"]))
    steps = TurnSteps(2)

    def work() -> Iterator[None]:
        yield
        yield
        raise ValueError

    steps.run(work())
    steps.run(counting(done, "b", 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["b"] and len(failed) == 1


async def test_what_is_not_done_when_it_closes_is_not_done_any_more() -> None:
    done: list[str] = []
    steps = TurnSteps(2)
    steps.run(counting(done, "a", 5))
    steps.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["a", "a"]


async def test_a_step_that_closes_it_is_the_last_one() -> None:
    done: list[str] = []
    steps = TurnSteps(100)

    def work() -> Iterator[None]:
        steps.close()
        yield
        done.append("a")
        yield

    steps.run(work())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not done
