"""How far each slave is behind its master, and why it is not in sync: asked from both, and put together.

A slave of ours is known to its master as ``name:id``; an original one has no id there, and is recognised when it is the
only one left over on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tallystick.admin.brokers import BrokerProcess, Operator, list_processes
from tallystick.admin.topics import topic_stats
from tallystick.errors import TallyError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import HaStatus, SlaveLink, TopicTableResponse
from tallystick.rocketmq.wire.headers import OffsetResponse, QueueHeader
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode
from tallystick.runtime.keyfile import parse_properties
from tallystick.runtime.tasks import together

_ENDS_UNKNOWN = "it was not told yet where its master's queues end: a master now would need queueEndsMayBeUnknown=true"


@dataclass(frozen=True)
class Replication:
    """One slave; or a broker without any, or that is not there, then ``slave`` is None. What is not known is None.

    ``in_sync`` is None for a master without slaves that waits for none (ASYNC_MASTER).
    ``behind_messages`` counts messages of all queues that the slave's queues do not have yet.
    """

    broker: str
    slave: str | None
    address: str | None
    in_sync: bool | None
    behind_bytes: int | None
    behind_messages: int | None
    behind_s: float | None
    metadata_age_s: float | None
    why: str  # it is not in sync, or what else there is to know
    tables_copied: bool = True  # topics, groups and offsets; False: it says why it cannot
    ends_known: bool | None = None  # where its master's queues end; False: its promotion needs queueEndsMayBeUnknown
    answers: bool = True  # the slave itself, now: its master notices later that it hangs


@dataclass(frozen=True)
class _StatusResponse:
    """The replication status that a process returned; None when it returned none, and ``problem`` says why."""

    process: BrokerProcess
    status: HaStatus | None
    problem: str


async def ha_status(operator: Operator, expected_brokers: Collection[str] = ()) -> list[Replication]:
    """Returns the replication of each slave of all brokers. Raises Unavailable when no name server responds.

    ``expected_brokers``: names of broker sets. One of which no process is registered gets a row that says so, as the
    name server knows nothing of it.
    """
    responses = await asyncio.gather(*(_ask(operator, process) for process in await list_processes(operator)))
    replications: list[Replication] = []
    for broker in dict.fromkeys(response.process.broker for response in responses):
        replications += await _of_broker(operator, broker, [one for one in responses if one.process.broker == broker])
    missing_brokers = sorted(set(expected_brokers).difference(one.broker for one in replications))
    why = "nothing of it is registered, neither master nor slave"
    return replications + [
        Replication(broker, None, None, False, None, None, None, None, why) for broker in missing_brokers
    ]


async def _ask(operator: Operator, process: BrokerProcess) -> _StatusResponse:
    try:
        response = await operator.ask(process.address, RequestCode.GET_BROKER_HA_STATUS)
        return _StatusResponse(process, dialect.read_as(bytes(response.body), HaStatus), "")
    except TallyError as error:
        return _StatusResponse(process, None, error.message)


async def _of_broker(operator: Operator, broker: str, responses: Sequence[_StatusResponse]) -> list[Replication]:
    master = next((one for one in responses if one.process.is_master), None)
    slaves = [one for one in responses if not one.process.is_master]
    links = list(master.status.slaves) if master is not None and master.status is not None else []
    paired = pair_links(broker, [one.process.broker_id for one in slaves], links)
    replications = [await _one(operator, master, slave, paired.get(slave.process.broker_id)) for slave in slaves]
    strangers = [link for link in links if link not in paired.values()]
    replications += [
        Replication(broker, link.slave_id or "?", link.address, link.in_sync, link.behind_bytes, None, link.behind_s,
                    None, link.why or "it is not registered at the name server")
        for link in strangers
    ]  # fmt: skip
    rivals = [
        Replication(broker, None if one.process.is_master else one.process.id, one.process.address, False, None,
                    None, None, None,
                    f"two brokers are registered as {one.process.id}, {one.process.address} and {one.status.rival}: "
                    "clients find now one, now the other; stop the one that is not to be, at once")
        for one in responses if one.status is not None and one.status.rival is not None
    ]  # fmt: skip
    return rivals + (replications or [await _alone(operator, broker, master)])


async def _alone(operator: Operator, broker: str, master: _StatusResponse | None) -> Replication:
    """A broker of which no slave is known: a SYNC_MASTER's sends wait for one, so it is not in sync with any."""
    in_sync: bool | None = False
    if master is None or master.status is None:
        why = f"it does not answer: {master.problem}" if master is not None else "its master is not registered"
    else:
        try:
            response = await operator.ask(master.process.address, RequestCode.GET_BROKER_CONFIG)
            role = parse_properties(bytes(response.body).decode(errors="replace")).get("brokerRole")
            why = "it has no slave"
            if role == "SYNC_MASTER":
                why += ", and is a SYNC_MASTER: each send is answered SLAVE_NOT_AVAILABLE"
            else:
                in_sync = None
        except TallyError as error:
            why = f"it has no slave, and does not say whether it waits for one: {error.message}"
    return Replication(broker, None, None, in_sync, None, None, None, None, why)


