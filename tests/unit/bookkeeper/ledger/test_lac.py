"""How far an open ledger may be read: the LAC in entries, and the explicit one (facts 5.8, 5.10, 9.2-34)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import ReadLacResponse, encode_response
from tallystick.errors import Unavailable


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


@pytest.mark.parametrize(("interval_s", "wire", "last"), [(0.0, "auto", 3), (0.1, "auto", 4), (0.1, "v2", 3)])
async def test_q6_the_explicit_lac_counts_where_it_is_told_and_asked_for(
    cluster: SmallCluster, interval_s: float, wire: str, last: int
) -> None:
    """Facts 9.2-34: an interval of 0 leaves readers one entry behind."""
    writer = await cluster.client(1, explicit_lac_interval_s=interval_s).create_ledger(3)
    for _ in range(5):
        await writer.append(b"x")
    await asyncio.sleep(0.5)
    async with await cluster.client(2, wire=wire).open_ledger(writer.id) as reader:
        assert reader.last_entry == last


async def test_q15_an_explicit_lac_with_a_bad_digest_is_unknown(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    await writer.append(b"x")

    def lie(request: v3.Request) -> bytes:
        body = writer.id.to_bytes(8, "big") + (1000).to_bytes(8, "big") + bytes(4)
        return encode_response(ReadLacResponse(request.header.request_id, Code.OK, writer.id, body))

    cluster.bookies["b0"].script_v3 = lie
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        assert reader.last_entry <= 0
        cluster.bookies["b1"].script_v3 = lie
        with pytest.raises(Unavailable):
            await reader.refresh()


async def test_bookies_without_version_3_are_asked_by_version_2(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    for _ in range(5):
        await writer.append(b"x")
    for bookie in cluster.bookies.values():
        bookie.speaks_v3 = False
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        opened = [bookie.opened for bookie in cluster.bookies.values()]
        for _ in range(3):
            assert await reader.refresh() == 3
        assert [bookie.opened for bookie in cluster.bookies.values()] == opened  # it is remembered
