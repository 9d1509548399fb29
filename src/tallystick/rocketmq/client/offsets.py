"""Where a group stands in a queue, and where the queue begins and ends: asked from and told to its brokers.

The master is asked first, then its slaves: offsets committed to a slave while the master is away are not lost (H13).
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import BrokerUnavailable, TallyError, Unavailable
from tallystick.rocketmq.client.answers import checked
from tallystick.rocketmq.client.by_broker import NoAnswer
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.topic import Connection
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
class Stand:
    """Where a group stands in a queue. ``mark``: as a ``Pull`` has it. ``is_new``: it has begun just now.

    ``connection``: over which a broker was told so, or said so; None: none knows it. ``resets``:
    ``UpdateOffsetResponse``.
    """

    offset: int
    connection: Connection | None
    mark: str = ""
    is_new: bool = False
    resets: int = 0


@dataclass(frozen=True)
class Committed:
    """``reset_to``: nothing was committed, as an operator set the group to that since its last pull."""

    connection: Connection
    reset_to: int | None
    resets: int


@dataclass(frozen=True)
class _Heard:
    answer: Command
    is_master: bool
    connection: Connection


async def ask_broker(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
    """The answer of the first process of a queue's broker set that gives one. Raises Unavailable."""
    return (await _ask(context, queue, code, header)).answer


