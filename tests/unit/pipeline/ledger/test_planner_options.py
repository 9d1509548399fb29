"""What a streaming query of ledgers reads whose options were changed between two of its starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.following_ledgers import FollowingLedgers
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers


@pytest.fixture(autouse=True)
def close_worker() -> Iterator[None]:
    yield
    close_workers()


async def test_a_ledger_that_the_options_name_no_more_is_left_alone(cluster: SmallCluster) -> None:
    bk = cluster.client(7)
    kept, left = [await bk.create_ledger(3, write_quorum=2, ack_quorum=2) for _ in range(2)]
    for writer in (kept, left):
        await writer.append(b"0")
        await writer.append(b"1")
    both = FollowingLedgers(cluster, ledgers=f"{kept.id},{left.id}")
    await both.until_read(2)
    one = FollowingLedgers(cluster, ledgers=f"{kept.id}")
    one.at, one.rows = both.at, [row for row in both.rows if row[0] == kept.id]
    for writer in (kept, left):
        await writer.append(b"2")
        await writer.close()
    assert await one.until_idle() == [b"0", b"1", b"2"]
    assert one.at is not None and not one.at.next and not one.at.has_read(left.id)
