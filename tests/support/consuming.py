"""Short words for tests of consumers."""

from __future__ import annotations

import asyncio

from support.fake_brokers import FakeBroker
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """The next messages; the loop is done with all but the last."""
    async with asyncio.timeout(20):
        return [await anext(consumer) for _ in range(count)]


def fill(fake: FakeBroker, count: int, queue: int = 0, topic: str = "T") -> None:
    """``count`` messages, whose bodies are their offsets, with tags A and B in turn."""
    fake.queues[topic, queue] = [(0, b"%d" % n, b"TAGS\x01%s\x02" % b"AB"[n % 2 :][:1]) for n in range(count)]
