"""Streaming queries of topics without Spark: a planner, and its partitions read one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from support.fake_brokers import FakeBroker
from tallystick.pipeline.topic.arrow import SCHEMA
from tallystick.pipeline.topic.follow import FollowedTopics, TopicFollower
from tallystick.pipeline.topic.offsets import Positions, from_offset, to_offset
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import TopicPartition
from tallystick.pipeline.topic.planner import TopicDecisions
from tallystick.pipeline.topic.read import read_partition
from tallystick.pipeline.trigger import TriggerLimits


def fill(broker: FakeBroker, queue: int, *numbers: int, topic: str = "T", body: bytes = b"%d") -> None:
    broker.queues.setdefault((topic, queue), []).extend((0, body % number, b"") for number in numbers)


async def rows_of(partitions: Sequence[TopicPartition]) -> list[bytes]:
    def read() -> list[bytes]:
        batches = [batch for each in partitions for batch in read_partition(each, SCHEMA)]
        return [body for batch in batches for body in batch.column("body").to_pylist()]

    return await asyncio.to_thread(read)  # the brokers are on this loop


class FollowingTopics:
    """A query without Spark: its position, and the rows that it has read. ``close`` it."""

    follower: TopicFollower

    def __init__(self, name_server: str, **options: str) -> None:
        named = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": "T"}
        begin = {} if "startingTimestamp" in options else {"startingOffsets": "earliest"}
        texts = {"nameServer": name_server, **named, **begin, **options}
        self.options = TopicOptions.parse(texts, {}, follows=True)
        self.rows: list[bytes] = []
        self.at: Positions | None = None

    async def start(self) -> FollowingTopics:
        """A planner process, which knows nothing."""
        self.decisions = TopicDecisions(self.options)
        self.follower = await FollowedTopics(self.options).connect()
        return self

    async def restart(self) -> None:
        await self.close()
        await self.start()

    async def close(self) -> None:
        await self.follower.close()

    async def trigger(self, limits: TriggerLimits | None = None) -> bool:
        """Returns whether there was a batch."""
        if self.at is None:
            self.at = await self.decisions.initial(self.follower)
        end = await self.decisions.latest(self.follower, self.at, limits or self.options.trigger)
        if end == self.at:
            return False
        end = from_offset(to_offset(end))
        self.rows += await rows_of(await self.partitions(self.at, end))
        await self.decisions.commit(self.follower, self.at)
        self.at = end
        return True

    async def partitions(self, start: Positions, end: Positions) -> list[TopicPartition]:
        return await self.decisions.partitions(self.follower, start, end)

    async def until_idle(self) -> list[bytes]:
        while await self.trigger():
            pass
        return self.rows

    async def has_read(self, count: int) -> bool:
        return len(await self.until_idle()) >= count


async def rows_of_topic(name_server: str, topic: str) -> list[bytes]:
    """All bodies that a topic has now."""
    query = await FollowingTopics(name_server, subscribe=topic).start()
    try:
        return list(await query.until_idle())
    finally:
        await query.close()
