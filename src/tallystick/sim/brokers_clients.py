"""The programs that use simulated brokers: they send and receive, and never give up."""

from __future__ import annotations

import asyncio
import random
from asyncio import FIRST_COMPLETED as FIRST
from collections.abc import Callable

from tallystick.errors import TallyError
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.producer import Producer
from tallystick.rocketmq.client.sending import SendResult
from tallystick.sim.brokers_hosts import BrokerClientHost
from tallystick.sim.brokers_judge import BrokersJudge
from tallystick.sim.brokers_plan import GroupPlan, ProducerPlan

AGAIN_S = 0.5


class Sender:
    """One producer. ``produce`` in the storm, ``conclude`` when it is over."""

    def __init__(self, number: int, plan: ProducerPlan, judge: BrokersJudge, rng: random.Random) -> None:
        self.name, self.plan, self._judge, self._random = f"p{number}", plan, judge, rng
        self._count = 0
        self.concludes = asyncio.Event()

    async def produce(self, client: RocketMQ) -> None:
        """Send what the plan says, whatever becomes of it; and one message more, which must be stored."""
        producer, plan, rng = client.producer(self.name), self.plan, self._random
        await asyncio.sleep(plan.begins)
        for _ in range(plan.messages):
            await asyncio.sleep(rng.random() * plan.pause_s)
            is_batch = rng.random() < plan.batches
            await self._send(producer, [self._body() for _ in range(rng.randint(1, 4) if is_batch else 1)], is_batch)
        await self.concludes.wait()
        while not await self._send(producer, [self._body()], False):  # noqa: ASYNC110  # a send is not to be waited for
            await asyncio.sleep(AGAIN_S)

    def _body(self) -> bytes:
        self._count += 1
        body = f"{self.name}:{self._count}:".encode() + self._random.randbytes(
            self._random.randint(0, self.plan.largest)
        )
        self._judge.sending(body)
        return body

    async def _send(self, producer: Producer, bodies: list[bytes], is_batch: bool) -> bool:
        began = asyncio.get_running_loop().time()
        try:
            result: SendResult = await (
                producer.send_batch(self.plan.topic, bodies) if is_batch else producer.send(self.plan.topic, bodies[0])
            )
        except TallyError:
            return False
        self._judge.acknowledged(bodies, result, began)
        return True


class SimGroup:
    """A group, in each place of which members follow one another: some leave, some are killed. ``run`` a place."""

    def __init__(
        self,
        name: str,
        *,
        plan: GroupPlan,
        topics: tuple[str, ...],
        judge: BrokersJudge,
        rng: random.Random,
        longest_s: float,
    ) -> None:
        """``longest_s``: a member that is to be killed lives so long at most."""
        self.name, self.plan, self.topics = name, plan, topics
        self._judge, self._random, self._longest_s = judge, rng, longest_s
        self._hosts: dict[int, BrokerClientHost] = {}  # by place
        self._there = asyncio.Event()  # members may be
        self._there.set()
        self.is_calm = False  # settable: nobody is killed any more

    async def run(self, place: int, new_host: Callable[[str], BrokerClientHost]) -> None:
        """Let members follow one another in a place, until it is cancelled."""
        while True:
            await self._there.wait()
            host = self._hosts[place] = new_host(self.name)
            member = SimMember(self, self._judge, self._random, self._random.choice((5, 30, 1 << 30)))
            reading = host.run(member.consume)
            within_s = self._random.random() * self._longest_s if self._random.random() < 0.3 else None
            await asyncio.wait([reading, host.death], timeout=None if self.is_calm else within_s, return_when=FIRST)
            if not reading.done():
                host.kill()
            elif (error := reading.exception()) is not None:
                raise error

    def leave(self) -> None:
        """Kill the members; no other comes before ``come_back``."""
        self._there.clear()
        for host in self._hosts.values():
            host.kill()

    def come_back(self) -> None:
        self._there.set()


class SimMember:
    """One member of a group."""

    def __init__(self, group: SimGroup, judge: BrokersJudge, rng: random.Random, most: int) -> None:
        self._group, self._judge, self._random, self._messages_left = group, judge, rng, most

    async def consume(self, client: RocketMQ) -> None:
        """Receive at most so many messages, and leave in order."""
        while self._messages_left:
            try:
                group = self._group
                async with client.consumer(
                    group.name, group.topics, start="first", ordered=group.plan.ordered
                ) as consumer:
                    await self._receive(consumer)
            except TallyError:
                await asyncio.sleep(AGAIN_S)

    async def _receive(self, consumer: Consumer) -> None:
        async for message in consumer:
            self._judge.received(self._group.name, message)
            self._messages_left -= 1
            if self._random.random() < self._group.plan.nacks:
                self._judge.given_back(self._group.name, message.body)
                consumer.nack(message)
            else:
                self._judge.finished(self._group.name, message.body)
                if not self._messages_left:
                    consumer.ack(message)
            if not self._messages_left:
                return
