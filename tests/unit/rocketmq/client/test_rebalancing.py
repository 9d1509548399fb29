"""What listeners hear, and what becomes of messages, when queues come and go."""

from __future__ import annotations

import asyncio

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.events import Event

QUEUES = [MessageQueue("T", "b", number) for number in range(2)]


def joins(fake: FakeBroker, name: str = "~somebody") -> None:
    fake.members["g"][name] = next(iter(fake.members["g"].values()))
    fake._notify("g")


def leaves(fake: FakeBroker, name: str = "~somebody") -> None:
    del fake.members["g"][name]
    fake._notify("g")


async def test_a_listener_hears_of_queues_when_they_are_there_and_before_they_go(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=2)
    heard: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []

    def assigned(queues: list[MessageQueue]) -> None:
        heard.append(("assigned", queues, consumer.queues))

    async def revoked(queues: list[MessageQueue]) -> None:
        await consumer.commit()
        heard.append(("revoked", queues, consumer.queues))

    consumer = mq.consumer("g", "T", start="first", on_assigned=assigned, on_revoked=revoked)
    await consumer.start()
    joins(fake)
    await until(lambda: len(heard) == 2)
    leaves(fake)
    await until(lambda: len(heard) == 3)
    await consumer.close()
    assert heard == [
        ("assigned", QUEUES, QUEUES),
        ("revoked", QUEUES[1:], QUEUES),
        ("assigned", QUEUES[1:], QUEUES),
        ("revoked", QUEUES, QUEUES),
    ]


async def test_what_is_acknowledged_while_a_queue_goes_is_committed_and_later_it_is_ignored(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    gone = asyncio.Event()

    def revoked(queues: list[MessageQueue]) -> None:
        if not gone.is_set():
            consumer.ack(messages[0])
            gone.set()

    consumer = mq.consumer("g", "T", start="first", auto_ack=False, on_revoked=revoked)
    messages = await take(consumer, 2)
    joins(fake)
    await until(lambda: len(consumer.queues) == 1)
    assert gone.is_set()
    assert fake.offsets["g", "T", 1] == 1
    consumer.ack(messages[1])
    [event] = [event for event in told if event.kind == "acknowledgement ignored"]
    assert event.fields == {"group": "g", "queue": QUEUES[1], "offset": 1}
    leaves(fake)
    assert [message.offset for message in await take(consumer, 2)] == [1, 2]
    await consumer.close()
    assert fake.offsets["g", "T", 1] == 1


async def test_what_the_body_finishes_after_its_queue_went_is_not_committed(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    consumer = mq.consumer("g", "T", start="first")
    await take(consumer, 2)
    joins(fake)
    await until(lambda: len(consumer.queues) == 1)
    fill(fake, 1, 0)
    fake.wake()
    await take(consumer, 1)
    await consumer.commit()
    assert fake.offsets["g", "T", 1] == 1
    await consumer.close()


@pytest.mark.parametrize("which", ["on_assigned", "on_revoked"])
async def test_what_a_listener_raises_the_consumer_raises(cluster: FakeCluster, mq: RocketMQ, which: str) -> None:
    fake = await cluster.add(queues=2)
    calls = 0

    def listener(queues: list[MessageQueue]) -> None:
        nonlocal calls
        calls += 1
        if calls == (2 if which == "on_assigned" else 1):
            raise ZeroDivisionError

    consumer = mq.consumer("g", "T", start="first", **{which: listener})  # type: ignore[arg-type]
    await consumer.start()
    waiting = asyncio.create_task(_next(consumer))
    joins(fake)
    if which == "on_assigned":
        await until(lambda: len(consumer.queues) == 1)
        leaves(fake)
    with pytest.raises(ZeroDivisionError):
        await waiting
    await consumer.close()
    assert [member for member in fake.members["g"] if member != "~somebody"] == []


async def _next(consumer: Consumer) -> object:
    async with asyncio.timeout(20):
        return await anext(consumer)


async def test_a_listener_that_raises_at_the_end_leaves_nothing_behind(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 2)

    def revoked(queues: list[MessageQueue]) -> None:
        raise ZeroDivisionError

    consumer = mq.consumer("g", "T", start="first", on_revoked=revoked)
    await take(consumer, 2)
    with pytest.raises(ZeroDivisionError):
        await consumer.close()
    assert fake.offsets["g", "T", 0] == 1
    assert not mq._membership.has_consumer("g")
    assert consumer.queues == []
