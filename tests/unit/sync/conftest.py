"""A cluster on a loop of its own, and a blocking client of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from support.small_cluster import SmallCluster
from tallystick import sync


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = SmallCluster()
    asyncio.run_coroutine_threadsafe(made.start(4), loop).result()
    yield made
    asyncio.run_coroutine_threadsafe(made.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def bk(cluster: SmallCluster) -> Iterator[sync.BookKeeper]:
    with sync.connect(f"memory://{cluster.name}") as made:
        yield made
