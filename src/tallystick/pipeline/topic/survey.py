"""What the driver looks up before a query is planned: the topic's queues, how far each reaches, and who has them.

Each end is asked once, from the master of a queue's broker set or, when it is gone, from a slave (H3): what comes later
is not part of the query.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.pipeline.topic.bounds import Bound
from tallystick.pipeline.topic.brokers import Brokers, TopicClient
from tallystick.pipeline.topic.fetch import FIRST_WINDOW
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import BrokerSets, QueueExtent, QueueRange
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.wire.values import MessageQueue

AT_ONCE = 64  # queues looked up at the same time


@dataclass(frozen=True)
class TopicSurvey:
    """Queues in ascending order by broker and number, those without wanted messages left out."""

    extents: tuple[QueueExtent, ...]
    brokers: BrokerSets


async def survey(options: TopicOptions) -> TopicSurvey:
    """Raises NoSuchTopic, NoSuchMessage (a named offset), UsageError (a named queue), BrokerError, Unavailable."""
    async with topics(options.name_servers) as mq:
        topic = await mq.topic(options.topic)
        for bound in (options.start, options.end):
            bound.check(topic.readable)
        brokers = BrokerSets(topic.addresses, options.group, options.slave_first)
        client = await Brokers(brokers).connect()
        try:
            gate = asyncio.Semaphore(AT_ONCE)
            outcomes = await asyncio.gather(
                *(_look(mq, client, gate, options, queue) for queue in topic.readable), return_exceptions=True
            )
        finally:
            await client.close()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return TopicSurvey(tuple(extent for extent in outcomes if isinstance(extent, QueueExtent)), brokers)


async def _look(
    mq: RocketMQ, client: TopicClient, gate: asyncio.Semaphore, options: TopicOptions, queue: MessageQueue
) -> QueueExtent | None:
    """Returns None if the query wants no message of the queue."""
    async with gate:
        first, end = await mq.queue_limits(queue)
        start = options.start.offset(queue, first, end, await _timed(mq, options.start, queue))
        stop = options.end.offset(queue, first, end, await _timed(mq, options.end, queue))
        if start > stop and (queue.broker, queue.queue_id) in {
            *options.start.named_offsets,
            *options.end.named_offsets,
        }:
            raise UsageError("the query starts after its end in a queue", queue=queue, start=start, end=stop)
        if start >= stop:
            return None
        sample = await client.pull(queue, start, min(FIRST_WINDOW, stop - start))
        return QueueExtent(QueueRange(queue, start, stop), -(-sample.size // len(sample.run)))


async def _timed(mq: RocketMQ, bound: Bound, queue: MessageQueue) -> int | None:
    return None if bound.timestamp_ms is None else await mq.offset_at(queue, bound.timestamp_ms)
