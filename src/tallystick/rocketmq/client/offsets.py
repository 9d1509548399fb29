"""Where a group stands in a queue, and where the queue begins and ends: asked from and told to its brokers.

The master is asked first, then its slaves: offsets committed to a slave while the master is away are not lost (H13).
"""

from __future__ import annotations

from tallystick.errors import BrokerUnavailable, TallyError, Unavailable
from tallystick.rocketmq.client.answers import checked
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.wire.headers import (
    Header,
    OffsetAnswer,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    UpdateOffsetHeader,
)
from tallystick.rocketmq.wire.own_headers import CommitAnswer, CommittedAnswer, LimitAnswer
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, MessageQueue, RequestCode, ResponseCode


async def ask_broker(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> Command:
    """The answer of the first process of a queue's broker set that gives one. Raises Unavailable."""
    return (await _ask(context, queue, code, header))[1]


async def _ask(context: BrokerContext, queue: MessageQueue, code: RequestCode, header: Header) -> tuple[bool, Command]:
    """As ``ask_broker``; and whether it was the master's."""
    topic = await context.routes.find(queue.topic)
    addresses = dict(topic.addresses.get(queue.broker, {}))
    failure: TallyError | None = None
    while addresses:
        address = context.brokers.choose(addresses, MASTER_ID, context.clock.now())
        assert address is not None
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
            return addresses.get(MASTER_ID) == address, answer
    context.routes.refresh_soon(queue.topic)
    raise BrokerUnavailable("no broker of this queue answers", queue=queue) from failure


async def committed(context: BrokerContext, group: str, queue: MessageQueue) -> CommittedAnswer | None:
    """None: the group has not been here. A broker that has all of a queue says 0 for a group new to it."""
    header = QueryOffsetHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker, mark=""
    )
    answer = await ask_broker(context, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return CommittedAnswer.of(checked(answer, queue=queue))


async def commit(
    context: BrokerContext, group: str, queue: MessageQueue, offset: int, *, mark: str = "", went_back: bool = False
) -> int | None:
    """``offset`` is that of the next message to be consumed; ``mark`` that of a ``Pull``: a broker that has another
    message there refuses; ``went_back``: the offset was higher, and this is on purpose.

    Returns another one when an operator set the group to that since its last pull: then nothing was committed.
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
    answer = await ask_broker(context, queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return CommitAnswer.of(checked(answer, queue=queue)).reset_to


async def queue_limits(context: BrokerContext, queue: MessageQueue) -> tuple[int, int]:
    """The offset of the first message that is still there, and that of the next one to come.

    Raises BrokerError, Unavailable, and BrokerUnavailable when only a slave answers that began in the middle of its
    master's log: what it has first is not what there is first.
    """
    _, first = await _first(context, queue)
    if first.lacking:
        raise _without_beginning(queue, first)
    return first.offset, await end_offset(context, queue)


async def _first(context: BrokerContext, queue: MessageQueue) -> tuple[bool, LimitAnswer]:
    """Where the queue begins for whoever answers, and whether that is its master."""
    header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker=queue.broker)
    is_master, answer = await _ask(context, queue, RequestCode.GET_MIN_OFFSET, header)
    return is_master, LimitAnswer.of(checked(answer, queue=queue))


def _without_beginning(queue: MessageQueue, said: LimitAnswer) -> BrokerUnavailable:
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
    said = LimitAnswer.of(checked(answer, queue=queue))
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
    is_master, answer = await _ask(context, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    offset = OffsetAnswer.of(checked(answer, queue=queue)).offset
    if is_master:
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
