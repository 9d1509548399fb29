"""What the planner process of a streaming query decides: where a batch begins and ends, and its partitions.

A queue that is new to the query enters with its first offset, and is read from the batch after that on: so each batch
says where it begins in every queue, and is the same when it is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.errors import BrokerUnavailable, NoSuchMessage, NoSuchTopic, TallyError
from tallystick.pipeline.lag import Lag
from tallystick.pipeline.notes import note
from tallystick.pipeline.planner import QueryPlanner
from tallystick.pipeline.topic.bounds import QueueLimits
from tallystick.pipeline.topic.follow import FollowedTopics, TopicFollower
from tallystick.pipeline.topic.lag import lag_of
from tallystick.pipeline.topic.offsets import Positions, from_offset, to_offset
from tallystick.pipeline.topic.options import TopicOptions
from tallystick.pipeline.topic.plan import QueueRange, TopicPartition
from tallystick.pipeline.topic.schema import FORMAT
from tallystick.pipeline.topic.sizes import extents_of
from tallystick.pipeline.topic.survey import partitions_of, require_assigned
from tallystick.pipeline.trigger import Backlog, TriggerDelay, TriggerLimits, admit
from tallystick.rocketmq.wire.values import MessageQueue

PATIENCE_S = 60.0  # a query goes on so long although nobody tells of a queue
GO_ON = "rows may be lost; failOnDataLoss=false goes on with what is left"


def planner(options: TopicOptions) -> QueryPlanner[TopicFollower, Positions, TopicPartition]:
    return QueryPlanner(FollowedTopics(options), TopicDecisions(options), to_offset, from_offset)


class TopicDecisions:
    """See the module."""

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        self._heads: Mapping[MessageQueue, QueueLimits] | None = None  # the queues as they were seen last
        self._seen_at: dict[MessageQueue, float] = {}
        self._ends: Positions = {}  # where the batch ends that was decided last
        self._is_frozen = False
        self._delay = TriggerDelay()

    @property
    def may_begin_later(self) -> bool:
        """Whether ``initial`` returns other positions when there is more."""
        return self.options.start.is_moving

    def reached(self) -> Positions | None:
        """Returns how far all queues reached when it was last looked; None before that."""
        return None if self._heads is None else {queue: limits.end for queue, limits in self._heads.items()}

    async def lag(self, follower: TopicFollower) -> Lag:
        """Returns what the batch that was decided last leaves."""
        heads = self._heads or {}
        return await lag_of(follower, _ranges(self._ends, heads))

    async def freeze(self, follower: TopicFollower) -> None:
        """From now on nothing that comes is seen (Trigger.AvailableNow)."""
        self._heads = await (follower.limits() if self.options.fail_on_data_loss else follower.limits_now())
        self._is_frozen = True

    async def initial(self, follower: TopicFollower) -> Positions:
        """Returns where a query begins. Raises NoSuchTopic, NoSuchMessage, UsageError, BrokerError, Unavailable."""
        bound, is_strict = self.options.start, self.options.fail_on_data_loss
        heads = self._heads if self._is_frozen and self._heads is not None else await follower.limits()
        self._require_named(follower, heads, {})
        bound.check(heads)
        times = await follower.timed(bound, heads)
        positions = {
            queue: bound.offset(queue, limits, times.get(queue), is_strict=is_strict) for queue, limits in heads.items()
        }
        await self.commit(follower, positions)
        return positions

    async def latest(self, follower: TopicFollower, positions: Positions, limits: TriggerLimits) -> Positions:
        """Returns where the batch that begins at ``positions`` ends. Raises NoSuchTopic, NoSuchMessage and
        BrokerUnavailable for what is lost, unless the options say to go on."""
        await self.commit(follower, positions)  # Spark asks for the next batch when one is finished
        # A queue that the options do not name any more is left out.
        positions = {queue: at for queue, at in positions.items() if self.options.wants(queue)}
        heads = await self._look(follower)
        now = follower.clock.now()
        if self.options.fail_on_data_loss:
            self._require_named(follower, heads, positions)
        self._miss(follower, positions, heads, now)
        starts = {queue: self._resumed(queue, at, heads[queue]) for queue, at in positions.items() if queue in heads}
        new = {queue: each.first for queue, each in heads.items() if queue not in positions and each.is_sure}
        ranges = _ranges(starts, heads)
        count = sum(range_.count for range_ in ranges)
        if not (new or self._is_frozen) and self._delay.waits(limits, count, now):
            self._ends = starts
            return positions
        self._delay.batch_began(now)
        ends = admit(await self._backlogs(follower, ranges, limits), limits)
        reached = dict(zip((range_.queue for range_ in ranges), ends, strict=True))
        self._ends = {**positions, **starts, **reached, **new}
        return self._ends

    async def commit(self, follower: TopicFollower, positions: Positions) -> None:
        """All before the positions is read, and its rows are where they should be."""
        if follower.group is not None:
            await follower.group.move(positions)

    async def partitions(self, follower: TopicFollower, starts: Positions, ends: Positions) -> list[TopicPartition]:
        """Returns the partitions of a batch, which hang on its two ends alone. Raises as ``latest``."""
        heads = self._heads if self._heads is not None else await self._look(follower)
        await follower.refresh()  # a broker may be elsewhere by now
        ranges = []
        for queue, end in sorted(ends.items()):
            start = starts.get(queue, end)  # one that is new is not read yet
            if start < end and queue in heads:
                start = self._present(queue, start, heads[queue])
            if start < end:
                ranges.append(QueueRange(queue, start, end))
        return await partitions_of(follower, ranges)

    async def _look(self, follower: TopicFollower) -> Mapping[MessageQueue, QueueLimits]:
        if self._is_frozen and self._heads is not None:
            await follower.refresh()
            return self._heads
        self._heads = await follower.limits_now()
        self._seen_at.update(dict.fromkeys(self._heads, follower.clock.now()))
        return self._heads

    async def _backlogs(
        self, follower: TopicFollower, ranges: list[QueueRange], limits: TriggerLimits
    ) -> list[Backlog]:
        """Returns what is not read, with the sizes of the messages, if these count."""
        if limits.bytes is None:
            return [Backlog(range_.first, range_.end, 1) for range_ in ranges]
        extents = await extents_of(follower.client, ranges, fail_on_data_loss=self.options.fail_on_data_loss)
        return [Backlog(each.range.first, each.range.end, each.message_bytes) for each in extents]

    def _require_named(
        self, follower: TopicFollower, heads: Mapping[MessageQueue, QueueLimits], positions: Positions
    ) -> None:
        """Raises NoSuchTopic for what the options name, and that neither is there nor was read."""
        there = {*heads, *positions}
        topics = {queue.topic for queue in there}
        for topic in self.options.topics:
            if topic not in topics and not follower.has_route(topic):
                raise NoSuchTopic(topic=topic)
        require_assigned(self.options, there)

    def _miss(
        self, follower: TopicFollower, positions: Positions, heads: Mapping[MessageQueue, QueueLimits], now: float
    ) -> None:
        """Raises the loss of a queue that the query reads and that nobody has told of for a while; its position stays,
        since the queue may come back."""
        patience_s = 0.0 if self._is_frozen else PATIENCE_S
        for queue in positions.keys() - heads.keys():
            if now >= self._seen_at.setdefault(queue, now) + patience_s:
                self._seen_at[queue] = now  # it is told again after as long
                if follower.has_route(queue.topic):
                    reason = "no broker has this queue that the query reads, or none responds"
                    self._lost(BrokerUnavailable(reason, queue=queue))
                else:
                    reason = "a topic that the query reads is deleted, or all its brokers are away"
                    self._lost(NoSuchTopic(reason, queue=queue))

    def _resumed(self, queue: MessageQueue, position: int, limits: QueueLimits) -> int:
        """Returns where reading goes on in a queue."""
        if position > limits.end and limits.is_sure:
            self._lose("the queue does not reach to this offset any more", queue, position, limits)
            return limits.end
        return self._present(queue, position, limits)

    def _present(self, queue: MessageQueue, position: int, limits: QueueLimits) -> int:
        """Returns the first offset from ``position`` on that is not deleted."""
        if position < limits.first and limits.is_sure:
            self._lose("what was at this offset is deleted", queue, position, limits)
            return limits.first
        return position

    def _lose(self, reason: str, queue: MessageQueue, offset: int, limits: QueueLimits) -> None:
        self._lost(NoSuchMessage(reason, queue=queue, offset=offset, first=limits.first, end=limits.end))

    def _lost(self, error: TallyError) -> None:
        if self.options.fail_on_data_loss:
            raise type(error)(f"{error.message}: {GO_ON}", **error.fields)
        note(FORMAT, f"{error}; the query goes on with what is left")


def _ranges(positions: Positions, heads: Mapping[MessageQueue, QueueLimits]) -> list[QueueRange]:
    """Returns what there is to be read from some positions on."""
    return [
        QueueRange(queue, at, heads[queue].end)
        for queue, at in positions.items()
        if queue in heads and at < heads[queue].end
    ]
