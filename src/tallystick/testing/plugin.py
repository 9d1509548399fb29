"""Fixtures for pytest, with pytest-asyncio: name ``tallystick.testing.plugin`` in ``pytest_plugins``.

``tally_cluster`` opens clusters that end with the test. ``ledger_cluster`` is one of three bookies, ``topic_cluster``
one of a master with a slave.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from tallystick.runtime.extras import require
from tallystick.testing.cluster import Cluster, cluster

require("tallystick.testing.plugin", "pytest_asyncio")

import pytest_asyncio  # noqa: E402  # without it the line above says what to install

OpenCluster = Callable[..., Awaitable[Cluster]]


@pytest_asyncio.fixture
async def tally_cluster() -> AsyncIterator[OpenCluster]:
    """``c = await tally_cluster(bookies=4)``: what ``cluster`` takes."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_(**shape: object) -> Cluster:
            return await stack.enter_async_context(cluster(**shape))  # type: ignore[arg-type]  # it checks them

        yield open_


@pytest_asyncio.fixture
async def ledger_cluster() -> AsyncIterator[Cluster]:
    """Three bookies."""
    async with cluster(bookies=3) as ledgers:
        yield ledgers


@pytest_asyncio.fixture
async def topic_cluster() -> AsyncIterator[Cluster]:
    """A name server, a master and its slave."""
    async with cluster(bookies=0, brokers="1+1") as topics:
        yield topics
