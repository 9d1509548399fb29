"""Groups as an operator sees them, at real brokers in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tallystick
from support.live_brokers import LiveCluster, live_cluster
from support.waiting import until
from tallystick.admin import groups, topics
from tallystick.admin.brokers import Operator
from tallystick.admin.groups import GroupStatus
from tallystick.errors import NoSuchTopic, NotFound, Unavailable
from tallystick.rocketmq.wire.values import RequestCode


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path) as cluster:
        for name in ("broker-a", "broker-b"):
            await cluster.start(name, role="ASYNC_MASTER")
        yield cluster


async def consumed(cluster: LiveCluster, sends: int, takes: int) -> None:
    """A topic of a queue at each broker, and a group that has taken some of its messages."""
    await topics.create_topic(cluster.operator, "T", queues=1)
    async with tallystick.topics(cluster.name_server) as mq:
        for number in range(sends):
            await mq.producer("P").send("T", b"%d" % number)
        async with mq.consumer("billing", "T", start="first") as consumer:
            for _ in range(takes):
                consumer.ack(await anext(consumer))
            await consumer.commit()
            (listed,) = await groups.list_groups(cluster.operator)
            assert (listed.name, listed.members) == ("billing", 1)


async def test_a_groups_members_topics_and_lag_are_of_all_brokers(cluster: LiveCluster) -> None:
    assert await groups.list_groups(cluster.operator) == []
    await consumed(cluster, 6, 4)
    assert await groups.list_groups(cluster.operator) == [GroupStatus("billing", 0, ("T",), 2)]
    found = [one for one in await groups.group_lag(cluster.operator, "billing") if one.topic == "T"]
    assert [(one.broker, one.queue, one.end) for one in found] == [("broker-a", 0, 3), ("broker-b", 0, 3)]
    assert sum(one.lag for one in found) == 2 and sum(one.offset for one in found) == 4
    with pytest.raises(NotFound, match="no broker has an offset of this group"):
        await groups.group_lag(cluster.operator, "nobody")


async def test_with_the_master_away_its_slave_tells_and_nothing_is_deleted(cluster: LiveCluster) -> None:
    await consumed(cluster, 4, 4)
    await cluster.brokers["broker-a"].stop()
    assert [one.broker for one in await groups.group_lag(cluster.operator, "billing") if one.topic == "T"] == [
        "broker-b"
    ]
    slave = await cluster.start("broker-b-s1")
    await until(lambda: slave.parts.store.end == cluster.brokers["broker-b"].parts.store.end)
    await until(lambda: "T" in slave.parts.topics.all and slave.parts.offsets.topics_of("billing"))
    await cluster.brokers["broker-b"].stop()
    (left,) = [one for one in await groups.group_lag(cluster.operator, "billing") if one.topic == "T"]
    assert (left.broker, left.offset, left.end, left.lag) == ("broker-b", 2, 2, 0)
    (queue,) = await topics.topic_queues(cluster.operator, "T")
    assert (queue.broker, queue.queue, queue.first, queue.end) == ("broker-b", 0, 0, 2)
    with pytest.raises(Unavailable, match="a master that has the topic is away"):
        await topics.delete_topic(cluster.operator, "T")
    assert await topics.topic_queues(cluster.operator, "T") == [queue]


async def test_while_one_master_is_away_the_topic_stays_at_the_others(cluster: LiveCluster) -> None:
    """Also a slave is not asked before its master."""
    await consumed(cluster, 4, 4)
    slave = await cluster.start("broker-b-s1")
    masters = ["{}:{}".format(*cluster.brokers[name].address) for name in ("broker-a", "broker-b")]
    assert [addresses[0] for addresses in (await groups._brokers(cluster.operator)).values()] == masters
    await until(lambda: slave.parts.store.end == cluster.brokers["broker-b"].parts.store.end)
    await until(lambda: "T" in slave.parts.topics.all)
    await cluster.brokers["broker-b"].stop()
    with pytest.raises(Unavailable, match="a master that has the topic is away"):
        await topics.delete_topic(cluster.operator, "T")
    assert "T" in cluster.brokers["broker-a"].parts.topics.all


def test_a_group_that_is_ahead_of_a_queues_end_is_not_behind() -> None:
    """A slave that answers for its master may lag."""
    assert groups.QueueBehind("T", "broker-a", 0, offset=5, end=3).lag == 0


async def test_members_that_one_broker_knows_are_counted_whatever_the_others_say(cluster: LiveCluster) -> None:
    await topics.create_topic(cluster.operator, "A", queues=1, broker="broker-a")
    async with tallystick.topics(cluster.name_server) as mq, mq.consumer("billing", "A"):
        (listed,) = await groups.list_groups(cluster.operator)
        assert (listed.name, listed.members) == ("billing", 1)


async def test_a_topic_is_deleted_at_the_masters_before_the_name_servers_forget_it(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that still has it would make it known again."""
    await topics.create_topic(cluster.operator, "T", queues=1)
    kind, there = type(cluster.operator), list[bool]()
    forget = kind.ask_each_name_server

    async def forgetting(self: Operator, code: RequestCode, *how: Any) -> Any:
        there.append(any("T" in broker.parts.topics.all for broker in cluster.brokers.values()))
        return await forget(self, code, *how)

    monkeypatch.setattr(kind, "ask_each_name_server", forgetting)
    await topics.delete_topic(cluster.operator, "T")
    assert there == [False]


async def test_a_deleted_topic_is_gone_everywhere_with_its_messages_and_offsets(cluster: LiveCluster) -> None:
    await consumed(cluster, 6, 6)
    assert [(one.first, one.end) for one in await topics.topic_queues(cluster.operator, "T")] == [(0, 3), (0, 3)]
    assert await topics.delete_topic(cluster.operator, "T") == ["broker-a", "broker-b"]
    with pytest.raises(NoSuchTopic):
        await topics.topic_queues(cluster.operator, "T")
    assert not [one for one in await groups.list_groups(cluster.operator) if one.topics]
    for broker in cluster.brokers.values():
        assert broker.parts.store.queue_range("T", 0) == (0, 0)
        assert "T" not in broker.parts.topics.all
    with pytest.raises(NoSuchTopic):
        await topics.delete_topic(cluster.operator, "T")
