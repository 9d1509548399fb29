"""Three bookies in this process, and a stream whose owner is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from support.following_queries import FollowingQuery
from support.listed_streams import ListedStream
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers
from support.stream_partitions import wanted


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


@pytest.fixture
def query(cluster: SmallCluster) -> Any:
    """Makes streaming queries, by their options."""

    def make(**options: str) -> FollowingQuery:
        named = {"startingOffsets": "earliest"} if "startingTimestamp" not in options else {}
        return FollowingQuery(cluster, wanted(follows=True, **{**named, **options}))

    return make
