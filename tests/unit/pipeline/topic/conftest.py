"""A name server and fake brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.fake_brokers import FakeCluster
from support.spark_workers import close_workers


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    started = FakeCluster()
    await started.start()
    yield started
    await started.stop()


@pytest.fixture(autouse=True)
def no_worker_left() -> Iterator[None]:
    yield
    close_workers()
