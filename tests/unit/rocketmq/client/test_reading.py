"""Messages of a stretch of a queue, for nobody's account."""

from __future__ import annotations

import asyncio

import pytest

from support.fake_brokers import FakeCluster
from tallystick.errors import BrokerError, BrokerUnavailable, Unavailable
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.reading import ATTEMPTS
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.headers import PullResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode


async def filled(mq: RocketMQ, cluster: FakeCluster, count: int) -> MessageQueue:
    """One queue with the bodies 0, 1, 2, …; odd ones have the tag ``odd``."""
    await cluster.add()
    queue = (await mq.topic("T")).readable[0]
    for number in range(count):
        await mq.producer("P").send("T", str(number).encode(), tags="odd" if number % 2 else None, queue=queue)
    return queue


async def bodies(mq: RocketMQ, queue: MessageQueue, first: int, end: int | None, tags: str = "*") -> list[int]:
    return [int(message.body) async for message in mq.read(queue, first, end, tags=tags)]


async def test_a_stretch_is_read_and_nothing_beyond_it(mq: RocketMQ, cluster: FakeCluster) -> None:
    queue = await filled(mq, cluster, 100)
    assert await bodies(mq, queue, 0, 100) == list(range(100))
    assert await bodies(mq, queue, 30, 37) == list(range(30, 37))
    assert await bodies(mq, queue, 37, 37) == []
    assert await bodies(mq, queue, 0, 10, "odd") == [1, 3, 5, 7, 9]


async def test_no_group_hears_of_it(mq: RocketMQ, cluster: FakeCluster) -> None:
    queue = await filled(mq, cluster, 3)
    await bodies(mq, queue, 0, 3)
    for broker in cluster.brokers:
        assert not broker.offsets and not broker.members
        assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 0


async def test_without_an_end_it_waits_for_what_comes(mq: RocketMQ, cluster: FakeCluster) -> None:
    queue = await filled(mq, cluster, 1)
    reading = mq.read(queue, 0)
    assert (await anext(reading)).body == b"0"
    waiting = asyncio.ensure_future(anext(reading))
    await mq.producer("P").send("T", b"1", queue=queue)
    assert (await waiting).body == b"1"
    await reading.aclose()


async def test_what_is_not_there_any_more_is_left_out(mq: RocketMQ, cluster: FakeCluster) -> None:
    queue = await filled(mq, cluster, 10)
    for broker in cluster.brokers:
        broker.first["T", queue.queue_id] = 4
    assert await bodies(mq, queue, 0, 10) == [4, 5, 6, 7, 8, 9]


async def test_a_refusal_and_a_dead_broker_are_told(mq: RocketMQ, cluster: FakeCluster) -> None:
    queue = await filled(mq, cluster, 1)
    for broker in cluster.brokers:
        broker.react[RequestCode.PULL_MESSAGE] = lambda link, command: command.response(
            ResponseCode.NO_PERMISSION, "forbidden here"
        )
    with pytest.raises(BrokerError, match="forbidden here"):
        await bodies(mq, queue, 0, 1)
    for broker in cluster.brokers:
        await broker.stop()
    with pytest.raises(Unavailable):
        await bodies(mq, queue, 0, 1)


async def test_a_slave_without_a_queues_beginning_does_not_answer_for_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fields = {"offset": "51", "tallyLacksBeginning": "true"}
    fake.react[RequestCode.GET_MIN_OFFSET] = lambda link, command: command.response(0, None, fields)
    with pytest.raises(BrokerUnavailable, match="its slave never had the first messages"):
        await mq.queue_limits(MessageQueue("T", "b", 0))


async def test_a_slave_that_may_lack_all_of_a_queue_does_not_answer_for_its_end(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """The master was asked for the beginning, and went."""
    fake = await cluster.add(queues=1)
    fields = {"offset": "0", "tallyLacksBeginning": "true"}
    fake.react[RequestCode.GET_MAX_OFFSET] = lambda link, command: command.response(0, None, fields)
    with pytest.raises(BrokerUnavailable, match="its slave never had the first messages"):
        await mq.queue_limits(MessageQueue("T", "b", 0))


async def test_a_time_is_not_looked_up_by_who_may_lack_what_is_meant(cluster: FakeCluster, mq: RocketMQ) -> None:
    """A group that begins at this time would pass over what the slave never had, for ever."""
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    queue, found = (await mq.topic("T")).readable[0], {"offset": "51"}
    for fake in (master, slave):
        fake.react[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda link, command: command.response(0, None, found)
        fake.react[RequestCode.GET_MIN_OFFSET] = lambda link, command: command.response(
            0, None, {"offset": "51", "tallyLacksBeginning": "true"}
        )
    assert await mq.offset_at(queue, 0) == 51, "the master knows"
    await master.stop()
    with pytest.raises(BrokerUnavailable, match="its slave never had the first messages"):
        await mq.offset_at(queue, 0)
    found["offset"] = "52"
    assert await mq.offset_at(queue, 0) == 52, "a message that the slave has is earlier"


async def test_messages_that_only_the_master_has_are_not_waited_for_without_it(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """A slave that began in the middle of the log sends readers of what was before to the master, for ever."""
    slave = await cluster.add(broker_id=1)
    master = await cluster.add(queues=1)
    queue, asked = (await mq.topic("T")).readable[0], list[int]()

    def retry(link: Link, command: Command) -> Command:
        asked.append(int(command.fields["queueOffset"]))
        header = PullResponse(suggest_which_broker_id=0, next_begin_offset=asked[-1], max_offset=90, min_offset=51)
        return command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, None, header.to_fields())

    slave.react[RequestCode.PULL_MESSAGE] = retry
    await master.stop()
    with pytest.raises(Unavailable):  # the last attempt may be at the master
        await bodies(mq, queue, 7, 60)
    assert set(asked) == {7} and len(asked) <= ATTEMPTS


async def test_whose_slave_alone_is_known_hears_why(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    header = PullResponse(suggest_which_broker_id=0, next_begin_offset=7, max_offset=90, min_offset=51)
    fake.react[RequestCode.PULL_MESSAGE] = lambda link, command: command.response(
        ResponseCode.PULL_RETRY_IMMEDIATELY, None, header.to_fields()
    )
    with pytest.raises(BrokerUnavailable, match="its slave does not have these messages"):
        await bodies(mq, (await mq.topic("T")).readable[0], 7, 60)
