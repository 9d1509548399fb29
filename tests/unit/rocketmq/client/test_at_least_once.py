"""Whatever members of a group do, each message is done by one of them at least, and then the group is past it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from support.live_brokers import live_cluster
from support.waiting import until
from tallystick.rocketmq.client.client import topics
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.wire.values import MessageQueue

COUNT = 600
SETTINGS = BrokerClientSettings(
    nack_delays_s=(0.005, 0.02),
    rebalance_s=0.1,
    commit_interval_s=0.05,
    pull_count=8,
    queue_max_unacked=40,
    queue_max_span=60,
)


class Stumbled(Exception):
    """What a body raises."""


class Group:
    """Members that come, fail and go, until all messages are done."""

    def __init__(self, name_server: str, chance: random.Random, *, ordered: bool) -> None:
        self.name_server, self.chance, self.ordered = name_server, chance, ordered
        self.done: Counter[str] = Counter()
        self.ends: Counter[MessageQueue] = Counter()  # up to where each queue was done, for the first time

    @property
    def is_done(self) -> bool:
        return len(self.done) == COUNT

    async def member(self) -> None:
        turn_s = 0.5
        while not self.is_done:
            turn_s *= 1.2  # less and less disorder, so that it ends on a busy machine too
            auto_ack = self.chance.random() < 0.5
            async with topics(self.name_server, settings=SETTINGS) as mq:
                consumer = mq.consumer("g", "T", start="first", auto_ack=auto_ack, ordered=self.ordered)
                try:
                    async with consumer, asyncio.timeout(self.chance.uniform(0.1, 1.0) * turn_s):
                        await (self.loop(consumer) if auto_ack else self.at_once(consumer))
                except (TimeoutError, Stumbled):
                    pass

    async def loop(self, consumer: Consumer) -> None:
        async for message in consumer:
            what = self.chance.random()
            if what < 0.02:
                raise Stumbled
            if what < 0.1 and message.reconsume_times < 5:
                consumer.nack(message)
                continue
            await asyncio.sleep(0)
            self.finish(message)

    def finish(self, message: ReceivedMessage) -> None:
        self.done[message.keys[0]] += 1
        ends = self.ends[message.queue]
        assert not self.ordered or message.offset <= ends, "a message overtook another one of its queue"
        self.ends[message.queue] = max(ends, message.offset + 1)

    async def at_once(self, consumer: Consumer) -> None:
        """Several under way, done in any order."""
        held = []
        async for message in consumer:
            held.append(message)
            if len(held) > (0 if self.ordered else self.chance.randrange(12)):
                one = held.pop(self.chance.randrange(len(held)))
                self.finish(one)
                consumer.ack(one)
            await asyncio.sleep(0)


@pytest.mark.real_time
@pytest.mark.parametrize("ordered", [False, True])
async def test_each_message_is_done_through_failures_and_rebalances(tmp_path: Path, ordered: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    async with live_cluster(tmp_path, "broker-a") as cluster, topics(cluster.name_server, settings=SETTINGS) as mq:
        producer = mq.producer("p")
        await asyncio.gather(*(producer.send("T", b"x", keys=f"k{number}") for number in range(COUNT)))
        group = Group(cluster.name_server, random.Random(seed), ordered=ordered)
        async with asyncio.timeout(60):
            await asyncio.gather(*(group.member() for _ in range(3)))
        assert set(group.done) == {f"k{number}" for number in range(COUNT)}
        async with mq.consumer("g", "T") as last:
            await until(lambda: len(last.queues) == 4)

            async def at_the_end() -> bool:
                while last._core.ready:
                    last.ack(await anext(last))
                return (await last.lag()).total == 0

            await until(at_the_end)
            await last.commit()
