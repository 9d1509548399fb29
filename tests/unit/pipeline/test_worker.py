from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import pytest

from support.spark_workers import close_workers
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.errors import UsageError
from tallystick.pipeline.bookies import BookieAddresses
from tallystick.pipeline.worker import AHEAD, TaskWorker, worker

# Pages that the buffers of some batches touch when they are taken and freed again and again.
BATCHES = """
import resource
from tallystick.pipeline.bookies import BookieAddresses
from tallystick.pipeline.worker import worker

started = worker(BookieAddresses({"bookie-1": ("127.0.0.1", 1)}))
for _ in range(5):
    kept = [bytes(1_000_000) for _ in range(12)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    kept = []
    kept = [bytes(1_000_000) for _ in range(12)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
started.close()
"""


@pytest.fixture
def one() -> Iterator[TaskWorker[BookieClient]]:
    worker = TaskWorker(BookieAddresses({"bookie-1": ("127.0.0.1", 1)}))
    yield worker
    worker.close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library: nothing to tell it")
def test_the_memory_of_a_batch_is_used_again_by_the_next() -> None:
    done = subprocess.run([sys.executable, "-c", BATCHES], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 5000, "20 rounds of 12 buffers are 58,000 pages"


def test_items_come_in_order(one: TaskWorker[BookieClient]) -> None:
    async def count() -> AsyncGenerator[int, None]:
        for number in range(100):
            if number % 7 == 0:
                await asyncio.sleep(0)
            yield number

    assert list(one.iterate(lambda client: count())) == list(range(100))


def test_an_error_comes_after_what_was_read_before_it(one: TaskWorker[BookieClient]) -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("broken")

    items = one.iterate(lambda client: failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_fetching_runs_only_a_little_ahead(one: TaskWorker[BookieClient]) -> None:
    fetched, ahead = [], threading.Event()

    async def endless() -> AsyncGenerator[int, None]:
        number = 0
        while True:
            fetched.append(number)
            if len(fetched) > AHEAD + 1:
                ahead.set()
            yield number
            number += 1

    items = one.iterate(lambda client: endless())
    assert next(items) == 0
    assert ahead.wait(10)
    assert next(items) == 1
    assert len(fetched) <= AHEAD + 4  # what was taken, what waits, and the one in hand


def test_a_task_that_stops_early_stops_the_fetching(one: TaskWorker[BookieClient]) -> None:
    closed = threading.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0)
                yield 1
        finally:
            closed.set()

    items = one.iterate(lambda client: endless())
    assert next(items) == 1
    items.close()
    assert closed.wait(10)


def test_peers_that_moved_are_reached_by_another_client_and_the_one_before_is_closed() -> None:
    """A worker process lives as long as its executor: each plan after a bookie moved would leave a thread there."""
    before = worker(BookieAddresses({"bookie-1": ("127.0.0.1", 1)}))
    assert worker(BookieAddresses({"bookie-1": ("127.0.0.1", 1)})) is before
    try:
        assert worker(BookieAddresses({"bookie-1": ("127.0.0.1", 2)})) is not before
        assert not before._thread.is_alive()
    finally:
        close_workers()


class Closed:
    """A client that says when it is closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True)
class Keys:
    """Peers of which a key file may be missing."""

    version: int
    files: frozenset[int] = frozenset((1, 3))

    async def connect(self) -> Closed:
        if self.version not in self.files:
            raise UsageError("there is no such file", path=f"key-{self.version}")
        return Closed()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tally-worker"]


def test_a_client_that_does_not_come_to_be_leaves_nothing_and_the_next_task_has_another() -> None:
    """A worker process is used for task after task: one whose key file is missing must not break those after it."""
    before = len(threads())
    try:
        first = worker(Keys(1))
        for _ in range(3):
            with pytest.raises(UsageError, match="no such file"):
                worker(Keys(2))
        assert first.client.is_closed and len(threads()) == before
        assert worker(Keys(1)) is not first
        with pytest.raises(UsageError, match="no such file"):
            worker(Keys(2))
        assert not worker(Keys(3)).client.is_closed
    finally:
        close_workers()
    assert len(threads()) == before
