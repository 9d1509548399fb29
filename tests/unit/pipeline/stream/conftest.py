"""Three bookies in this process, and a stream whose owner is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.listed_streams import ListedStream
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers


@pytest.fixture(autouse=True)
def close_worker() -> Iterator[None]:
    yield
    close_workers()


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    started = await SmallCluster().start(3)
    yield started
    await started.close()


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return ListedStream(cluster.client(7))
