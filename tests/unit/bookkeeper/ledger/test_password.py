"""What metadata of the first clients do not say about a ledger comes from whoever opens it."""

from __future__ import annotations

import pytest

from support.old_ledgers import rewrite_as_format_1
from support.small_cluster import SmallCluster
from tallystick.errors import RecoveryIncomplete


@pytest.mark.rule("Q16")
async def test_q16_a_ledger_whose_metadata_store_no_digest_type_is_recovered_with_that_of_the_caller() -> None:
    cluster = await SmallCluster().start(3)
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3, digest="mac", password=b"mine")
    await writer.append(b"one")
    writer.abort()
    await rewrite_as_format_1(cluster.driver, writer.id)
    with pytest.raises(RecoveryIncomplete):
        await cluster.client().open_ledger(writer.id, password=b"mine", recover=True)
    async with cluster.client().open_ledger(writer.id, password=b"mine", digest="mac", recover=True) as reader:
        assert [entry.data async for entry in reader.read(0, 0)] == [b"one"]
    closed = (await cluster.driver.read_ledger(writer.id)).value
    assert (closed.format_version, closed.has_password, closed.last_entry, closed.length) == (1, False, 0, 3)
    await cluster.close()
