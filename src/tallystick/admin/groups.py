"""The groups of consumers: who is in them, and how far each is behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.admin.brokers import Operator, list_processes
from tallystick.errors import BrokerError, NotFound
from tallystick.rocketmq.broker.groups import SYSTEM_GROUPS
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerConnections, ConsumeStats, GroupTable, read_stats
from tallystick.rocketmq.wire.headers import ConsumerGroupHeader
from tallystick.rocketmq.wire.operator_headers import ConsumeStatsHeader
from tallystick.rocketmq.wire.values import RETRY_PREFIX, RequestCode, ResponseCode
from tallystick.runtime.tasks import together


@dataclass(frozen=True)
class QueueBehind:
    """Where a group stands in one queue: ``offset`` is the next message that it gets, ``end`` where the queue ends."""

    topic: str
    broker: str
    queue: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class GroupStatus:
    """``members`` are clients that are connected; ``behind`` counts messages, also those to be tried again."""

    name: str
    members: int
    topics: tuple[str, ...]
    behind: int


async def list_groups(operator: Operator) -> list[GroupStatus]:
    """All groups that brokers know, but for those of the system. Raises BrokerError, Unavailable."""
    brokers = await _brokers(operator)
    tables = await together(
        operator.ask_any(addresses, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) for addresses in brokers.values()
    )
    names = {name for response in tables for name in dialect.read_as(bytes(response.body), GroupTable).groups}
    return await together(_group(operator, brokers, name) for name in sorted(names - set(SYSTEM_GROUPS)))


async def group_lag(operator: Operator, group: str) -> list[QueueBehind]:
    """Returns how far a group is behind in each queue, sorted by topic.

    Raises NotFound for a group that never consumed, BrokerError, Unavailable.
    """
    queues = await _lags(operator, await _brokers(operator), group)
    if not queues:
        raise NotFound(
            "no broker has an offset of this group: it has committed none yet, or is none of `tally group list`",
            group=group,
        )
    return queues


async def _brokers(operator: Operator) -> Mapping[str, Sequence[str]]:
    """Returns the addresses of each broker set, the master's first; slaves have its tables, up to 10 s old."""
    addresses: dict[str, list[str]] = {}
    for process in await list_processes(operator):
        addresses.setdefault(process.broker, []).append(process.address)
    return addresses


async def _group(operator: Operator, brokers: Mapping[str, Sequence[str]], group: str) -> GroupStatus:
    members: set[str] = set()
    for addresses in brokers.values():
        members |= await _members(operator, addresses, group)
    lags = await _lags(operator, brokers, group)
    topics = dict.fromkeys(one.topic for one in lags if not one.topic.startswith(RETRY_PREFIX))
    return GroupStatus(group, len(members), tuple(topics), sum(one.lag for one in lags))


async def _members(operator: Operator, addresses: Sequence[str], group: str) -> set[str]:
    header = ConsumerGroupHeader(group)
    try:
        response = await operator.ask_any(addresses, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    except BrokerError as error:
        if error.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return set()
    connections = dialect.read_as(bytes(response.body), ConsumerConnections)
    return {one.client_id for one in connections.connection_set}


async def _lags(operator: Operator, brokers: Mapping[str, Sequence[str]], group: str) -> list[QueueBehind]:
    queues: list[QueueBehind] = []
    for broker, addresses in brokers.items():
        response = await operator.ask_any(addresses, RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(group))
        stats = read_stats(bytes(response.body), ConsumeStats)
        for queue, one in stats.queues.items():
            behind = QueueBehind(queue.topic, broker, queue.queue_id, one.consumer_offset, one.broker_offset)
            queues.append(behind)
    return sorted(queues, key=lambda one: (one.topic, one.broker, one.queue))
