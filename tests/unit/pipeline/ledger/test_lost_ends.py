"""Batches whose ends are entries that nobody has any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.following_ledgers import FollowingLedgers
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.errors import EntryLost, NoSuchEntry


@pytest.fixture(autouse=True)
def workers_end() -> Iterator[None]:
    yield
    close_workers()


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_batch_whose_last_entry_is_lost_has_the_others(cluster: SmallCluster, *, is_given_up: bool) -> None:
    """Its bytes are told by its ends, and nobody has this one: an operator gave it up, or no replica has it."""
    async with await cluster.client(7).create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
        for number in range(6):
            await writer.append(b"%d" % number)
    ledger = writer.id
    if is_given_up:
        stored = await cluster.driver.read_ledger(ledger)
        await cluster.driver.write_ledger(ledger, with_lost(stored.value, [(2, 2)]), stored.version)
    else:
        for bookie in cluster.bookies.values():
            bookie.keep_only({place: body for place, body in bookie.entries.items() if place != (ledger, 2)})
    with pytest.raises(EntryLost if is_given_up else NoSuchEntry):
        await FollowingLedgers(cluster, maxOffsetsPerTrigger="3").until_idle()
    rows = await FollowingLedgers(cluster, maxOffsetsPerTrigger="3", failOnDataLoss="false").until_idle()
    assert rows == [b"0", b"1", b"3", b"4", b"5"]
