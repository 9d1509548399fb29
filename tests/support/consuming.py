"""Short words for tests of consumers."""

from __future__ import annotations

import asyncio

from support.fake_brokers import FakeBroker
from support.waiting import until
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.wire.values import RequestCode


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """The next messages; the loop is done with all but the last."""
    async with asyncio.timeout(20):
        return [await anext(consumer) for _ in range(count)]


def fill(fake: FakeBroker, count: int, queue: int = 0, topic: str = "T") -> None:
    """``count`` messages, whose bodies are their offsets, with tags A and B in turn."""
    fake.queues[topic, queue] = [(0, b"%d" % n, b"TAGS\x01%s\x02" % b"AB"[n % 2 :][:1]) for n in range(count)]


async def lose_connection(fake: FakeBroker) -> None:
    """As a broker does with a member that it has not heard for two minutes; then it knows the member again."""
    beats = fake.count(RequestCode.HEART_BEAT)
    [link] = fake.members["g"].values()
    link.abort("lost")
    await until(lambda: fake.count(RequestCode.HEART_BEAT) > beats)


def others_stand_at(fake: FakeBroker, offset: int, resets: int) -> None:
    """Others committed this, and went back on purpose so many times."""
    fake.offsets["g", "T", 0] = offset
    fields = {"offset": str(offset), "tallyResets": str(resets)}
    fake.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: command.response(0, None, fields)
