"""Sinks as an operator finds and forgets them, at real brokers in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.live_brokers import LiveCluster, live_cluster
from support.sinks import identities, sink_command
from support.waiting import until
from tallystick.admin import sinks, topics
from tallystick.errors import BrokerError, NotFound
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.sink_identity import name_part
from tallystick.runtime.machine import this_machine


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path, "broker-a", "broker-a-s1", "broker-b") as cluster:
        await topics.create_topic(cluster.operator, "T", queues=1)
        yield cluster


async def send(cluster: LiveCluster, first: int, application: str = "an app") -> int:
    remoting = RemotingClient(this_machine(), RemotingSettings())
    try:
        address = "{}:{}".format(*cluster.brokers["broker-a"].address)
        some = [each._replace(application=name_part(application)) for each in identities(first, 2)]
        return (await remoting.ask(address, sink_command(some), 5.0)).code
    finally:
        await remoting.close()


async def test_an_application_is_listed_and_forgotten_at_master_and_slave(cluster: LiveCluster) -> None:
    assert await sinks.list_sinks(cluster.operator) == []
    assert await send(cluster, 0) == 0
    (listed,) = await sinks.list_sinks(cluster.operator, "T")
    assert (listed.broker, listed.topic, listed.application, listed.query) == ("broker-a", "T", "an app", "q")
    assert (listed.batch, listed.partitions) == (0, 1)
    assert listed.expires_ms == listed.stored_ms + 30 * sinks.DAY_MS
    assert await sinks.list_sinks(cluster.operator, "Other") == []
    slave = cluster.brokers["broker-a-s1"]
    await until(lambda: slave.parts.store.sinks.count == 1)
    with pytest.raises(BrokerError, match="would come twice"):
        await sinks.forget_sink(cluster.operator, "T", "an app")
    assert await sinks.forget_sink(cluster.operator, "T", "an app", force=True) == ["broker-a"]
    assert await sinks.list_sinks(cluster.operator) == []
    await slave.sync.sync("{}:{}".format(*cluster.brokers["broker-a"].address))
    assert slave.parts.store.sinks.find("T", "an%20app") is None
    with pytest.raises(NotFound):
        await sinks.forget_sink(cluster.operator, "T", "an app", force=True)
    assert await send(cluster, 0) == 0, "it begins again"
    (listed,) = await sinks.list_sinks(cluster.operator)
    assert listed.partitions == 1
