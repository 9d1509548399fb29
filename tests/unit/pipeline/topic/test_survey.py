from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.errors import BrokerError, NoSuchMessage, NoSuchTopic, Unavailable, UsageError
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import QueueRange
from tallystick.pipeline.topic.survey import TopicSurvey, survey
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode


def fill(broker: FakeBroker, *counts: int, body: bytes = b"x") -> None:
    for queue, count in enumerate(counts):
        broker.queues[("T", queue)] = [(0, body, b"")] * count


async def look(cluster: FakeCluster, start: Bound | None = None, end: Bound | None = None) -> TopicSurvey:
    options = TopicOptions((cluster.address,), "T")
    return await survey(replace(options, start=start or Bound(EARLIEST), end=end or Bound(LATEST)))


def ranges(found: TopicSurvey) -> list[tuple[str, int, int, int]]:
    wanted = [extent.range for extent in found.extents]
    assert all(isinstance(each, QueueRange) and each.queue.topic == "T" for each in wanted)
    return [(each.queue.broker, each.queue.queue_id, each.first, each.end) for each in wanted]


async def test_all_queues_of_all_brokers_that_have_messages(cluster: FakeCluster) -> None:
    one, two = await cluster.add("a"), await cluster.add("b")
    fill(one, 10, 0)
    fill(two, 3, 7)
    two.first[("T", 1)] = 5
    found = await look(cluster)
    assert ranges(found) == [("a", 0, 0, 10), ("b", 0, 0, 3), ("b", 1, 5, 7)]
    assert found.brokers.addresses == {"a": {0: one.address}, "b": {0: two.address}}
    assert found.brokers.group == "TOOLS_CONSUMER"


async def test_sizes_are_estimated_from_some_messages(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 100, body=b"x" * 1000)
    [extent] = (await look(cluster)).extents
    assert 1091 < extent.message_bytes < 1200 and broker.count(RequestCode.PULL_MESSAGE) == 1


@pytest.mark.rule("H3", "H13")
async def test_h13_a_dead_master_is_stood_in_for_by_its_slave(cluster: FakeCluster) -> None:
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    fill(slave, 10)
    await master.stop()
    assert ranges(await look(cluster)) == [("b", 0, 0, 10)]


async def test_offsets_by_queue(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 10, 10)
    start, end = Bound(EARLIEST, {("b", 0): 4}), Bound(LATEST, {("b", 1): 9})
    assert ranges(await look(cluster, start, end)) == [("b", 0, 4, 10), ("b", 1, 0, 9)]
    assert ranges(await look(cluster, Bound(LATEST))) == []


async def test_times(cluster: FakeCluster) -> None:
    """The fake broker finds the offset that the time says."""
    fill(await cluster.add(), 10, 3)
    found = await look(cluster, Bound(timestamp_ms=2), Bound(timestamp_ms=8))
    assert ranges(found) == [("b", 0, 2, 8), ("b", 1, 2, 3)]


async def test_what_is_named_and_not_there(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 10)
    with pytest.raises(NoSuchMessage, match="does not reach"):
        await look(cluster, Bound(EARLIEST, {("b", 0): 11}))
    with pytest.raises(UsageError, match="no such queue"):
        await look(cluster, end=Bound(LATEST, {("x", 0): 1}))
    with pytest.raises(UsageError, match="starts after its end"):
        await look(cluster, Bound(EARLIEST, {("b", 0): 5}), Bound(LATEST, {("b", 0): 4}))


async def test_no_topic_no_broker_no_name_server(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 1)
    with pytest.raises((NoSuchTopic, BrokerError), match="No topic route"):
        await survey(TopicOptions((cluster.address,), "absent"))
    await broker.stop()
    with pytest.raises(Unavailable):
        await look(cluster)
    with pytest.raises(Unavailable, match="no name server answers"):
        await survey(TopicOptions(("127.0.0.1:1",), "T"))


async def test_a_queue_is_named_whole(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 2)
    assert (await look(cluster)).extents[0].range.queue == MessageQueue("T", "b", 0)
