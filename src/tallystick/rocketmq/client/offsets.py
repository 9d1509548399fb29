"""The offset of a group in a queue, and the queue's limits: requests to its brokers.

The master is asked first, then its slaves: offsets committed to a slave while the master is away are not lost (H13).
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import BrokerUnavailable, TallyError, Unavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.client.topic import NumberedConnection
from tallystick.rocketmq.wire.headers import (
    Header,
    OffsetResponse,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateOffsetHeader,
)
from tallystick.rocketmq.wire.own_headers import QueryOffsetResponse, QueueLimitResponse, UpdateOffsetResponse
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, MessageQueue, RequestCode, ResponseCode

# Of a slave these say nothing of the master.
NOT_COPIED = frozenset(
    (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.INVALID_PARAMETER)
)


@dataclass(frozen=True)
class GroupOffset:
    """Where a group stands in a queue. ``mark``: as in ``PullPosition``. ``is_new``: the group has begun just now.
    ``connection`` is the one over which a broker got or gave the offset, or None if no broker has it. ``resets``: as in
    ``UpdateOffsetResponse``."""

    offset: int
    connection: NumberedConnection | None
    mark: str = ""
    is_new: bool = False
    resets: int = 0


@dataclass(frozen=True)
class CommitResult:
    """The outcome of a commit. ``reset_to``: nothing was committed, as an operator set the group there since its last
    pull."""

    connection: NumberedConnection
    reset_to: int | None
    resets: int


@dataclass(frozen=True)
class _Response:
    """A response, whether it is the master's, and the connection over which it came."""

    command: Command
    is_master: bool
    connection: NumberedConnection


