"""Processes on one loop: paused ones run later, dead ones never."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.process import PROCESS, Process


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(max_seconds=100.0, max_turns=10_000)
    yield made
    made.abandon()


async def tick(ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1.0)
        ticks.append(asyncio.get_running_loop().time())


def test_a_paused_process_is_late_and_goes_on(loop: VirtualLoop) -> None:
    ticks: list[float] = []

    async def main() -> None:
        process = Process(loop, "p", "10.0.0.1")
        process.start(tick(ticks))
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5.0)
        assert ticks == [1.0, 2.0]
        process.go_on()
        await asyncio.sleep(1.5)

    loop.run_until_complete(main())
    assert ticks == [1.0, 2.0, 7.5, 8.5]


def test_what_is_cancelled_after_a_pause_does_not_run(loop: VirtualLoop) -> None:
    async def guarded() -> str:
        async with asyncio.timeout(3.0):
            await asyncio.sleep(2.0)
        return "in time, as far as it knows"

    async def main() -> None:
        process = Process(loop, "p", "10.0.0.1")
        work = process.start(guarded())
        await asyncio.sleep(1.0)
        process.pause()
        await asyncio.sleep(5.0)  # both of its timers became due
        process.go_on()
        await asyncio.wait([work])
        assert work.exception() is None or isinstance(work.exception(), TimeoutError)

    loop.run_until_complete(main())
    assert loop.errors == []


def test_a_dead_process_runs_nothing_not_even_its_finally(loop: VirtualLoop) -> None:
    seen: list[str] = []

    async def child() -> None:
        assert PROCESS.get() is not None, "what a process starts is its own"
        try:
            await asyncio.sleep(2.0)
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    async def parent() -> None:
        await asyncio.create_task(child())

    async def main() -> None:
        process = Process(loop, "p", "10.0.0.1")
        process.on_death.append(lambda: seen.append("died"))
        process.start(parent())
        await asyncio.sleep(1.0)
        process.die()
        process.die()
        await asyncio.sleep(5.0)

    loop.run_until_complete(main())
    assert seen == ["died"]