def pair_links(broker: str, slaves: Sequence[int], links: Sequence[SlaveLink]) -> dict[int, SlaveLink]:
    """Returns the master's connection to each slave, by broker id, as far as that can be told."""
    link_by_slave_id = {link.slave_id: link for link in links if link.slave_id is not None}
    link_by_slave = {
        slave: link_by_slave_id[f"{broker}:{slave}"] for slave in slaves if f"{broker}:{slave}" in link_by_slave_id
    }
    nameless_links, unpaired_slaves = (
        [link for link in links if link.slave_id is None],
        [one for one in slaves if one not in link_by_slave],
    )
    if len(nameless_links) == len(unpaired_slaves) == 1:
        link_by_slave[unpaired_slaves[0]] = nameless_links[0]
    return link_by_slave


async def _one(
    operator: Operator, master: _StatusResponse | None, slave: _StatusResponse, link: SlaveLink | None
) -> Replication:
    process = slave.process
    own = slave.status.link if slave.status is not None else None
    behind_bytes = link.behind_bytes if link is not None else None
    if behind_bytes is None and master is not None and master.status is not None and slave.status is not None:
        behind_bytes = max(0, master.status.end - slave.status.end)
    return Replication(
        process.broker,
        process.id,
        process.address,
        link is not None and link.in_sync,
        behind_bytes,
        0 if behind_bytes == 0 else await _messages_behind(operator, master, slave),
        link.behind_s if link is not None else None,
        own.metadata_age_s if own is not None else None,
        _why(master, slave, link),
        own is None or not own.tables_why,
        own.ends_known if own is not None else None,
        slave.status is not None,
    )


def _why(master: _StatusResponse | None, slave: _StatusResponse, link: SlaveLink | None) -> str:
    if master is None:
        return "its master is not registered"
    if master.status is None:
        return f"its master does not answer: {master.problem}"
    if slave.status is None:
        return f"it does not answer: {slave.problem}"
    if link is None:
        return slave.status.link.why or "it is not connected to its master's HA port"
    if not link.in_sync:
        return link.why or "it is too far behind"
    own = slave.status.link
    if own.tables_why:
        return f"its tables are not copied: {own.tables_why}"
    return _ENDS_UNKNOWN if own.ends_known is False else link.why or ""


async def _messages_behind(operator: Operator, master: _StatusResponse | None, slave: _StatusResponse) -> int | None:
    """Returns None if one of the two does not respond."""
    if master is None or master.status is None or slave.status is None:
        return None
    try:
        response = await operator.ask(master.process.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = sorted(dialect.read_as(bytes(response.body), TopicTableResponse).topics)
        stats = await together(topic_stats(operator, [master.process.address], topic) for topic in topics)
        there = {queue: one.max_offset for table in stats for queue, one in table.queues.items() if one.max_offset}
        # Not by the slave's own statistics: it may lack the topic, and have its messages all the same.
        here = await together(_end(operator, slave.process, queue) for queue in there)
    except TallyError:
        return None
    return sum(max(0, end - there_too) for end, there_too in zip(there.values(), here, strict=True))


async def _end(operator: Operator, process: BrokerProcess, queue: MessageQueue) -> int:
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
    return OffsetResponse.of(await operator.ask(process.address, RequestCode.GET_MAX_OFFSET, header)).offset
