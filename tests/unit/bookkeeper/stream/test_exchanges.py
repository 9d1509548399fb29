"""What an append costs on the network: one exchange with the bookies, and nothing that grows with the stream."""

from __future__ import annotations

import asyncio

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME
from tallystick.bookkeeper.wire import v2


@pytest.mark.rule("Q20")
async def test_q20_an_append_is_one_exchange_with_its_write_quorum(cluster: SmallCluster) -> None:
    """Through a broker it would be two round trips: the owner is in the producer's process."""
    async with cluster.client().open_stream(NAME) as stream:
        await stream.append(b"first")
        await asyncio.sleep(1)  # the explicit LAC of the first one has gone
        for bookie in cluster.bookies.values():
            bookie.requests.clear()
            bookie.requests_v3.clear()
        for _ in range(10):
            await stream.append(b"x", key="k")
        sent = [request for bookie in cluster.bookies.values() for request in bookie.requests]
        assert all(isinstance(request, v2.AddFrame) for request in sent)
        assert len(sent) == 10 * stream.settings.write_quorum
        assert not any(bookie.requests_v3 for bookie in cluster.bookies.values())
