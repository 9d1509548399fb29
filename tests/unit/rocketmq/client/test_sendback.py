"""Messages given back, against a broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_brokers import FakeCluster
from support.live_brokers import LiveCluster, live_cluster
from support.waiting import until
from tallystick.rocketmq.client import delivery
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sendback import LEVELS_S, delay_level
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.headers import SendBackHeader
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

SOON = BrokerClientSettings(nack_delays_s=(0.01,), rebalance_s=0.2)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
WAITED_FOR = ["sent back, not yet everywhere", "sent back, not everywhere"]  # events


async def next_of(consumer: Consumer) -> ReceivedMessage:
    async with asyncio.timeout(20):
        return await anext(consumer)


@pytest.mark.parametrize(("delay_s", "level"), [(0, 1), (0.5, 1), (1, 1), (1.1, 2), (10, 3), (7200, 18), (1e9, 18)])
def test_the_level_of_a_delay_is_not_shorter(delay_s: float, level: int) -> None:
    assert delay_level(delay_s) == level
    assert LEVELS_S[level - 1] >= min(delay_s, 7200)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveCluster]:
    async with live_cluster(tmp_path) as cluster:
        await cluster.start("broker-a", role="ASYNC_MASTER")
        yield cluster


async def send(mq: RocketMQ, count: int, topic: str = "T") -> None:
    for number in range(count):
        await mq.producer("p").send(topic, b"%d" % number, tags="A", keys=f"k{number}")


@pytest.mark.real_time
async def test_a_forwarded_message_is_its_new_topics_alone(live: LiveCluster) -> None:
    """What the retry of the first one was stored with stays behind."""
    async with topics(live.name_server, settings=SOON) as mq:
        producer = mq.producer("p")
        await producer.send("T", b"job", properties={"own": "x"})
        async with mq.consumer("g", "T", start="first") as consumer:
            consumer.nack(await next_of(consumer))
            again = await next_of(consumer)
            sent = await producer.send("Second", again.body, properties=again.properties)
            consumer.ack(again)
        assert sent.message_id != again.message_id
        async with mq.consumer("h", "Second", start="first") as consumer:
            consumer.nack(await next_of(consumer))
            forwarded = await next_of(consumer)
            assert (forwarded.topic, forwarded.message_id, forwarded.reconsume_times) == ("Second", sent.message_id, 1)
            assert again.properties == forwarded.properties == {"own": "x"}


@pytest.mark.real_time
async def test_a_message_given_back_comes_again_once_from_the_retry_topic(live: LiveCluster) -> None:
    async with topics(live.name_server, settings=SOON) as mq:
        await send(mq, 3)
        consumer = mq.consumer("g", "T", tags="A", start="first")
        first = await next_of(consumer)
        consumer.nack(first)
        others = [await next_of(consumer) for _ in range(2)]
        again = await next_of(consumer)
        assert {message.body for message in (first, *others)} == {b"0", b"1", b"2"}
        assert again.queue == RETRY
        assert (again.topic, again.tags, again.keys, again.body) == ("T", "A", first.keys, first.body)
        assert (again.message_id, again.reconsume_times) == (first.message_id, 1)
        assert RETRY not in consumer.queues
        consumer.ack(again)
        await consumer.commit()
        lag = await consumer.lag()
        assert (lag.total, lag.by_queue[RETRY]) == (0, 0)
        await consumer.close()
    async with topics(live.name_server, settings=SOON) as mq, mq.consumer("g", "T") as consumer:
        await until(lambda: len(list(consumer._assignment)) > len(consumer.queues))
        assert (await consumer.lag()).total == 0
        await send(mq, 1)
        assert (await next_of(consumer)).reconsume_times == 0


@pytest.mark.real_time
async def test_what_is_given_back_too_often_becomes_a_dead_letter(live: LiveCluster) -> None:
    async with topics(live.name_server, settings=SOON) as mq:
        await send(mq, 1)
        consumer = mq.consumer("g", "T", start="first")
        for times in range(17):
            message = await next_of(consumer)
            assert message.reconsume_times == times
            consumer.nack(message)
        dead = MessageQueue("%DLQ%g", "broker-a", 0)
        await until(lambda: not consumer._core.queues[RETRY].unacked_messages)
        await mq._context.routes.await_known(dead.topic)
        assert await mq.queue_limits(dead) == (0, 1)
        assert (await consumer.lag()).total == 0


@pytest.mark.real_time
async def test_what_waits_to_be_given_back_is_given_back_when_the_consumer_closes(live: LiveCluster) -> None:
    settings = BrokerClientSettings(nack_delays_s=(3600.0,))
    async with topics(live.name_server, settings=settings) as mq:
        await send(mq, 2)
        async with mq.consumer("g", "T", start="first") as consumer:
            consumer.nack(await next_of(consumer))
            consumer.ack(await next_of(consumer))
        assert await mq.queue_limits(RETRY) == (0, 1)
        consumer = mq.consumer("g", "T")
        assert (await next_of(consumer)).reconsume_times == 1
        assert (await consumer.lag()).total == 1


@pytest.mark.real_time
@pytest.mark.parametrize("how", [{"alone": True}, {"ordered": True}])
async def test_unshared_and_ordered_reading_repeats_here(live: LiveCluster, how: dict[str, Any]) -> None:
    async with topics(live.name_server, settings=SOON) as mq:
        await mq.producer("p").send_batch("T", [b"0", b"1"])
        consumer = mq.consumer("g", "T", start="first", **how)
        first = await next_of(consumer)
        consumer.nack(first)
        rest = [await next_of(consumer) for _ in range(2)]
        again = rest[0] if "ordered" in how else next(message for message in rest if message.reconsume_times)
        assert (again.queue, again.offset, again.reconsume_times) == (first.queue, first.offset, 1)
        assert {message.body for message in rest} == {b"0", b"1"}
        consumer.ack(rest[-1])
        assert (await consumer.lag()).total == 0
        await consumer.close()


async def test_a_new_group_reads_its_retry_topic_from_the_first_message(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1, topics=("T", RETRY.topic))
    fake.queues[RETRY.topic, 0] = [(0, b"%d" % number, b"RETRY_TOPIC\x01T\x02") for number in range(2)]
    async with topics(cluster.address, settings=SOON) as mq, mq.consumer("g", "T", start="last") as consumer:
        messages = [await next_of(consumer) for _ in range(2)]
        assert [(message.topic, message.body) for message in messages] == [("T", b"0"), ("T", b"1")]
        assert [queue.topic for queue in consumer.queues] == ["T"]


async def test_nothing_is_passed_over_while_no_broker_takes_what_was_given_back(cluster: FakeCluster) -> None:
    told: list[Event] = []
    fake = await cluster.add(queues=1)
    fake.queues["T", 0] = [(0, b"0", b""), (0, b"1", b"")]
    fake.react[SEND_BACK] = lambda link, command: command.response(ResponseCode.SYSTEM_ERROR, "no")
    async with topics(cluster.address, settings=SOON, events=Events(told.append)) as mq:
        consumer = mq.consumer("g", "T", start="first")
        consumer.nack(await next_of(consumer))
        assert (await next_of(consumer)).offset == 1
        again = await next_of(consumer)
        assert (again.offset, again.reconsume_times) == (0, 1)
        await consumer.commit()
        assert not fake.offsets.get(("g", "T", 0))
        [event] = [event for event in told if event.kind == "not sent back"]
        assert (event.fields["offset"], fake.count(SEND_BACK)) == (0, 1)
        [header] = [SendBackHeader.of(command) for command in fake.asked if command.code == SEND_BACK]
        assert (header.group, header.delay_level, header.origin_topic) == ("g", 1, "T")
        consumer.ack(again)
        await consumer.commit()
        assert fake.offsets["g", "T", 0] == 2


async def test_a_close_waits_for_what_is_being_given_back(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fake.queues["T", 0] = [(0, b"0", b""), (0, b"1", b"")]
    asked: list[Any] = []
    fake.react[SEND_BACK] = lambda link, command: asked.append((link, command))
    async with topics(cluster.address, settings=SOON) as mq:
        consumer = mq.consumer("g", "T", start="first")
        consumer.nack(await next_of(consumer))
        consumer.ack(await next_of(consumer))
        await until(lambda: asked)
        closing = asyncio.create_task(consumer.close())
        await until(lambda: all(task.done() for task in consumer._tasks))
        [(link, command)] = asked
        link.send(command.response(0))
        await closing
    assert fake.offsets["g", "T", 0] == 2


async def test_nothing_is_passed_over_while_slaves_lack_what_was_given_back(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LATE_S", 0.01)
    told: list[Event] = []
    fake = await cluster.add(queues=1)
    fake.queues["T", 0] = [(0, b"0", b""), (0, b"1", b"")]
    fake.react[SEND_BACK] = lambda link, command: command.response(0, "FLUSH_SLAVE_TIMEOUT", {"tallyCopy": "700"})
    async with topics(cluster.address, settings=SOON, events=Events(told.append)) as mq:
        consumer = mq.consumer("g", "T", start="first")
        consumer.nack(await next_of(consumer))
        consumer.ack(await next_of(consumer))
        await until(lambda: fake.count(SEND_BACK) == 3)
        await consumer.commit()
        assert not fake.offsets.get(("g", "T", 0))
        headers = [SendBackHeader.of(command) for command in fake.asked if command.code == SEND_BACK]
        assert [header.copy for header in headers[:3]] == [None, 700, 700]
        assert len([event for event in told if event.kind == "sent back, not yet everywhere"]) == 1
        del fake.react[SEND_BACK]
        await until(lambda: not consumer._core.queues[MessageQueue("T", "b", 0)].unacked_messages)
        await consumer.close()
    assert fake.offsets["g", "T", 0] == 2


@pytest.mark.parametrize(
    ("status", "also", "kinds"),
    [
        ("SLAVE_NOT_AVAILABLE", {}, ["sent back, not everywhere"]),
        ("SLAVE_NOT_AVAILABLE", {"tallyDiskLate": "true"}, WAITED_FOR),
        ("FLUSH_SLAVE_TIMEOUT", {}, WAITED_FOR),
    ],
)
async def test_slaves_that_stay_without_what_was_given_back_stop_no_queue(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, status: str, also: dict[str, str], kinds: list[str]
) -> None:
    """Where none is waited for its copy is on the master's disk, as that of a message that is sent then: nobody asks
    again. Where it is not even there it would be lost with the power, and the message with it: it is waited for."""
    monkeypatch.setattr(delivery, "LATE_S", 0.0)
    monkeypatch.setattr(delivery, "LATE_MOST_S", 0.01)
    told: list[Event] = []
    fake = await cluster.add(queues=1)
    fake.queues["T", 0] = [(0, b"0", b""), (0, b"1", b"")]
    fake.react[SEND_BACK] = lambda link, command: command.response(0, status, {"tallyCopy": "700", **also})
    async with topics(cluster.address, settings=SOON, events=Events(told.append)) as mq:
        consumer = mq.consumer("g", "T", start="first")
        consumer.nack(await next_of(consumer))
        consumer.ack(await next_of(consumer))
        await until(lambda: not consumer._core.queues[MessageQueue("T", "b", 0)].unacked_messages)
        await consumer.commit()
        assert fake.offsets["g", "T", 0] == 2
    events = [event for event in told if event.kind.startswith("sent back")]
    assert [event.kind for event in events] == kinds and events[-1].fields["reason"] == status
    assert (fake.count(SEND_BACK) == 1) == (len(kinds) == 1)
