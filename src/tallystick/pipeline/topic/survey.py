"""What the driver looks up before a query is planned: the topics' queues, how far each reaches, and who has them.

Each end is asked once, from the master of a queue's broker set or, when it is gone, from a slave (H3): what comes later
is not part of the query.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from tallystick.errors import NoSuchTopic, UsageError
from tallystick.pipeline.topic.follow import FollowedTopics, TopicFollower
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import QueueRange, TopicPartition, plan
from tallystick.pipeline.topic.sizes import extents_of
from tallystick.rocketmq.wire.values import MessageQueue


async def survey(options: TopicOptions) -> list[TopicPartition]:
    """Returns the partitions of a batch query. Raises NoSuchTopic, NoSuchMessage (a named offset), UsageError (a named
    queue), BrokerError, Unavailable."""
    follower = await FollowedTopics(options).connect()
    try:
        return await partitions_of(follower, await _ranges(follower, options))
    finally:
        await follower.close()


async def partitions_of(follower: TopicFollower, ranges: Sequence[QueueRange]) -> list[TopicPartition]:
    """Returns partitions that hang on the ranges alone. Raises NoSuchMessage, BrokerError, Unavailable."""
    options = follower.options
    return plan(
        await extents_of(follower.client, ranges, fail_on_data_loss=options.fail_on_data_loss),
        follower.broker_sets(range_.queue for range_ in ranges),
        options.limits,
        decode=options.decode,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def require_assigned(options: TopicOptions, there: Container[MessageQueue]) -> None:
    """Raises NoSuchTopic for a queue that the option ``assign`` names and that is not there."""
    for queue in sorted(options.assigned or ()):
        if queue not in there:
            raise NoSuchTopic("assign names a queue that is not there", queue=queue)


async def _ranges(follower: TopicFollower, options: TopicOptions) -> list[QueueRange]:
    """Returns what the query wants of each queue, those without wanted messages left out."""
    limits = await follower.limits()
    if options.pattern is not None and not limits:
        raise NoSuchTopic("no topic matches subscribePattern", pattern=options.pattern.pattern)
    require_assigned(options, limits)
    for bound in (options.start, options.end):
        bound.check(limits)
    start_times = await follower.timed(options.start, limits)
    end_times = await follower.timed(options.end, limits)
    ranges = []
    for queue, each in limits.items():
        start = options.start.offset(queue, each, start_times.get(queue), is_strict=options.fail_on_data_loss)
        end = options.end.offset(queue, each, end_times.get(queue), is_strict=options.fail_on_data_loss)
        if start > end and queue in {*options.start.named_offsets, *options.end.named_offsets}:
            raise UsageError("the query starts after its end in a queue", queue=queue, start=start, end=end)
        if start < end:
            ranges.append(QueueRange(queue, start, end))
    return ranges
