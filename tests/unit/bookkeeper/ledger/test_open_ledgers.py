"""What an open ledger costs while nothing happens: a process may have tens of thousands, and each full collection of
Python's garbage looks at every object of all of them, in one turn of the loop."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.client import BookKeeper
from tallystick.bookkeeper.ledger.writer import LedgerWriter

COUNT = 200
IDLE, WRITTEN = 27, 37  # such objects, with the event of its creation that the test keeps


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def open_ledgers(client: BookKeeper) -> list[LedgerWriter]:
    return [await client.create_ledger(3, write_quorum=2, ack_quorum=2) for _ in range(COUNT)]


async def write(writers: list[LedgerWriter]) -> None:
    """One entry each; until no answer is outstanding."""
    for entry in await asyncio.gather(*(writer.append(b"x") for writer in writers)):
        assert entry == 0
    for writer in writers:
        lanes = [channel._lane for channel in writer._replicas._channels if channel is not None]
        await until(lambda lanes=lanes: not any(map(len, filter(None, lanes))))


def tracked() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects())


async def test_an_open_ledger_is_few_objects_for_the_collector(cluster: SmallCluster) -> None:
    client = cluster.client()
    writers = await open_ledgers(client)  # and whatever the first ones make for all
    await write(writers)
    before = tracked()
    more = await open_ledgers(client)
    idle = tracked() - before
    assert idle.total() <= IDLE * COUNT, idle.most_common(12)
    await write(more)
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    written = tracked() - before
    assert written.total() <= WRITTEN * COUNT, written.most_common(20)
    for writer in (*writers, *more):
        writer.abort()
