"""Bookies whose registrations name IPv6 addresses, as originals may: in an endpoint, or by their ids alone."""

from __future__ import annotations

from functools import partial

import pytest

from support.fake_bookie import FakeBookie, _Connection
from support.ipv6 import needs_ipv6
from support.machines import machine
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire.values import BookieInfo


@needs_ipv6
@pytest.mark.real_time
async def test_a_ledger_on_bookies_at_ipv6_addresses_is_written_and_read() -> None:
    cluster = SmallCluster()
    await cluster.driver.init_cluster()
    for host in ("::1", "[::1]"):
        bookie = FakeBookie(f"b{host.strip('[]:')}{len(cluster.bookies)}")
        cluster.bookies[bookie.id] = bookie
        bookie.listener = await machine().network.listen("::1", 0, partial(_Connection, bookie))
        await cluster.driver.register(bookie.id, BookieInfo.at(host, bookie.listener.address[1]))
    async with cluster.client().create_ledger(2, write_quorum=2, ack_quorum=2) as writer:
        await writer.append(b"one")
    async with cluster.client().open_ledger(writer.id) as reader:
        assert [entry.data async for entry in reader.read(0, 0)] == [b"one"]
    await cluster.close()
    for bookie in cluster.bookies.values():
        await bookie.stop()