async def ask_broker(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
    """Returns the response of the first process of a queue's broker set that gives one. Raises Unavailable."""
    return (await _ask(context, queue, code, header)).command


async def _ask(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> _Response:
    """Do as ``ask_broker``. Returns the response with its sender."""
    topic = await context.routes.find(queue.topic)
    addresses = dict(topic.addresses.get(queue.broker, {}))
    brokers = list(addresses.values())
    failure: TallyError | None = None
    while addresses:
        address = context.brokers.choose(addresses, MASTER_ID, context.clock.now())
        assert address is not None
        connection = context.brokers.connection(address)
        try:
            response = await context.remoting.ask(
                address, request(code, header.to_fields()), context.settings.request_timeout_s
            )
        except Unavailable as error:
            failure = error
            context.brokers.failed(address, context.clock.now())
            addresses = {id: other for id, other in addresses.items() if other != address}
        else:
            context.brokers.responded(address)
            return _Response(response, addresses.get(MASTER_ID) == address, connection)
    context.routes.refresh_soon(queue.topic)
    raise BrokerUnavailable("no broker of this queue answers", queue=queue, brokers=brokers) from failure


async def start_group_offset(context: BrokerContext, group: str, queue: MessageQueue, start: str | int) -> GroupOffset:
    """Returns where the group goes on; one that was never here begins at ``start``: see ``offset_of``.

    Where it begins is committed before it gets a message: else its next member would begin somewhere else, behind
    messages that came meanwhile. So is 0, which a broker that has all of a queue says of a group new to it.

    Raises BrokerError, Unavailable, and BrokerUnavailable when only a slave answers, which does not know the group: it
    may not have copied its offset yet. Only the ``first`` message is not behind any that the group had.
    """
    response, group_offset = await _query_offset(context, group, queue)
    if group_offset is not None and group_offset.offset > 0:
        return GroupOffset(
            group_offset.offset, response.connection, group_offset.mark or "", resets=group_offset.resets or 0
        )
    if group_offset is not None:
        offset, mark = group_offset.offset, group_offset.mark or ""
    elif response.is_master or start == "first":
        offset, mark = await offset_of(context, queue, start), ""
    else:
        raise BrokerUnavailable(
            "the master of this queue is away, and its slave does not know where the group stands: wait for the master",
            queue=queue,
            group=group,
        )
    result = await commit(context, group, queue, offset, mark=mark)
    if result.reset_to is not None:
        offset, mark = result.reset_to, ""
        result = await commit(context, group, queue, offset)  # that it was heard
    known_over = result.connection if result.reset_to is None else None
    return GroupOffset(offset, known_over, mark, is_new=group_offset is None, resets=result.resets)


async def query_group_offset(context: BrokerContext, group: str, queue: MessageQueue) -> GroupOffset | None:
    """Returns where the group stands for the broker that responds, or None if that knows no offset of the group.

    Raises BrokerError, Unavailable.
    """
    response, group_offset = await _query_offset(context, group, queue)
    if group_offset is None:
        return None
    return GroupOffset(
        group_offset.offset, response.connection, group_offset.mark or "", resets=group_offset.resets or 0
    )


def connection(context: BrokerContext, queue: MessageQueue) -> NumberedConnection | None:
    """Returns the connection over which the queue's broker would get a commit now; None if its address is unknown."""
    topic = context.routes.cached(queue.topic)
    addresses = {} if topic is None else topic.addresses.get(queue.broker, {})
    address = context.brokers.choose(addresses, MASTER_ID, context.clock.now())
    return None if address is None else context.brokers.connection(address)


def is_silent(context: BrokerContext, queue: MessageQueue) -> bool:
    """Whether all processes of the queue's broker set have just failed: then others are asked first, if there is a
    choice."""
    topic, now = context.routes.cached(queue.topic), context.clock.now()
    addresses = {} if topic is None else topic.addresses.get(queue.broker, {})
    return all(context.brokers.is_down(address, now) for address in addresses.values())


async def _query_offset(
    context: BrokerContext, group: str, queue: MessageQueue
) -> tuple[_Response, QueryOffsetResponse | None]:
    """Returns None beside the response if its broker knows no offset of the group."""
    header = QueryOffsetHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker, mark=""
    )
    response = await _ask(context, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if response.command.code == ResponseCode.QUERY_NOT_FOUND:
        return response, None
    return response, QueryOffsetResponse.of(require_success(response.command, queue=queue))


async def commit(
    context: BrokerContext, group: str, queue: MessageQueue, offset: int, *, mark: str = "", went_back: bool = False
) -> CommitResult:
    """Commit an offset. ``offset`` is that of the next message to be consumed; ``mark`` that of a ``PullPosition``: a
    broker that has another message there refuses; ``went_back``: the offset was higher, and this is on purpose.

    Raises BrokerError, Unavailable, which it is too that a slave lacks the topic, the group or the messages before it.
    """
    header = UpdateOffsetHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        broker=queue.broker,
        went_back=went_back or None,
        mark=mark or None,
    )
    response = await _ask(context, queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    if response.command.code in NOT_COPIED and not response.is_master:
        raise BrokerUnavailable(
            "this slave has not copied the topic, the group or the messages yet: wait for the master",
            queue=queue,
            group=group,
            offset=offset,
        )
    result = UpdateOffsetResponse.of(require_success(response.command, queue=queue))
    return CommitResult(response.connection, result.reset_to, result.resets or 0)


async def queue_limits(context: BrokerContext, queue: MessageQueue) -> tuple[int, int]:
    """Returns the offset of the first message that is still there, and that of the next one to come.

    Raises BrokerError, Unavailable, and BrokerUnavailable when only a slave answers that began in the middle of its
    master's log: what it has first is not what there is first.
    """
    _, limit = await _first_offset(context, queue)
    if limit.lacking:
        raise _without_beginning(queue, limit)
    return limit.offset, await end_offset(context, queue)


async def _first_offset(context: BrokerContext, queue: MessageQueue) -> tuple[bool, QueueLimitResponse]:
    """Returns where the queue begins for the broker that responds, and whether that is its master."""
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    response = await _ask(context, queue, RequestCode.GET_MIN_OFFSET, header)
    return response.is_master, QueueLimitResponse.of(require_success(response.command, queue=queue))


def _without_beginning(queue: MessageQueue, limit: QueueLimitResponse) -> BrokerUnavailable:
    return BrokerUnavailable(
        "the master of this queue is away, and its slave never had the first messages: wait for the master",
        queue=queue,
        slave_has_from=limit.offset or "none",
    )


async def end_offset(context: BrokerContext, queue: MessageQueue) -> int:
    """Returns the offset of the next message to come.

    Raises BrokerError, Unavailable, and BrokerUnavailable when a slave answers that has none of the queue's messages,
    and never had the part of its master's log where they may be.
    """
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    response = await ask_broker(context, queue, RequestCode.GET_MAX_OFFSET, header)
    limit = QueueLimitResponse.of(require_success(response, queue=queue))
    if limit.lacking:
        raise _without_beginning(queue, limit)
    return limit.offset


async def offset_at(context: BrokerContext, queue: MessageQueue, timestamp_ms: int) -> int:
    """Returns the offset of the first message stored at this time or later.

    Raises BrokerError, Unavailable, and BrokerUnavailable when a slave answers with the first message that it has and
    never had those before: one of them may be meant.
    """
    header = SearchOffsetHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type="LOWER", broker=queue.broker
    )
    response = await _ask(context, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    offset = OffsetResponse.of(require_success(response.command, queue=queue)).offset
    if response.is_master:
        return offset
    is_master, limit = await _first_offset(context, queue)
    if is_master:  # it has come back between the two requests
        return await offset_at(context, queue, timestamp_ms)
    if limit.lacking and offset <= limit.offset:
        raise _without_beginning(queue, limit)
    return offset


async def offset_of(context: BrokerContext, queue: MessageQueue, where: str | int) -> int:
    """Returns the offset of the ``first`` message, behind the ``last``, or at a time in ms."""
    if isinstance(where, int):
        return await offset_at(context, queue, where)
    return await end_offset(context, queue) if where == "last" else await _beginning(context, queue)


async def _beginning(context: BrokerContext, queue: MessageQueue) -> int:
    """Returns the offset of the first message that the master has; 0 if only a slave responds.

    A slave may have begun in the middle of the master's log. A consumer that goes on at the first message of such a
    slave, and commits that, passes over all messages before it; at 0 it waits for the master, which moves it to its
    first.
    """
    is_master, limit = await _first_offset(context, queue)
    return limit.offset if is_master else 0
