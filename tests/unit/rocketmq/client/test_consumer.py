from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.errors import BrokerError, NoSuchTopic, RemoteProtocolError, UsageError
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.headers import PullHeader
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

PULL = RequestCode.PULL_MESSAGE


async def test_all_queues_are_read_in_order_and_positions_are_committed(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    fill(fake, 100, 0)
    fill(fake, 70, 1)
    async with mq.consumer("g", "T", start="first") as consumer:
        assert consumer.queues == [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
        messages = await take(consumer, 170)
        consumer.ack(messages[-1])
        await consumer.commit()
    for queue, count in ((0, 100), (1, 70)):
        mine = [message for message in messages if message.queue.queue_id == queue]
        assert [message.offset for message in mine] == list(range(count))
        assert [message.body for message in mine] == [b"%d" % n for n in range(count)]
    assert fake.offsets == {("g", "T", 0): 100, ("g", "T", 1): 70}


async def test_a_message_that_comes_later_is_delivered_at_once(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    consumer = mq.consumer("g", "T")
    waiting = asyncio.ensure_future(anext(consumer))
    await until(lambda: fake.count(PULL) == 2)
    await mq.producer("p").send("T", b"late", tags="A", keys=["k"], properties={"x": "y"})
    async with asyncio.timeout(5):
        message = await waiting
    assert (message.topic, message.body, message.tags, message.keys) == ("T", b"late", "A", ["k"])
    assert message.properties == {"x": "y"}
    assert message.message_id == message.record.properties["UNIQ_KEY"]
    assert (message.born_timestamp, message.store_timestamp) == (1, 2)


async def test_a_group_goes_on_where_it_stands(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    fake.offsets["g", "T", 0] = 7
    async with mq.consumer("g", "T", start="first") as consumer:
        assert [message.offset for message in await take(consumer, 3)] == [7, 8, 9]


@pytest.mark.parametrize(("start", "first"), [("first", 2), ("last", 10), (1_000_005, 5)])
async def test_where_a_new_group_begins(cluster: FakeCluster, mq: RocketMQ, start: str | int, first: int) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    fake.first["T", 0] = 2
    consumer = mq.consumer("g", "T", start=start)
    await consumer.start()
    await until(lambda: fake.count(PULL))
    (asked,) = [PullHeader.of(command) for command in fake.asked if command.code == PULL][:1]
    assert asked.queue_offset == first
    await consumer.close()


async def test_the_message_at_hand_is_committed_only_when_it_is_dealt_with(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    consumer = mq.consumer("g", "T", start="first")
    await take(consumer, 3)
    await consumer.commit()
    assert fake.offsets["g", "T", 0] == 2
    with pytest.raises(ZeroDivisionError):
        async with consumer:
            await take(consumer, 2)
            raise ZeroDivisionError
    assert fake.offsets["g", "T", 0] == 4  # as the first of the two was left behind


class ProcessingFailed(Exception):
    """What a loop's body raises."""


async def consume(mq: RocketMQ, count: int, then: Callable[[], None]) -> None:
    """A user's own loop: whatever comes of the message after ``count`` others, its processing does not end."""
    async for message in mq.consumer("g", "T", start="first"):
        if message.offset == count:
            then()
            await asyncio.Event().wait()


async def test_a_message_whose_processing_failed_is_not_committed_and_comes_again(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)

    def fail() -> None:
        raise ProcessingFailed

    with pytest.raises(ProcessingFailed):
        async with topics(cluster.address) as mq:
            await consume(mq, 4, fail)
    assert fake.offsets["g", "T", 0] == 4
    async with topics(cluster.address) as mq:
        assert [message.offset for message in await take(mq.consumer("g", "T"), 1)] == [4]


async def test_a_message_is_not_committed_when_its_processing_is_cancelled(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    reached = asyncio.Event()

    async def program() -> None:
        async with topics(cluster.address) as mq:
            await consume(mq, 4, reached.set)

    running = asyncio.create_task(program())
    async with asyncio.timeout(10):
        await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert fake.offsets["g", "T", 0] == 4


async def test_a_loop_that_was_left_is_gone_on_with_at_the_message_it_did_not_finish(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    consumer = mq.consumer("g", "T", start="first")
    async for message in consumer:
        if message.offset == 4:
            break
    assert [message.offset async for message in _until(consumer, 6)] == [4, 5, 6]
    await consumer.close()
    assert fake.offsets["g", "T", 0] == 6


async def _until(consumer: Consumer, offset: int) -> AsyncIterator[ReceivedMessage]:
    async for message in consumer:
        yield message
        if message.offset == offset:
            return


async def test_a_client_forgets_its_closed_consumers(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(queues=1)
    for _ in range(3):
        async with mq.consumer("g", "T"):
            gc.collect()
            assert len(mq._consumers) == 1
    gc.collect()
    assert len(mq._consumers) == 0


async def test_positions_are_committed_as_time_goes_by(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    settings = BrokerClientSettings(commit_interval_s=0.02)
    async with topics(cluster.address, settings=settings) as mq:
        consumer = mq.consumer("g", "T", start="first")
        await take(consumer, 5)
        await until(lambda: fake.offsets.get(("g", "T", 0)) == 4)
        count = fake.count(RequestCode.UPDATE_CONSUMER_OFFSET)
        await asyncio.sleep(0.1)
        assert fake.count(RequestCode.UPDATE_CONSUMER_OFFSET) == count  # nothing new, nothing said


async def test_tags_are_compared_as_text_and_what_they_leave_out_counts_as_consumed(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    # "Aa" and "BB" have the same hash: a broker lets both through.
    fake.queues["T", 0] = [(0, tag, b"TAGS\x01" + tag + b"\x02") for tag in (b"Aa", b"BB", b"C", b"Aa", b"C", b"BB")]
    async with mq.consumer("g", "T", tags="Aa || D", start="first") as consumer:
        messages = await take(consumer, 2)
        assert [message.body for message in messages] == [b"Aa", b"Aa"]
        await until(lambda: fake.count(PULL) == 2)
        consumer.ack(messages[-1])
        await consumer.commit()
    assert fake.offsets["g", "T", 0] == 6


async def test_a_corrected_offset_is_followed_and_told(cluster: FakeCluster, mq: RocketMQ, told: list[Any]) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    fake.first["T", 0] = 8
    fake.offsets["g", "T", 0] = 3
    async with mq.consumer("g", "T") as consumer:
        assert [message.offset for message in await take(consumer, 2)] == [8, 9]
    (event,) = [event for event in told if event.kind == "offset moved"]
    assert (event.fields["offset"], event.fields["to"]) == (3, 8)


async def test_prefetching_is_bounded(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fake.queues["T", 0] = [(0, bytes(1000), b"")] * 500
    async with topics(cluster.address, settings=BrokerClientSettings(max_unacked_bytes=40_000)) as mq:
        consumer = mq.consumer("g", "T", start="first")
        await take(consumer, 1)
        await asyncio.sleep(0.05)
        assert fake.count(PULL) <= 3
        assert len(await take(consumer, 499)) == 499


@pytest.mark.rule("H3", "H13")
async def test_h3_h13_a_slave_serves_while_the_master_is_gone_and_the_master_again_when_it_is_back(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    fill(master, 10)
    slave.queues, slave.offsets = master.queues, master.offsets
    consumer = mq.consumer("g", "T", start="first")
    assert [message.offset for message in await take(consumer, 10)] == list(range(10))
    await until(lambda: master.count(PULL) == 2)  # held at the end
    assert slave.count(PULL) == 0
    await master.stop()
    slave.queues["T", 0].append((0, b"replicated before", b""))
    slave.wake()
    [message] = await take(consumer, 1)
    assert message.offset == 10
    assert slave.count(PULL) > 0
    consumer.ack(message)
    await consumer.commit()
    assert slave.offsets["g", "T", 0] == 11

    back = FakeBroker()
    back.queues, back.offsets = slave.queues, slave.offsets
    await back.start()
    cluster.brokers.append(back)
    cluster.register(back, queues=1)
    await mq.topic("T")

    async def at_the_master() -> bool:
        await mq.producer("p").send("T", b"new", queue=MessageQueue("T", "b", 0))
        slave.wake()
        await take(consumer, 1)
        return back.count(PULL) > 0

    await until(at_the_master)
    await consumer.close()


@pytest.mark.rule("H4", "H13")
async def test_h13_a_new_group_begins_before_the_first_message_of_a_slave(cluster: FakeCluster, mq: RocketMQ) -> None:
    """A slave that was empty has the newest file of the log alone: its first message is not the first."""
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    fill(slave, 10)
    slave.first["T", 0] = 5
    await mq.topic("T")
    await master.stop()
    async with mq.consumer("g", "T", start="first") as consumer:
        await until(lambda: slave.count(PULL) > 1)
        back = FakeBroker()
        back.queues = slave.queues
        await back.start()
        cluster.brokers.append(back)
        cluster.register(back, queues=1)
        await mq.topic("T")
        assert [message.offset for message in await take(consumer, 10)] == list(range(10))


async def test_a_reader_goes_where_the_broker_suggests(cluster: FakeCluster, mq: RocketMQ) -> None:
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    fill(master, 40)
    slave.queues = master.queues
    master.suggests = slave.suggests = 1
    async with mq.consumer("g", "T", start="first") as consumer:
        await take(consumer, 40)
        await until(lambda: slave.count(PULL) == 2)
    assert master.count(PULL) == 1


async def test_brokers_hear_of_groups_and_of_their_leaving(cluster: FakeCluster) -> None:
    master, slave = await cluster.add(), await cluster.add(broker_id=1)
    async with topics(cluster.address) as mq:
        await mq.producer("p").send("T", b"x")
        async with mq.consumer("g", "T", tags="A || B"):
            for fake in (master, slave):
                (group,) = fake.heartbeats[-1].consumers
                assert (group.name, group.subscriptions[0].tags) == ("g", ("A", "B"))
                assert [producer.name for producer in fake.heartbeats[-1].producers] == ["p"]
                assert len(fake.members["g"]) == 1
        assert not master.members["g"]
        assert not slave.members["g"]


async def test_heartbeats_go_on(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    async with topics(cluster.address, settings=BrokerClientSettings(heartbeat_s=0.02)) as mq:
        await mq.producer("p").send("T", b"x")
        await until(lambda: len(fake.heartbeats) > 2)
    assert {heartbeat.client_id for heartbeat in fake.heartbeats} == {fake.heartbeats[0].client_id}
    assert all([producer.name for producer in heartbeat.producers] == ["p"] for heartbeat in fake.heartbeats)


async def test_what_a_broker_asks_and_we_do_not_know_is_answered(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    links: list[Any] = []
    responses: list[Any] = []
    fake.react[PULL] = lambda link, command: links.append(link)
    async with mq.consumer("g", "T"):
        await until(lambda: links)
        around = links[0]._around

        def received(link: Any) -> None:
            responses.extend(command for command in link.take() if command.is_response)

        links[0]._around = replace(around, received=received)
        links[0].send(request(307))
        await until(lambda: responses)
        assert responses[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_refused_pull_is_tried_again_and_a_hopeless_one_raised(
    cluster: FakeCluster, mq: RocketMQ, told: list[Any]
) -> None:
    fake = await cluster.add(queues=1)
    fake.react[PULL] = lambda link, command: command.response(ResponseCode.NO_PERMISSION, "not for you")
    consumer = mq.consumer("g", "T")
    with pytest.raises(BrokerError, match="not for you"):
        await anext(consumer)
    await consumer.close()
    fake.react[PULL] = lambda link, command: command.response(ResponseCode.SYSTEM_ERROR, "not now")
    async with mq.consumer("g", "T"):
        await until(lambda: [event for event in told if event.kind == "pull refused"])


async def test_a_body_that_is_no_records_is_raised(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 1)
    fake.react[PULL] = lambda link, command: fake._pulled(command, 0, 1, 0, 1, b"nonsense" * 20)
    with pytest.raises(RemoteProtocolError):
        await anext(mq.consumer("g", "T", start="first"))


async def test_a_broker_that_holds_no_pulls_is_not_asked_without_pause(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fake.react[PULL] = lambda link, command: fake._pulled(command, ResponseCode.PULL_NOT_FOUND, 0, 0, 0)
    async with mq.consumer("g", "T"):
        await asyncio.sleep(0.25)
        assert 1 <= fake.count(PULL) <= 4


async def test_an_unknown_topic(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    with pytest.raises(NoSuchTopic):
        await anext(mq.consumer("g", "Nope"))


async def test_a_topic_that_is_made_a_moment_later_is_waited_for(cluster: FakeCluster) -> None:
    """A send made it, and the name server does not know yet; or that has just started, and knows nobody yet."""
    told: list[Event] = []
    settings = BrokerClientSettings(topic_wait_s=20.0)
    async with topics(cluster.address, settings=settings, events=Events(told.append)) as mq:
        first = asyncio.ensure_future(take(mq.consumer("g", "Soon", start="first"), 1))
        await until(lambda: [event.kind for event in told].count("route not found") > 1)
        fake = await cluster.add(topics=("T", "Soon"), queues=1)
        fill(fake, 1, topic="Soon")
        assert [message.body for message in await first] == [b"0"]


async def test_one_group_once_in_a_client(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    async with mq.consumer("g", "T"):
        with pytest.raises(UsageError, match="already"):
            await mq.consumer("g", "X").start()
        assert mq._membership.has_consumer("g")


async def test_closing_ends_the_iteration(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    consumer = mq.consumer("g", "T")
    waiting = asyncio.ensure_future(anext(consumer, None))
    await until(lambda: consumer.queues)
    await consumer.close()
    assert await waiting is None
    assert await anext(consumer, None) is None  # a loop that was at a message ends as quietly


@pytest.mark.parametrize("started", [True, False])
async def test_a_closed_consumer_is_refused_wherever_it_could_begin(
    cluster: FakeCluster, mq: RocketMQ, started: bool
) -> None:
    await cluster.add()
    consumer = mq.consumer("g", "T")
    if started:
        await consumer.start()
    await consumer.close()
    with pytest.raises(UsageError, match="this consumer is closed: make another one"):
        async with consumer:
            pass
    with pytest.raises(UsageError, match="is closed"):
        await consumer.start()
    with pytest.raises(UsageError, match="is closed"):
        aiter(consumer)
    with pytest.raises(UsageError, match="is closed"):
        consumer.batches()
    await consumer.close()


async def test_who_waits_for_a_start_that_is_closed_meanwhile_gets_no_error(cluster: FakeCluster) -> None:
    async with topics(cluster.address, settings=BrokerClientSettings()) as mq:
        consumer = mq.consumer("g", "Unknown")  # whose route it waits for
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: consumer._tasks)
        await consumer.close()
        await starting


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "middle"},
        {"tags": "A || || B"},
        {"group": ""},
        {"group": "a b"},
        {"queues": [MessageQueue("X", "b", 0)]},
    ],
)
async def test_arguments_that_cannot_work(mq: RocketMQ, wrong: dict[str, Any]) -> None:
    arguments = {"group": "g", "topic": "T"} | wrong
    with pytest.raises(UsageError):
        mq.consumer(**arguments)
