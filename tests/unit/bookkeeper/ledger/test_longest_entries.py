"""The longest entries: what fits a frame of each version, written and written back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import UsageError


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


@pytest.mark.parametrize(("wire", "deferred"), [("v3", False), ("v3", True), ("auto", True)])
@pytest.mark.parametrize("ledger", [1, MAX_ID], ids=["low", "high"])
async def test_the_limit_by_version_3_is_what_an_original_bookie_accepts(
    cluster: SmallCluster, wire: str, deferred: bool, ledger: int
) -> None:
    """Its head is longer than that of version 2, and of varying length: any id fits, and recovery."""
    client = cluster.client(wire=wire)
    writer = await client.create_ledger(1, write_quorum=1, ack_quorum=1, deferred_sync=deferred, ledger_id=ledger)
    await writer.append(b"x" * writer.max_payload_bytes)
    with pytest.raises(UsageError, match="too long"):
        await writer.append(b"x" * (writer.max_payload_bytes + 1))
    writer.abort()
    async with cluster.client(wire="v3").open_ledger(ledger, recover=True) as reader:
        assert reader.last_entry == 0
    requests = [r for bookie in cluster.bookies.values() for r in bookie.requests_v3 if isinstance(r, v3.AddRequest)]
    sizes = [len(v3.encode_request(request)) for request in requests]
    assert len(sizes) == 2 and max(sizes) <= 5 * 1024 * 1024, "the limit there counts the length field"
    assert max(sizes) > 5 * 1024 * 1024 - 32


async def test_an_entry_that_fits_no_frame_of_version_3_is_written_back_by_version_2_or_refused_with_the_reason(
    cluster: SmallCluster,
) -> None:
    """An original bookie would close the connection without a word, and so would the next."""
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x" * writer.max_payload_bytes)
    writer.abort()
    with pytest.raises(UsageError, match='recover the ledger with wire="auto"') as refused:
        await cluster.client(wire="v3").open_ledger(writer.id, recover=True)
    assert refused.value.fields["bytes"] == writer.max_payload_bytes > refused.value.fields["max_bytes"]
    assert not any(isinstance(r, v3.AddRequest) for bookie in cluster.bookies.values() for r in bookie.requests_v3)
    async with cluster.client().open_ledger(writer.id, recover=True) as reader:
        assert reader.last_entry == 0


async def test_a_client_of_version_3_with_longer_frames_writes_longer_entries_back(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x" * writer.max_payload_bytes)
    writer.abort()
    client = cluster.client(wire="v3", max_frame_bytes=5_242_876 + 100)
    async with client.open_ledger(writer.id, recover=True) as reader:
        assert reader.last_entry == 0
