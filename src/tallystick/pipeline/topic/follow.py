"""The queues of topics, as a planner process sees them: where they are, how far they reach, and from when on.

One request a broker set and topic tells of all its queues, so a trigger costs as many, however many queues there are.
Routes and the topics of a pattern are looked up again when they are about a second old: a slave that took its master's
place, a new queue and a new topic are seen soon.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tallystick.admin.brokers import Operator
from tallystick.admin.topics import topic_names
from tallystick.errors import BrokerError, BrokerUnavailable, NoSuchTopic, TallyError, Unavailable
from tallystick.pipeline.key_files import security_here
from tallystick.pipeline.notes import note
from tallystick.pipeline.topic.bounds import Bound, QueueLimits
from tallystick.pipeline.topic.brokers import TopicClient
from tallystick.pipeline.topic.options import TopicOptions, client_settings
from tallystick.pipeline.topic.plan import BrokerSets
from tallystick.pipeline.topic.progress import GroupOffsets
from tallystick.pipeline.topic.schema import FORMAT
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.client.topic import Topic
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.security import open_client
from tallystick.rocketmq.wire.bodies import TopicStats, read_stats
from tallystick.rocketmq.wire.headers import TopicHeader
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.machine import this_machine
from tallystick.runtime.tasks import together

T = TypeVar("T")
ROUTE_S = 1.0  # how old routes, and the topics of a pattern, may be
AT_ONCE = 64  # requests


@dataclass(frozen=True)
class FollowedTopics:
    """What a planner process connects to."""

    options: TopicOptions

    async def connect(self) -> TopicFollower:
        outside = this_machine(Events(log_listener()))
        options, remoting = self.options, open_client(outside, security_here(self.options.security))
        mq = await topics(options.name_servers, settings=client_settings(options.security))
        return TopicFollower(mq, remoting, outside.clock, options)


class TopicFollower:
    """Used on one running loop; ``close`` it. ``client`` knows the brokers of the newest routes."""

    def __init__(self, mq: RocketMQ, remoting: RemotingClient, clock: Clock, options: TopicOptions) -> None:
        self.options, self.clock = options, clock
        self.client = TopicClient(BrokerSets({}, options.group, options.slave_first, options.security), remoting, clock)
        self.group = None if options.group_id is None else GroupOffsets(self.client, options.group_id)
        self._mq, self._operator = mq, Operator(remoting, options.name_servers)
        self._routes: dict[str, Topic] = {}
        self._routes_at = -math.inf

    async def limits(self) -> dict[MessageQueue, QueueLimits]:
        """Returns how far each queue of the query reaches, ascending; each begins where it says.

        Raises NoSuchTopic, BrokerError, Unavailable, and BrokerUnavailable when only a slave responds that lacks the
        beginning of a queue.
        """
        names = await self._names()
        self._take(await together((self._mq.topic(name) for name in names), AT_ONCE))
        limits: dict[MessageQueue, QueueLimits] = {}
        for some in await together((self._set_limits(*each) for each in self._sets()), AT_ONCE):
            limits.update(some)
        unsure = sorted(queue for queue, each in limits.items() if not each.is_sure)
        pairs = await together((self._mq.queue_limits(queue) for queue in unsure), AT_ONCE)
        limits.update((queue, QueueLimits(*pair, is_sure=False)) for queue, pair in zip(unsure, pairs, strict=True))
        return dict(sorted(limits.items()))

    async def limits_now(self) -> dict[MessageQueue, QueueLimits]:
        """Returns the same of those whose brokers respond. Raises nothing for the others."""
        await self.refresh()
        sets = list(self._sets())
        outcomes = await together((_outcome(self._set_limits(*each)) for each in sets), AT_ONCE)
        limits: dict[MessageQueue, QueueLimits] = {}
        for (topic, broker), outcome in zip(sets, outcomes, strict=True):
            if isinstance(outcome, (BrokerError, Unavailable)):
                note(FORMAT, f"the ends of some queues are not known now: topic={topic.name} broker={broker} {outcome}")
            elif isinstance(outcome, TallyError):
                raise outcome
            else:
                limits.update(outcome)
        return dict(sorted(limits.items()))

    async def timed(self, bound: Bound, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Returns the offsets of the first messages of a bound's time or later; none if it has no time."""
        ms = bound.timestamp_ms
        if ms is None:
            return {}
        queues = list(queues)
        offsets = await together((self._mq.offset_at(queue, ms) for queue in queues), AT_ONCE)
        return dict(zip(queues, offsets, strict=True))

    def broker_sets(self, queues: Iterable[MessageQueue]) -> BrokerSets:
        """Returns where the brokers of some queues are."""
        brokers = {queue.broker for queue in queues}
        known = self.client.brokers
        addresses = {broker: known.addresses[broker] for broker in sorted(brokers) if broker in known.addresses}
        return BrokerSets(addresses, known.group, known.slave_first, known.security)

    def has_route(self, topic: str) -> bool:
        return topic in self._routes

    async def close(self) -> None:
        if self.group is not None:
            await self.group.close()
        await self._mq.close()
        await self.client.close()

    async def _names(self) -> Collection[str]:
        pattern = self.options.pattern
        if pattern is None:
            return self.options.topics
        return [name for name in await topic_names(self._operator) if pattern.fullmatch(name)]

    async def refresh(self) -> None:
        """Look up the routes again if they are old; while no name server responds they stay as they are. Raises
        Unavailable for the first look, RemoteProtocolError, BrokerError."""
        now = self.clock.now()
        if now < self._routes_at + ROUTE_S:
            return
        try:
            outcomes = await together((_outcome(self._mq.topic(name)) for name in await self._names()), AT_ONCE)
            if silence := next((each for each in outcomes if isinstance(each, Unavailable)), None):
                raise silence
        except Unavailable as error:
            if self._routes_at == -math.inf:
                raise
            note(FORMAT, f"routes are not looked up now: {error}")
            self._routes_at = now
            return
        routes = []
        for outcome in outcomes:
            if isinstance(outcome, Topic):
                routes.append(outcome)
            elif not isinstance(outcome, NoSuchTopic):
                raise outcome
        self._take(routes)

    def _take(self, routes: Iterable[Topic]) -> None:
        self._routes = {topic.name: topic for topic in routes}
        self._routes_at = self.clock.now()
        addresses: dict[str, Mapping[int, str]] = {}
        for topic in self._routes.values():
            addresses.update(topic.addresses)
        options = self.options
        self.client.brokers = BrokerSets(addresses, options.group, options.slave_first, options.security)

    def _sets(self) -> Iterable[tuple[Topic, str]]:
        for topic in self._routes.values():
            for broker in dict.fromkeys(queue.broker for queue in topic.readable if self.options.wants(queue)):
                yield topic, broker

    async def _set_limits(self, topic: Topic, broker: str) -> dict[MessageQueue, QueueLimits]:
        """Returns the limits of a topic's queues at a broker set. Raises NoSuchTopic, BrokerError, Unavailable."""
        command = request(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic.name).to_fields())
        response, is_sure = await self.client.ask_set(broker, command)
        if response.code == ResponseCode.TOPIC_NOT_EXIST and not is_sure:
            raise BrokerUnavailable(
                "the master is away, and its slave has not copied the topic yet", topic=topic.name, broker=broker
            )
        stats = read_stats(bytes(require_success(response, topic=topic.name, broker=broker).body), TopicStats)
        limits: dict[MessageQueue, QueueLimits] = {}
        for queue in topic.readable:
            if queue.broker != broker or not self.options.wants(queue):
                continue
            each = stats.queues.get(queue)
            if each is None:  # of a queue that is read and not written the original says nothing there
                limits[queue] = QueueLimits(*await self._mq.queue_limits(queue))
            else:
                limits[queue] = QueueLimits(max(each.min_offset, 0), max(each.max_offset, 0), is_sure)
        return limits


async def _outcome(work: Awaitable[T]) -> T | TallyError:
    """Returns what it returns, or raises of ours."""
    try:
        return await work
    except TallyError as error:
        return error
