"""Which queues a consumer reads: given ones, all, or this member's share of the group's queues.

Every member computes the shares by itself, from the same lists of queues and members. The retry topic of the group, to
which messages are given back, is shared out like the others as soon as a name server has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tallystick.errors import BrokerError, TallyError, Unavailable
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.client.topic import Topic, share
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerIds
from tallystick.rocketmq.wire.headers import ConsumerGroupHeader
from tallystick.rocketmq.wire.values import RETRY_PREFIX, MessageQueue, RequestCode

UNSHARED_S = 1.0  # before queues are shared out again when that failed: a time-out, a heartbeat that was lost
REFUSED_S = 15.0  # from its start, by all brokers: then a consumer raises that; a heartbeat that was lost is made good


@dataclass(frozen=True)
class QueueSelection:
    """The queues that a consumer is to read: ``queues`` if given, with ``alone`` all of the topics, else its share."""

    topics: Sequence[str]
    queues: Sequence[MessageQueue] | None
    alone: bool

    @property
    def is_shared(self) -> bool:
        return self.queues is None and not self.alone


class Sharing:
    """``fail`` is called with an error that no waiting cures: all brokers refuse the group from its start on."""

    def __init__(
        self, context: BrokerContext, group: str, selection: QueueSelection, fail: Callable[[BrokerError], None]
    ) -> None:
        self.retry_topic = RETRY_PREFIX + group if selection.is_shared else None
        self.is_settled = True  # everything was found as it is to be; else it is looked at again soon
        self.refused_since: float | None = None  # by all brokers, with nothing else between
        self._context, self._group, self._selection, self._fail = context, group, selection, fail
        self._is_member = True
        self._is_admitted = False  # a broker knew the group, or its offsets
        self._retry_pause_s = 0.0  # until a name server is asked for the retry topic again

    @property
    def pause_s(self) -> float:
        """Returns how long to wait before queues are shared out again although no broker reported a change."""
        rebalance_s = self._context.settings.rebalance_s
        return min(rebalance_s, self._retry_pause_s or rebalance_s, rebalance_s if self.is_settled else UNSHARED_S)

    def begin(self) -> None:
        self.is_settled = False

    def end(self, *, all_reached: bool) -> None:
        self.is_settled = self._is_member and all_reached

    def admitted(self) -> None:
        self._is_admitted = True

    async def my_queues(self) -> Collection[MessageQueue] | None:
        """Returns the queues to read, or None if that is not known now, and all stays as it is. Raises NoSuchTopic,
        Unavailable."""
        self._is_member = True
        if self._selection.queues is not None:
            return self._selection.queues
        topics = [await self._context.routes.find(name) for name in self._selection.topics]
        if self._selection.alone:
            return [queue for topic in topics for queue in topic.readable]
        mine: list[MessageQueue] = []
        ids_at: dict[frozenset[str], list[str]] = {}  # by brokers: each knows the members that beat at it
        for topic in [*topics, *await self._retry_topics()]:
            if not topic.readable:
                continue
            brokers = frozenset(queue.broker for queue in topic.readable)
            ids = ids_at.get(brokers)
            if ids is None:
                ids = await self._members(topic)
                if ids is None:
                    return None
                ids_at[brokers] = ids
            self._is_member &= self._context.client_id in ids  # else a heartbeat was lost, and the next is on its way
            mine += share(topic.readable, ids, self._context.client_id)
        return mine

    def refused(self, refusal: BrokerError, *, by_all: bool = True) -> None:
        """A broker refused the group: one that restarted has no heartbeats of it yet, but if it never takes the group
        it fails."""
        self.failed(refusal)
        now = self._context.clock.now()
        if self._is_admitted or not by_all:
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = now
        elif now - self.refused_since >= REFUSED_S:
            self._fail(refusal)

    def not_reached(self, error: Exception) -> None:
        self.refused_since = None
        self.failed(error)

    def failed(self, error: Exception) -> None:
        away = ("sharing out", self._group)
        self._context.tell_outage("queues not shared out", away, error, group=self._group)

    async def _retry_topics(self) -> list[Topic]:
        """None or one. Brokers make it when they hear of the group, and name servers hear of it a moment later."""
        assert self.retry_topic is not None, "the queues are shared"
        topic = self._context.routes.cached(self.retry_topic)
        if topic is None:
            try:
                topic = await self._context.routes.refresh(self.retry_topic, may_be_missing=True)
            except TallyError:
                self._retry_pause_s = 2 * self._retry_pause_s or UNSHARED_S
                return []
        self._retry_pause_s = 0.0
        return [topic]

    async def _members(self, topic: Topic) -> list[str] | None:
        """Any broker of the topic that heard the group's heartbeats knows them. Returns None if none does."""
        refusal: BrokerError | None = None
        failure: Unavailable | None = None
        header = ConsumerGroupHeader(self._group)
        queues = {queue.broker: queue for queue in reversed(topic.readable)}.values()
        for queue in sorted(queues, key=lambda queue: offsets.is_silent(self._context, queue)):
            try:
                response = await offsets.ask_broker(
                    self._context, queue, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header
                )
                return dialect.read_as(bytes(require_success(response, group=self._group).body), ConsumerIds).ids
            except BrokerError as error:
                refusal = error
            except Unavailable as error:
                failure = error
        if refusal is not None:
            self.refused(refusal, by_all=failure is None)
            return None
        assert failure is not None, "the topic has a queue"
        raise failure
