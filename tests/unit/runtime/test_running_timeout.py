"""A time-out that counts the turns of a busy loop as what they are."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

from tallystick.runtime.running_timeout import BEATS, running_timeout
from tallystick.sim.virtual.loop import VirtualLoop


class Loop(VirtualLoop):
    """Its turns take ``turn_s`` each."""

    turn_s = 0.0

    def __init__(self) -> None:
        super().__init__(max_seconds=10_000.0, max_turns=10_000)

    def _run_once(self) -> None:
        self._now += self.turn_s
        super()._run_once()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_loop_of_long_turns_has_many_of_them_for_what_has_to_be_done() -> None:
    async def body() -> None:
        async with running_timeout(1.0):
            await turns(BEATS - 1)  # 95 s by the clock
        with pytest.raises(TimeoutError):
            async with running_timeout(1.0):
                await turns(10 * BEATS)

    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Loop)
        loop.turn_s = 5.0
        runner.run(body())


def test_a_loop_that_has_time_counts_by_the_clock() -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with running_timeout(1.0):
                await loop.create_future()
        assert abs(loop.time() - began - 1.0) < 1e-6
        async with running_timeout(1.0):
            await asyncio.sleep(0.9)
        await asyncio.sleep(10.0)  # the beats of one that is over would come now, and fail

    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Loop)
        runner.run(body())
        assert loop.errors == []


async def test_nothing_is_left_to_the_garbage_collector() -> None:
    """Each look of a bookie left its task: frozen, thousands of them made the collection that looks at all longer."""

    async def waits(seconds: float) -> None:
        with suppress(TimeoutError):
            async with running_timeout(seconds):
                await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        for seconds in (10.0, 0.001):
            await asyncio.create_task(waits(seconds))
        await asyncio.sleep(0)
        assert gc.collect() == 0
    finally:
        gc.enable()
