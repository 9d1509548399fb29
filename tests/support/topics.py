"""Topics on a real master, filled queue by queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from tallystick import sync
from tallystick.admin.brokers import operator
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState
from tallystick.admin.topics import create_topic
from tallystick.errors import BrokerError
from tallystick.pipeline.topic.brokers import Brokers
from tallystick.pipeline.topic.plan import BrokerSets
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


async def slave_serves(brokers: DevCluster, topic: str) -> None:
    """Wait until the slave has copied the topic's settings: a few seconds after its master got them (H12)."""
    node = (brokers.load() or DevState("")).find(f"{BROKER}-s1")
    assert node is not None
    client = await Brokers(BrokerSets({BROKER: {1: f"127.0.0.1:{node.port}"}}, "TOOLS_CONSUMER")).connect()
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(BrokerError):
                await client.pull(MessageQueue(topic, BROKER, 0), 0, 1)
                break
            await asyncio.sleep(0.1)
    await client.close()
