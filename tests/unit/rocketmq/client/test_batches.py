"""Consuming lists of messages."""

from __future__ import annotations

import asyncio

import pytest

from support.consuming import fill
from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.settings import BrokerClientSettings

COMMITTED = ("g", "T", 0)


async def test_a_batch_is_committed_when_the_body_has_finished_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    offsets: list[int] = []
    async with asyncio.timeout(20), mq.consumer("g", "T", start="first") as consumer:
        async for batch in consumer.batches(4, max_wait_s=0.01):
            assert fake.offsets.get(COMMITTED, 0) == len(offsets)
            offsets += [message.offset for message in batch]
            assert len(batch) <= 4
            if len(offsets) == 10:
                break
    assert offsets == list(range(10))
    assert fake.offsets[COMMITTED] == 8


async def test_the_batch_of_a_loop_that_was_left_comes_again_but_for_what_was_acknowledged(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 6)
    async with asyncio.timeout(20), mq.consumer("g", "T", start="first") as consumer:
        with pytest.raises(ZeroDivisionError):
            async for batch in consumer.batches(3):
                consumer.ack(batch[0])
                raise ZeroDivisionError
        async for batch in consumer.batches(5):
            assert [message.offset for message in batch] == [1, 2, 3, 4, 5]
            break
        assert (await anext(aiter(consumer))).offset == 1
    assert fake.offsets[COMMITTED] == 1


async def test_without_automatic_acknowledgements_a_batch_is_committed_as_far_as_it_was_acknowledged(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 6)
    async with asyncio.timeout(20), mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        async for batch in consumer.batches(3):
            if batch[0].offset == 3:
                break
            consumer.ack(batch[0])
    assert fake.offsets[COMMITTED] == 1


async def test_a_batch_waits_for_more_but_not_when_no_more_can_come(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 30)
    settings = BrokerClientSettings(pull_count=10, queue_max_unacked=20)
    async with topics(cluster.address, settings=settings) as mq, mq.consumer("g", "T", start="first") as consumer:
        async with asyncio.timeout(20):
            batches = consumer.batches(1000, max_wait_s=3600)
            assert len(await anext(batches)) == 20
            waiting = asyncio.ensure_future(anext(batches))
            await until(lambda: len(consumer._core.ready) == 10)
            assert not waiting.done()
            fill(fake, 40)
            fake.wake()
            assert len(await waiting) == 20


async def test_the_batches_of_a_closed_consumer_end(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(queues=1)
    consumer = mq.consumer("g", "T")
    waiting = asyncio.ensure_future(anext(consumer.batches(), None))
    await until(lambda: consumer.queues)
    await consumer.close()
    assert await waiting is None


async def test_batches_that_cannot_be(cluster: FakeCluster, mq: RocketMQ) -> None:
    with pytest.raises(UsageError, match="max_messages is a whole number from 1"):
        await anext(mq.consumer("g", "T").batches(0))
    with pytest.raises(UsageError, match="ordered"):
        await anext(mq.consumer("g", "T", ordered=True).batches())
