"""A time-out that counts the turns of a busy loop as what they are."""

from __future__ import annotations

import asyncio

import pytest

from tallystick.runtime.running_timeout import BEATS, running_timeout


class Loop(asyncio.SelectorEventLoop):
    """Its turns take ``turn_s`` each; nothing waits in real time."""

    at = turn_s = 0.0

    def time(self) -> float:
        return self.at

    def _run_once(self) -> None:
        self.at += self.turn_s
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.at = max(self.at, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


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
        await asyncio.sleep(10.0)  # a beat that was left would be seen in the next one

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(body())
