"""Topics on a real master, filled queue by queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tallystick import sync
from tallystick.admin.brokers import operator
from tallystick.admin.topics import create_topic
from tallystick.rocketmq.client.sending import SendResult
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.values import MessageQueue

BROKER, QUEUES = "broker-a", 3


def make_topic(name_server: str, topic: str) -> None:
    async def make() -> None:
        async with operator(name_server) as who:
            await create_topic(who, topic, queues=QUEUES)

    asyncio.run(make())


def send(mq: sync.RocketMQ, topic: str, messages: Sequence[Message]) -> list[SendResult]:
    """Message i goes to queue i mod QUEUES."""
    producer = mq.producer("tests")
    queues = [MessageQueue(topic, BROKER, number) for number in range(QUEUES)]
    return [producer.send_batch(topic, messages[n::QUEUES], queue=queue) for n, queue in enumerate(queues)]
