"""A worker that is a delay: in order, told later, finished by close, silent when its process is dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial

import pytest

from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.worker import DelayWorker


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(max_seconds=100.0, max_turns=10_000)
    yield made
    made.abandon()


@pytest.mark.parametrize("seed", range(5))
def test_calls_take_effect_in_order_and_are_told_in_order(loop: VirtualLoop, seed: int) -> None:
    seen: list[tuple[str, int]] = []

    def told(number: int, result: object, error: BaseException | None) -> None:
        seen.append(("told", number))

    async def main() -> None:
        worker = DelayWorker(Process(loop, "p", "10.0.0.1"), random.Random(seed), 0.01)
        for number in range(20):
            worker.submit(partial(seen.append, ("ran", number)), partial(told, number))
        assert seen == []
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert [number for what, number in seen if what == "ran"] == list(range(20))
    assert [number for what, number in seen if what == "told"] == list(range(20))
    assert all(seen.index(("ran", n)) < seen.index(("told", n)) for n in range(20))


def test_an_error_reaches_who_waits_and_close_finishes_the_rest(loop: VirtualLoop) -> None:
    ran: list[int] = []

    async def main() -> None:
        worker = DelayWorker(Process(loop, "p", "10.0.0.1"), random.Random(1), 0.01)
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        assert await worker.run(lambda: 7) == 7
        worker.submit(lambda: ran.append(1), lambda result, error: ran.append(2))
        worker.close()
        assert ran == [1]
        await asyncio.sleep(10)
        assert ran == [1, 2]

    loop.run_until_complete(main())


def test_a_dead_process_writes_nothing_more(loop: VirtualLoop) -> None:
    ran: list[int] = []

    async def main() -> None:
        process = Process(loop, "p", "10.0.0.1")
        DelayWorker(process, random.Random(1), 0.01).submit(lambda: ran.append(1), lambda result, error: None)
        process.die()
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert ran == []
