"""One thread, calls in order, outcomes on the loop."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from support.waiting import until
from tallystick.runtime.worker import ThreadWorker


async def test_calls_run_in_order_on_one_thread_of_their_own() -> None:
    worker = ThreadWorker("test")
    ran: list[tuple[int, str]] = []

    def call(number: int) -> int:
        ran.append((number, threading.current_thread().name))
        return number

    async def run(number: int) -> int:
        return await worker.run(lambda: call(number))

    assert await asyncio.gather(*(run(number) for number in range(20))) == list(range(20))
    assert ran == [(number, "test") for number in range(20)]
    worker.close()


async def test_an_exception_reaches_the_caller_and_the_thread_goes_on() -> None:
    worker = ThreadWorker("test")

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await worker.run(broken)
    assert await worker.run(lambda: 1) == 1
    worker.close()


async def test_close_finishes_what_was_submitted_even_if_nobody_waits_for_it() -> None:
    worker = ThreadWorker("test")
    gate, ran = threading.Event(), []
    waiting = asyncio.ensure_future(worker.run(gate.wait))
    await asyncio.sleep(0)
    worker.submit(lambda: ran.append(1), lambda result, error: None)
    waiting.cancel()
    gate.set()
    worker.close()
    await asyncio.sleep(0)
    assert ran == [1]
    assert waiting.cancelled()


async def test_idle_waits_for_a_call_whose_caller_was_cancelled() -> None:
    worker = ThreadWorker("test")
    gate = threading.Event()
    waiting = asyncio.ensure_future(worker.run(gate.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    idle = asyncio.ensure_future(worker.idle())
    await asyncio.gather(waiting, return_exceptions=True)
    assert not idle.done()
    gate.set()
    await idle
    worker.close()


async def test_nothing_is_kept_of_a_call_that_is_done() -> None:
    """A snapshot of a ledger's ids, and all that it refers to, stayed until the next list was asked for."""

    class Large:
        def use(self) -> Large:
            return self

    worker, large = ThreadWorker("test"), Large()
    kept = weakref.ref(large)
    await worker.run(large.use)
    del large
    await until(lambda: kept() is None)
    assert await worker.run(lambda: 1) == 1, "and it goes on"
    worker.close()
