"""The topics of a cluster: making and deleting one, where they are and what is in their queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.admin.brokers import BrokerProcess, Operator, list_processes
from tallystick.errors import BrokerUnavailable, NoSuchTopic, NotFound, Unavailable, UsageError
from tallystick.rocketmq.broker.topics import (
    DEFAULT_TOPIC,
    TopicDefaults,
    refusal_of_topic,
    system_topics,
)
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import TopicNames, TopicStats, read_stats
from tallystick.rocketmq.wire.headers import CreateTopicHeader, TopicHeader
from tallystick.rocketmq.wire.name_server_headers import RouteHeader
from tallystick.rocketmq.wire.values import (
    DLQ_PREFIX,
    MASTER_ID,
    MAX_QUEUES,
    RETRY_PREFIX,
    Perm,
    RequestCode,
    TopicRoute,
)

DEFAULT_QUEUES = 4  # of a new topic, at each broker
ROUTES_AT_ONCE = 32
SHOWN_S = 5.0  # until the name server tells of a new topic
POLL_S = 0.02

_SYSTEM_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_", "RMQ_SYS_")


@dataclass(frozen=True)
class TopicAt:
    """One topic at one broker. ``slaves`` are addresses, by broker id."""

    topic: str
    broker: str
    read_queues: int
    write_queues: int
    perm: Perm
    master: str | None
    slaves: tuple[str, ...]


@dataclass(frozen=True)
class QueueOffsets:
    """The messages of one queue: from ``first`` up to before ``end``."""

    broker: str
    queue: int
    first: int
    end: int


async def create_topic(
    operator: Operator,
    topic: str,
    *,
    queues: int | None = None,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[TopicAt]:
    """Make a topic at all masters of a cluster or at one, or change how many queues are written. Returns it.

    ``queues``: of each master; without it a topic that is there stays as it is, and a new one has DEFAULT_QUEUES.
    Queues that are there stay readable, however few are written: they may hold messages. Waits until the name server
    tells of it. Raises UsageError, NotFound, BrokerError, Unavailable.
    """
    if (reason := refusal_of_topic(topic)) is not None:
        raise UsageError(reason, topic=topic)
    if queues is not None and not 1 <= queues <= MAX_QUEUES:
        raise UsageError(f"a topic has 1 to {MAX_QUEUES} queues at each master", queues=queues)
    masters = _masters(await list_processes(operator), cluster, broker)
    there = await _there(operator, topic)
    queue_counts: dict[str, tuple[int, int]] = {}
    for master in masters:
        topic_at_master = there.get(master.broker)
        if topic_at_master is not None and queues is None:
            queue_counts[master.broker] = topic_at_master.read_queues, topic_at_master.write_queues
            continue
        write_queues = DEFAULT_QUEUES if queues is None else queues
        read_queues = write_queues if topic_at_master is None else max(write_queues, topic_at_master.read_queues)
        queue_counts[master.broker] = read_queues, write_queues
        await operator.ask(
            master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, _header(topic, read_queues, write_queues)
        )
    return await _await_shown(operator, topic, queue_counts)


def _header(topic: str, read_queues: int, write_queues: int) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=int(Perm.READ | Perm.WRITE),
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )


async def _there(operator: Operator, topic: str) -> dict[str, TopicAt]:
    """Returns the topic's route at each broker that has it, by broker name."""
    try:
        return {each.broker: each for each in await topic_route(operator, topic)}
    except NoSuchTopic:
        return {}


def _masters(processes: Sequence[BrokerProcess], cluster: str | None, broker: str | None) -> list[BrokerProcess]:
    masters = [one for one in processes if one.is_master]
    matches = [one for one in masters if cluster in (None, one.cluster) and broker in (None, one.broker)]
    if not processes:
        raise BrokerUnavailable("no broker is registered at the name server: start one")
    if not matches:
        names = ", ".join(f"{one.broker} of {one.cluster}" for one in masters) or "none"
        filters = {name: value for name, value in (("cluster", cluster), ("broker", broker)) if value is not None}
        raise NotFound(f"no such master; the name server knows {names}", **filters)
    return matches


