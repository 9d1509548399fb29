from __future__ import annotations

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.errors import BrokerError, BrokerUnavailable, NoSuchMessage, NoSuchTopic, Unavailable, UsageError
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import TopicPartition
from tallystick.pipeline.topic.survey import survey
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode


def fill(broker: FakeBroker, *counts: int, body: bytes = b"x") -> None:
    for queue, count in enumerate(counts):
        broker.queues[("T", queue)] = [(0, body, b"")] * count


def wanted(cluster: FakeCluster, **options: str) -> TopicOptions:
    named = {} if "subscribePattern" in options or "assign" in options else {"subscribe": "T"}
    return TopicOptions.parse({"nameServer": cluster.address, **named, **options}, {})


async def look(cluster: FakeCluster, **options: str) -> list[TopicPartition]:
    return await survey(wanted(cluster, **options))


def ranges(partitions: list[TopicPartition]) -> list[tuple[str, int, int, int]]:
    wanted = [range_ for partition in partitions for range_ in partition.ranges]
    assert all(each.queue.topic == "T" for each in wanted)
    return [(each.queue.broker, each.queue.queue_id, each.first, each.end) for each in wanted]


async def test_all_queues_of_all_brokers_that_have_messages(cluster: FakeCluster) -> None:
    one, two = await cluster.add("a"), await cluster.add("b")
    fill(one, 10, 0)
    fill(two, 3, 7)
    two.first[("T", 1)] = 5
    found = await look(cluster)
    assert ranges(found) == [("a", 0, 0, 10), ("b", 0, 0, 3), ("b", 1, 5, 7)]
    assert found[0].brokers.addresses == {"a": {0: one.address}, "b": {0: two.address}}
    assert found[0].brokers.group == "TOOLS_CONSUMER"


@pytest.mark.rule("H3", "H13")
async def test_h13_a_dead_master_is_stood_in_for_by_its_slave(cluster: FakeCluster) -> None:
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    fill(slave, 10)
    await master.stop()
    assert ranges(await look(cluster)) == [("b", 0, 0, 10)]


@pytest.mark.rule("H3", "H13")
async def test_h13_a_slave_that_has_not_copied_a_topic_does_not_say_that_there_is_none(cluster: FakeCluster) -> None:
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    slave.unknown_topics.add("T")
    await master.stop()
    with pytest.raises(BrokerUnavailable, match="its slave has not copied the topic yet"):
        await look(cluster)


@pytest.mark.rule("H3", "H13")
async def test_h13_a_queue_does_not_begin_where_a_slave_does_that_never_had_its_beginning(cluster: FakeCluster) -> None:
    """Who begins at the earliest message would leave out what only the master has."""
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    fill(slave, 10)
    slave.first[("T", 0)] = 4
    slave.react[RequestCode.GET_MIN_OFFSET] = lambda link, command: command.response(
        0, None, {"offset": "4", "tallyLacksBeginning": "true"}
    )
    await master.stop()
    with pytest.raises(BrokerUnavailable, match="its slave never had the first messages"):
        await look(cluster)


async def test_offsets_by_queue(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 10, 10)
    start, end = '{"T": {"b": {"0": 4}}}', '{"T": {"b": {"1": 9}}}'
    found = await look(cluster, startingOffsets=start, endingOffsets=end)
    assert ranges(found) == [("b", 0, 4, 10), ("b", 1, 0, 9)]
    assert await look(cluster, startingOffsets="latest") == []


async def test_times(cluster: FakeCluster) -> None:
    """The fake broker finds the offset that the time says."""
    fill(await cluster.add(), 10, 3)
    found = await look(cluster, startingTimestamp="2", endingTimestamp="8")
    assert ranges(found) == [("b", 0, 2, 8), ("b", 1, 2, 3)]


async def test_a_query_whose_start_is_behind_its_end_has_nothing(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 10)
    assert await look(cluster, startingOffsets="latest", endingTimestamp="8") == []


async def test_what_is_named_and_not_there(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 10)
    with pytest.raises(NoSuchMessage, match=r"startingOffsets: .* this offset \(any more\) \(queue"):
        await look(cluster, startingOffsets='{"T": {"b": {"0": 11}}}')
    with pytest.raises(UsageError, match="endingOffsets names a queue that the query does not read"):
        await look(cluster, endingOffsets='{"T": {"x": {"0": 1}}}')
    with pytest.raises(UsageError, match="starts after its end"):
        await look(cluster, startingOffsets='{"T": {"b": {"0": 5}}}', endingOffsets='{"T": {"b": {"0": 4}}}')
    with pytest.raises(NoSuchTopic, match="assign names a queue that is not there"):
        await look(cluster, assign='{"T": {"b": [0, 2]}}')
    with pytest.raises(NoSuchTopic, match="no topic matches subscribePattern"):
        await look(cluster, subscribePattern="U.*")


async def test_what_is_deleted_is_passed_over_if_it_may_be(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 10)
    broker.first[("T", 0)] = 3
    start = '{"T": {"b": {"0": 2}}}'
    with pytest.raises(NoSuchMessage, match="failOnDataLoss=false begins at the first that there is"):
        await look(cluster, startingOffsets=start)
    [partition] = await look(cluster, startingOffsets=start, failOnDataLoss="false")
    assert ranges([partition]) == [("b", 0, 3, 10)] and not partition.fail_on_data_loss


async def test_an_end_that_is_deleted_is_passed_over_if_it_may_be(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 10, 2)
    broker.first[("T", 0)] = 3
    end = '{"T": {"b": {"0": 2}}}'
    with pytest.raises(NoSuchMessage, match="endingOffsets"):
        await look(cluster, endingOffsets=end)
    assert ranges(await look(cluster, endingOffsets=end, failOnDataLoss="false")) == [("b", 1, 0, 2)]


async def test_several_topics_a_pattern_and_single_queues(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    for topic, queue in (("T", 0), ("T", 1), ("X", 1)):
        broker.queues[(topic, queue)] = [(0, b"x", b"")]

    async def queues(**options: str) -> list[tuple[str, int]]:
        found = await look(cluster, **options)
        return [(range_.queue.topic, range_.queue.queue_id) for each in found for range_ in each.ranges]

    assert await queues(subscribe="X, T") == await queues(subscribePattern="T|X") == [("T", 0), ("T", 1), ("X", 1)]
    assert await queues(subscribePattern="X.*") == [("X", 1)]
    assert await queues(assign='{"T": {"b": [1]}, "X": {"b": [0, 1]}}') == [("T", 1), ("X", 1)]


async def test_queues_that_are_read_and_not_written_count(cluster: FakeCluster) -> None:
    """The original says nothing of these in the statistics of a topic."""
    broker = await cluster.add()
    fill(broker, 1, 2)
    broker.queue_count = 1
    assert ranges(await look(cluster)) == [("b", 0, 0, 1), ("b", 1, 0, 2)]


async def test_no_topic_no_broker_no_name_server(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    fill(broker, 1)
    with pytest.raises((NoSuchTopic, BrokerError), match="No topic route"):
        await look(cluster, subscribe="absent")
    await broker.stop()
    with pytest.raises(Unavailable):
        await look(cluster)
    with pytest.raises(Unavailable, match="no name server answers"):
        await look(cluster, nameServer="127.0.0.1:1")


async def test_a_queue_is_named_whole(cluster: FakeCluster) -> None:
    fill(await cluster.add(), 2)
    assert (await look(cluster))[0].ranges[0].queue == MessageQueue("T", "b", 0)
