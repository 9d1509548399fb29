"""Streams that sinks wrote, and that an owner has by now, or a Pulsar broker: nobody else changes their lists."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, payloads, read_list
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice.record import applications, as_owned
from tallystick.bookkeeper.wire.stream_values import StreamLedger
from tallystick.errors import StreamOwned
from unit.bookkeeper.stream.test_sink import RAW, committed, opened


async def test_nothing_is_forgotten_in_the_list_of_an_owner_that_has_it(cluster: SmallCluster) -> None:
    """The list changed under the owner, which took that for another owner: it was fenced with its next ledger."""
    bk, operator = cluster.client(), cluster.client()
    await committed(bk, await opened(bk), 0, [b"a"])
    async with bk.open_stream(NAME, settings=replace(RAW, max_entries_per_ledger=1), takeover=True) as stream:
        with pytest.raises(StreamOwned):
            await operator.forget_sink(NAME, "app")
        for data in (b"b", b"c", b"d"):
            await stream.append(data)
    assert (await operator.forget_sink(NAME, "app")).batch == 0, "nobody has the list by now"
    assert not applications(await read_list(cluster))
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"e")
    assert await payloads(cluster) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("is_sinks", [True, False])
async def test_nothing_is_forgotten_in_the_list_that_a_broker_writes(cluster: SmallCluster, is_sinks: bool) -> None:
    bk = cluster.client()
    await committed(bk, await opened(bk), 0, [b"a"])
    catalog = bk.stream_context.catalog
    stored = await catalog.read(NAME)
    async with bk.create_ledger() as brokers:
        listed = replace(stored.value, ledgers=[*stored.value.ledgers, StreamLedger(brokers.id, has_counts=False)])
        version = await catalog.write(NAME, listed if is_sinks else as_owned(listed), stored.version)
        with pytest.raises(StreamOwned, match="a Pulsar broker may write it"):
            await bk.forget_sink(NAME, "app")
    assert (await catalog.read(NAME)).version == version


async def test_a_sink_trims_nothing_of_an_owner_that_took_the_stream_over(cluster: SmallCluster) -> None:
    """What the owner keeps for good was dropped by the retention of a sink, and the list changed under the owner."""
    bk, other = cluster.client(), cluster.client()
    sink = await bk.open_sink(NAME, "app", "q", settings=replace(RAW, retention_s=0))
    settings = StreamSettings(entry_format="raw", max_entries_per_ledger=1)
    async with other.open_stream(NAME, settings=settings, takeover=True) as stream:
        for data in (b"a", b"b"):
            await stream.append(data)
        await asyncio.sleep(1)
        with pytest.raises(StreamOwned, match="an owner writes this stream"):
            await sink.trim()
        for data in (b"c", b"d"):
            await stream.append(data)
    assert await payloads(cluster) == [b"a", b"b", b"c", b"d"]
