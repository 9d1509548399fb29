"""Streams run in virtual time, on scripted bookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from support.cursors import cursors_of, filled_stream
from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory
from support.small_cluster import SmallCluster
from support.workers import HeldWorker
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.sim.virtual.loop import VirtualLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """What needs threads, or the time of a turn, says so."""
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture(autouse=True)
async def no_errors_in_callbacks() -> AsyncIterator[None]:
    """A callback of production raises nothing; a virtual loop keeps what it raised."""
    loop = asyncio.get_running_loop()
    yield
    errors = loop.errors if isinstance(loop, VirtualLoop) else []
    assert [error for error in errors if not error.startswith("Future exception was never retrieved")] == []


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[SmallCluster]:
    """Three bookies, so that each has every entry, or as many as the test says."""
    marker = request.node.get_closest_marker("bookies")
    made = await SmallCluster().start(marker.args[0] if marker is not None else 3)
    yield made
    await made.close()


@pytest.fixture
async def stream(cluster: SmallCluster) -> AsyncIterator[Stream]:
    """Of two closed ledgers, abc and def, and an open one, g."""
    settings = StreamSettings(max_entries_per_ledger=3)
    async with filled_stream(cluster, settings, [letter.encode() for letter in "abcdefg"]) as opened:
        yield opened


@pytest.fixture
async def cursors(cluster: SmallCluster) -> AsyncIterator[Cursors]:
    made = cursors_of(cluster.client(2))
    yield made
    await made.close()


@pytest.fixture
async def held(cluster: SmallCluster) -> AsyncIterator[HeldWorker]:
    """What the streams of the cluster's first client encode beside the loop waits until the test says so."""
    worker = HeldWorker()
    thread = cluster.client().stream_context.encoding_thread
    thread._worker = worker
    yield worker
    while worker.given:
        worker.do_one()
    thread._worker = None
