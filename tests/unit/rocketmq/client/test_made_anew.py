"""Topics that go, and come again under their names: where a consumer of fakes goes on."""

from __future__ import annotations

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import Unavailable
from tallystick.rocketmq.client import pulling
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event

QUEUE = MessageQueue("T", "b", 0)
COMMITTED = ("g", "T", 0)
PULL = RequestCode.PULL_MESSAGE


@pytest.mark.parametrize("stands", [None, 0, 3])
async def test_a_topic_that_was_made_anew_is_read_from_where_the_group_stands_there(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch, stands: int | None
) -> None:
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 0.01)
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    async with mq.consumer("g", "T", start="last", auto_ack=False) as consumer:
        await consumer.commit()
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fill(fake, 10)
        fake.offsets.clear()
        if stands is not None:
            fake.offsets[COMMITTED] = stands
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "deleted"))
        await until(lambda: consumer._assignment._assigned_queues[QUEUE].is_lost)
        await consumer.commit()
        assert fake.offsets.get(COMMITTED) in (stands, stands or 0), "an offset of the old topic is none of the new one"
        first = stands or 0
        assert [message.offset for message in await take(consumer, 10 - first)] == list(range(first, 10))


async def test_no_offset_of_a_topic_that_is_gone_is_committed(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch, told: list[Event]
) -> None:
    """One that is made anew counts its messages from 0: as many would be passed over. That is told."""
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 60.0)
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fake.offsets.clear()
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "deleted"))
        await until(lambda: consumer._assignment._assigned_queues[QUEUE].is_lost)
        with pytest.raises(Unavailable, match="gone a moment ago"):
            await consumer.commit()
        assert COMMITTED not in fake.offsets and "not committed" not in [event.kind for event in told]
    assert COMMITTED not in fake.offsets, "and not at its close"
    assert "not committed" in [event.kind for event in told]


async def test_a_topic_that_was_made_anew_and_begins_where_the_group_stood_is_another_one(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first messages are expired: the group begins there, and that is committed before it gets any."""
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 0.01)
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    fake.offsets[COMMITTED] = 3
    async with mq.consumer("g", "T", auto_ack=False) as consumer:
        await take(consumer, 2)
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fill(fake, 10)
        fake.first["T", 0] = 3
        del fake.offsets[COMMITTED]
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "deleted"))
        assert [message.offset for message in await take(consumer, 7)] == list(range(3, 10))
        assert fake.offsets[COMMITTED] == 3


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning_though_nothing_was_done_in_either(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group stands at 0 in both, and its reader was far ahead."""
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 0.01)
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await take(consumer, 5)
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fill(fake, 10)
        assert fake.offsets[COMMITTED] == 0
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "deleted"))
        assert [message.offset for message in await take(consumer, 10)] == list(range(10))


async def test_that_a_slave_does_not_know_the_topic_says_nothing_of_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    """It has just begun, and the master hangs: the topic is where it was."""
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    fill(master, 5)
    slave.react[PULL] = lambda link, command: command.response(ResponseCode.TOPIC_NOT_EXIST, "not copied yet")
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        await until(lambda: master._held)
        master.suggests = 1  # as when it is gone
        fill(master, 6)
        master.wake()
        [last] = await take(consumer, 1)
        await until(lambda: slave.count(PULL))
        assert not consumer._assignment._assigned_queues[QUEUE].is_lost
        consumer.ack(last)
        await consumer.commit()
        assert master.offsets[COMMITTED] == 6


async def test_a_reader_whose_broker_did_not_know_the_topic_for_a_moment_goes_on(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 0.01)
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    async with mq.consumer("g", "T", start="last") as consumer:
        await consumer.commit()
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fill(fake, 7)
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "not copied yet"))
        assert [message.offset for message in await take(consumer, 2)] == [5, 6]