async def _ask(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> _Heard:
    """As ``ask_broker``; and whose it was."""
    topic = await context.routes.find(queue.topic)
    addresses = dict(topic.addresses.get(queue.broker, {}))
    failure: TallyError | None = None
    while addresses:
        address = context.brokers.choose(addresses, MASTER_ID, context.clock.now())
        assert address is not None
        connection = context.brokers.connection(address)
        try:
            answer = await context.remoting.ask(
                address, request(code, header.to_fields()), context.settings.request_timeout_s
            )
        except Unavailable as error:
            failure = error
            context.brokers.failed(address, context.clock.now())
            addresses = {id: other for id, other in addresses.items() if other != address}
        else:
            context.brokers.answered(address)
            return _Heard(answer, addresses.get(MASTER_ID) == address, connection)
    context.routes.refresh_soon(queue.topic)
    raise NoAnswer("no broker of this queue answers", queue=queue) from failure


async def stand(context: BrokerContext, group: str, queue: MessageQueue, start: str | int) -> Stand:
    """Where the group goes on; one that was never here begins at ``start``: see ``offset_of``.

    Where it begins is committed before it gets a message: else its next member would begin somewhere else, behind
    messages that came meanwhile. So is 0, which a broker that has all of a queue says of a group new to it.

    Raises BrokerError, Unavailable, and BrokerUnavailable when only a slave answers, which does not know the group: it
    may not have copied its offset yet. Only the ``first`` message is not behind any that the group had.
    """
    heard, found = await _committed(context, group, queue)
    if found is not None and found.offset > 0:
        return Stand(found.offset, heard.connection, found.mark or "", resets=found.resets or 0)
    if found is not None:
        offset, mark = found.offset, found.mark or ""
    elif heard.is_master or start == "first":
        offset, mark = await offset_of(context, queue, start), ""
    else:
        raise BrokerUnavailable(
            "the master of this queue is away, and its slave does not know where the group stands: wait for the master",
            queue=queue,
            group=group,
        )
    said = await commit(context, group, queue, offset, mark=mark)
    if said.reset_to is not None:
        offset, mark = said.reset_to, ""
        said = await commit(context, group, queue, offset)  # that it was heard
    told = said.connection if said.reset_to is None else None
    return Stand(offset, told, mark, is_new=found is None, resets=said.resets)


async def stands(context: BrokerContext, group: str, queue: MessageQueue) -> Stand | None:
    """Where the group stands for whoever answers; None: it knows no offset of it. Raises BrokerError, Unavailable."""
    heard, found = await _committed(context, group, queue)
    if found is None:
        return None
    return Stand(found.offset, heard.connection, found.mark or "", resets=found.resets or 0)


def connection(context: BrokerContext, queue: MessageQueue) -> Connection | None:
    """The one over which the queue's broker would be told of a commit now; None: it is not known where it is."""
    topic = context.routes.cached(queue.topic)
    addresses = {} if topic is None else topic.addresses.get(queue.broker, {})
    address = context.brokers.choose(addresses, MASTER_ID, context.clock.now())
    return None if address is None else context.brokers.connection(address)


def is_silent(context: BrokerContext, queue: MessageQueue) -> bool:
    """Whether all processes of the queue's broker have just failed: who has a choice asks others first."""
    topic, now = context.routes.cached(queue.topic), context.clock.now()
    addresses = {} if topic is None else topic.addresses.get(queue.broker, {})
    return all(context.brokers.is_down(address, now) for address in addresses.values())


async def _committed(
    context: BrokerContext, group: str, queue: MessageQueue
) -> tuple[_Heard, QueryOffsetResponse | None]:
    """None: who answers knows no offset of the group."""
    header = QueryOffsetHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker, mark=""
    )
    heard = await _ask(context, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if heard.answer.code == ResponseCode.QUERY_NOT_FOUND:
        return heard, None
    return heard, QueryOffsetResponse.of(checked(heard.answer, queue=queue))


async def commit(
    context: BrokerContext, group: str, queue: MessageQueue, offset: int, *, mark: str = "", went_back: bool = False
) -> Committed:
    """``offset`` is that of the next message to be consumed; ``mark`` that of a ``Pull``: a broker that has another
    message there refuses; ``went_back``: the offset was higher, and this is on purpose.

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
    heard = await _ask(context, queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    if heard.answer.code in NOT_COPIED and not heard.is_master:
        raise BrokerUnavailable(
            "this slave has not copied the topic, the group or the messages yet: wait for the master",
            queue=queue, group=group, offset=offset,
        )  # fmt: skip
    said = UpdateOffsetResponse.of(checked(heard.answer, queue=queue))
    return Committed(heard.connection, said.reset_to, said.resets or 0)


async def queue_limits(context: BrokerContext, queue: MessageQueue) -> tuple[int, int]:
    """The offset of the first message that is still there, and that of the next one to come.

    Raises BrokerError, Unavailable, and BrokerUnavailable when only a slave answers that began in the middle of its
    master's log: what it has first is not what there is first.
    """
    _, first = await _first(context, queue)
    if first.lacking:
        raise _without_beginning(queue, first)
    return first.offset, await end_offset(context, queue)


async def _first(context: BrokerContext, queue: MessageQueue) -> tuple[bool, QueueLimitResponse]:
    """Where the queue begins for whoever answers, and whether that is its master."""
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    heard = await _ask(context, queue, RequestCode.GET_MIN_OFFSET, header)
    return heard.is_master, QueueLimitResponse.of(checked(heard.answer, queue=queue))


def _without_beginning(queue: MessageQueue, said: QueueLimitResponse) -> BrokerUnavailable:
    return BrokerUnavailable(
        "the master of this queue is away, and its slave never had the first messages: wait for the master",
        queue=queue,
        slave_has_from=said.offset or "none",
    )


async def end_offset(context: BrokerContext, queue: MessageQueue) -> int:
    """Of the next message to come.

    Raises BrokerError, Unavailable, and BrokerUnavailable when a slave answers that has none of the queue's messages,
    and never had the part of its master's log where they may be.
    """
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    answer = await ask_broker(context, queue, RequestCode.GET_MAX_OFFSET, header)
    said = QueueLimitResponse.of(checked(answer, queue=queue))
    if said.lacking:
        raise _without_beginning(queue, said)
    return said.offset


async def offset_at(context: BrokerContext, queue: MessageQueue, timestamp_ms: int) -> int:
    """Of the first message stored at this time or later.

    Raises BrokerError, Unavailable, and BrokerUnavailable when a slave answers with the first message that it has and
    never had those before: one of them may be meant.
    """
    header = SearchOffsetHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type="LOWER", broker=queue.broker
    )
    heard = await _ask(context, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    offset = OffsetResponse.of(checked(heard.answer, queue=queue)).offset
    if heard.is_master:
        return offset
    is_master, first = await _first(context, queue)
    if is_master:  # it has come back between the two questions
        return await offset_at(context, queue, timestamp_ms)
    if first.lacking and offset <= first.offset:
        raise _without_beginning(queue, first)
    return offset


async def offset_of(context: BrokerContext, queue: MessageQueue, where: str | int) -> int:
    """Of the ``first`` message, behind the ``last``, or at a time in ms."""
    if isinstance(where, int):
        return await offset_at(context, queue, where)
    return await end_offset(context, queue) if where == "last" else await _beginning(context, queue)


async def _beginning(context: BrokerContext, queue: MessageQueue) -> int:
    """Of the first message that the master has; 0 when only a slave answers.

    A slave may have begun in the middle of the master's log. Who goes on at the first message of such a one, and
    commits that, passes over all that is before it; at 0 it waits for the master, which moves it to its first.
    """
    is_master, first = await _first(context, queue)
    return first.offset if is_master else 0
