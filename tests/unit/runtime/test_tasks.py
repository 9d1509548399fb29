"""A background task that dies is heard of; many questions are asked some at a time."""

from __future__ import annotations

import asyncio

import pytest

from tallystick.runtime.tasks import together, watch


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("a disk"), AssertionError("never")])
async def test_whatever_ends_a_task_is_reported(error: Exception) -> None:
    failures: asyncio.Queue[Exception] = asyncio.Queue()

    async def work() -> None:
        raise error

    watch([asyncio.create_task(work())], failures.put_nowait)
    assert await failures.get() is error


async def test_an_end_in_order_and_a_cancelled_task_are_no_failures() -> None:
    failures: list[Exception] = []
    tasks = [asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.Event().wait())]
    watch(tasks, failures.append)
    await tasks[0]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert failures == []
    assert tasks[1].cancelled()


async def test_questions_are_asked_some_at_a_time_and_answered_in_order() -> None:
    """Asked all at once, those of 65,536 queues timed each other out."""
    under_way, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5 - number % 5):
            await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await together(map(ask, range(10)), 4) == list(range(10))
    assert (most, under_way) == (4, 0)