async def _await_shown(operator: Operator, topic: str, queue_counts: Mapping[str, tuple[int, int]]) -> list[TopicAt]:
    """Wait until the name server has these read and write queue counts, by broker; returns its routes of the topic."""
    try:
        async with asyncio.timeout(SHOWN_S):
            while True:
                there = await _there(operator, topic)
                topics = [there[broker] for broker in queue_counts if broker in there]
                if {each.broker: (each.read_queues, each.write_queues) for each in topics} == queue_counts:
                    return topics
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise Unavailable(
            "the brokers have the topic, but the name server does not tell of it yet", topic=topic
        ) from None


async def topic_names(operator: Operator, *, system: bool = False) -> list[str]:
    """The names of all topics, ascending. ``system``: also those that brokers have for themselves."""
    response = await operator.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    names = sorted(dialect.read_as(bytes(response.body), TopicNames).topics)
    if system:
        return names
    own = {
        name for one in await list_processes(operator) for name in system_topics(TopicDefaults(one.broker, one.cluster))
    }
    return [name for name in names if name not in own and not name.startswith(_SYSTEM_PREFIXES)]


async def list_topics(operator: Operator, *, system: bool = False) -> list[TopicAt]:
    """All topics, a value for each broker that has one. ``system``: as in ``topic_names``."""
    names = await topic_names(operator, system=system)
    topics: list[TopicAt] = []
    for first in range(0, len(names), ROUTES_AT_ONCE):
        some = names[first : first + ROUTES_AT_ONCE]
        routes = await asyncio.gather(*(topic_route(operator, name) for name in some), return_exceptions=True)
        for route in routes:
            if isinstance(route, NoSuchTopic):  # deleted meanwhile
                continue
            if isinstance(route, BaseException):
                raise route
            topics += route
    return topics


async def topic_route(operator: Operator, topic: str) -> list[TopicAt]:
    """Returns what each broker has of a topic, sorted by broker name. Raises NoSuchTopic, Unavailable."""
    response = await operator.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic, True))
    route = dialect.read_as(bytes(response.body), TopicRoute)
    addresses = {broker.name: broker.addresses for broker in route.brokers}
    return [
        TopicAt(
            topic,
            queue.broker,
            queue.read_queues,
            queue.write_queues,
            Perm(queue.perm),
            addresses.get(queue.broker, {}).get(MASTER_ID),
            tuple(
                address for number, address in sorted(addresses.get(queue.broker, {}).items()) if number != MASTER_ID
            ),
        )
        for queue in sorted(route.queues, key=lambda queue: queue.broker)
    ]


async def topic_queues(operator: Operator, topic: str) -> list[QueueOffsets]:
    """Returns the offsets of each queue, from its master, or from a slave where the master does not respond.

    Raises NoSuchTopic, BrokerError, Unavailable.
    """
    queues: list[QueueOffsets] = []
    for one in await topic_route(operator, topic):
        addresses = [*([one.master] if one.master else []), *one.slaves]
        if not addresses:
            continue
        stats = await topic_stats(operator, addresses, topic)
        queues += [
            QueueOffsets(one.broker, queue.queue_id, range_.min_offset, range_.max_offset)
            for queue, range_ in sorted(stats.queues.items(), key=lambda pair: pair[0].queue_id)
        ]
    return queues


async def topic_stats(operator: Operator, addresses: Sequence[str], topic: str) -> TopicStats:
    """Asks the processes of a broker set in turn, until one responds. Raises NoSuchTopic, BrokerError, Unavailable."""
    response = await operator.ask_any(addresses, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic))
    return read_stats(bytes(response.body), TopicStats)


async def delete_topic(operator: Operator, topic: str) -> list[str]:
    """Delete a topic with its messages and its groups' offsets at all brokers that have it. Returns their names.

    First at the masters, then at all name servers: a master that was not asked would make it known again. Raises
    NoSuchTopic, BrokerError, and Unavailable for a master that is away: then nothing is deleted.
    """
    there = await topic_route(operator, topic)
    masters: list[str] = []
    for one in there:
        if one.master is None:
            raise BrokerUnavailable("a master that has the topic is away, and would bring it back", broker=one.broker)
        masters.append(one.master)
    for address in masters:
        await operator.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))
    await operator.ask_each_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicHeader(topic))
    return [one.broker for one in there]
