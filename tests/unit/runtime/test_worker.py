"""One thread, calls in order, outcomes on the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import weakref
from functools import partial

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


async def test_close_reports_all_that_was_submitted_in_order() -> None:
    worker, outcomes = ThreadWorker("test"), list[int | None]()
    for number in range(100):
        worker.submit(partial(int, number), lambda result, error: outcomes.append(result))
    worker.close()
    await asyncio.sleep(0)
    assert outcomes == list(range(100))


async def test_who_fails_at_an_outcome_keeps_no_other_from_its_own() -> None:
    worker, gate = ThreadWorker("test"), threading.Event()

    def broken(result: object, error: Exception | None) -> None:
        raise ValueError("broken")

    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    worker.submit(gate.wait, broken)  # both outcomes are there when the loop looks
    outcome = asyncio.ensure_future(worker.run(lambda: 1))
    await asyncio.sleep(0)
    gate.set()
    assert await outcome == 1
    assert [str(failure) for failure in failures] == ["broken"]
    worker.close()


async def test_close_within_an_outcome_reports_the_others() -> None:
    worker, outcomes = ThreadWorker("test"), list[str]()

    def stop(result: object, error: Exception | None) -> None:
        worker.close()
        outcomes.append("stopped")

    worker.submit(lambda: None, stop)
    worker.submit(lambda: None, lambda result, error: outcomes.append("later"))
    await until(lambda: len(outcomes) == 2)
    assert outcomes == ["stopped", "later"]


async def test_more_calls_than_bytes_fit_into_its_pipes_are_submitted_in_one_turn_of_the_loop() -> None:
    """The loop waited for room in the one pipe, and the thread in the other: for ever."""
    worker, outcomes = ThreadWorker("test"), list[int | None]()
    for number in range(150_000):
        worker.submit(partial(int, number), lambda result, error: outcomes.append(result))
    await worker.idle()
    assert outcomes == list(range(150_000))
    worker.close()


async def test_close_with_more_outcomes_than_bytes_fit_into_its_pipe() -> None:
    worker, outcomes = ThreadWorker("test"), list[int | None]()
    for number in range(70_000):
        worker.submit(partial(int, number), lambda result, error: outcomes.append(result))
    worker.close()
    await asyncio.sleep(0)
    assert outcomes == list(range(70_000))


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


@pytest.mark.parametrize("lacks", ["pipe", "thread"])
async def test_a_worker_that_cannot_be_made_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    made, opened, closed, pipe, close = list[int](), list[int](), list[int](), os.pipe, os.close

    def pipes() -> tuple[int, int]:
        if lacks == "pipe" and opened:
            raise OSError(errno.EMFILE, "too many open files")
        opened.extend(ends := pipe())
        return ends

    def starts(thread: threading.Thread) -> None:
        made.append(1)
        raise RuntimeError("can't start new thread")

    def closes(end: int) -> None:
        closed.append(end)
        close(end)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", pipes)
        patch.setattr(os, "close", closes)
        patch.setattr(threading.Thread, "start", starts)
        with pytest.raises((OSError, RuntimeError)):
            ThreadWorker("test")
    assert sorted(closed) == sorted(opened) and len(opened) == (2 if lacks == "pipe" else 4)
    assert len(made) == (lacks == "thread")
