"""A background task that dies is heard of."""

from __future__ import annotations

import asyncio

import pytest

from tallystick.runtime.tasks import watch


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
