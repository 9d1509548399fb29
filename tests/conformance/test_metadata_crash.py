"""A bookie's process is killed: its registration ends by itself, and its successor need not wait for that."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from tallystick.bookkeeper.wire.values import BookieInfo

if TYPE_CHECKING:
    from conformance.conftest import Place

# Without memory://, which ends with its process.
pytestmark = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True
)

HOLD = """
import asyncio, sys
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.values import BookieInfo

async def main():
    driver = await open_driver(sys.argv[1], session_timeout_s=float(sys.argv[2]))
    await driver.register("bookie-1", BookieInfo.at("127.0.0.1", 3181))
    print("registered", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
NEWER = BookieInfo.at("127.0.0.1", 3182)


@contextlib.asynccontextmanager
async def holder(uri: str, session_timeout_s: float) -> AsyncIterator[Process]:
    """A process that holds bookie-1."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, uri, str(session_timeout_s), stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"registered\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_a_killed_bookie_vanishes_after_its_session_time(cluster: Place) -> None:
    driver, heard = await cluster.connect(), asyncio.Event()
    async with holder(cluster.uri, 0.6) as process:
        assert (await driver.bookies()).find("bookie-1")
        driver.watch_bookies(heard.set)
        await driver.bookies()
        process.kill()
        async with asyncio.timeout(20):
            await heard.wait()
    assert not (await driver.bookies()).find("bookie-1")


async def test_a_successor_waits_for_the_dead_session(cluster: Place) -> None:
    driver = await cluster.connect()
    async with holder(cluster.uri, 0.6) as process:
        process.kill()
        await driver.register("bookie-1", NEWER)
    assert (await driver.bookies()).find("bookie-1") == NEWER


async def test_a_successor_that_knows_its_predecessor_dead_does_not_wait(cluster: Place) -> None:
    driver = await cluster.connect()
    async with holder(cluster.uri, 3600.0 if cluster.kind == "sqlite" else 4.0) as process:
        process.kill()
        await process.wait()
        await driver.register("bookie-1", NEWER, replace=True)
        assert (await driver.bookies()).writable == {"bookie-1": NEWER}


async def test_a_paused_bookie_comes_back(cluster: Place) -> None:
    """As after a long pause of the machine: the place is still free, so it is taken again, and watchers hear of it."""
    driver, heard = await cluster.connect(), asyncio.Event()

    async def told(is_listed: bool) -> None:
        async with asyncio.timeout(20):
            while ((await driver.bookies()).find("bookie-1") is not None) is not is_listed:
                await heard.wait()
                heard.clear()

    async with holder(cluster.uri, 0.6) as process:
        driver.watch_bookies(heard.set)
        before = await driver.bookies()
        assert before.find("bookie-1") is not None
        process.send_signal(signal.SIGSTOP)
        await told(False)
        process.send_signal(signal.SIGCONT)
        await told(True)
        assert await driver.bookies() == before, "at the same place, with the same endpoints"
