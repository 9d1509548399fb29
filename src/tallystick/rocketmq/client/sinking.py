"""Sends the messages of a sink to the masters of a topic: again until disk and slaves have them.

Each message once: ``begin`` asks all broker sets of the topic and the application how far the partition has come, those
that take no message just now among them, and ``send_once`` goes on there (see broker/sink_checks). Who asks a set that
does not answer does not know, and goes nowhere else. At least once: ``send_again`` sends to another queue when one
fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tallystick.codec.records import Content
from tallystick.errors import (
    BrokerUnavailable,
    CheckpointLost,
    NonDeterministicReplay,
    TallyError,
    Unavailable,
)
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.responses import refusal
from tallystick.rocketmq.client.topic import TEMPLATE_TOPIC
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.record import encode_batch
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.send_form import SendForm
from tallystick.rocketmq.wire.sink_identity import name_part, names_of
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

PATIENCE_S = 120.0  # of a send, and of a question for how far a sink has come
SEND_S = 20.0  # of one attempt, above a broker's own time-outs
_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0)
_ERRORS = 3  # attempts that a broker may answer with SYSTEM_ERROR
_LATE = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)
_NOT_NOW = (*_LATE, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION)
_GROUP = "TALLY_SINK"
_WAITS = "WAIT\x01true\x02"
GO_ON = (
    "nothing more of it was sent, and what was sent stays. A query that is repeated must make the same rows in as many "
    "partitions: without random numbers or the clock, from a source that still has them, with the number of partitions "
    "that it had, and without order=arrival behind a shuffle. Repeat it so, or let another application go on behind "
    "this batch"
)


@dataclass(frozen=True)
class SinkPlace:
    """A partition of a batch."""

    topic: str
    application: str
    query: str
    batch: int
    partitions: int
    partition: int


@dataclass(frozen=True)
class SinkStart:
    """Where a partition goes on: its queue, the last message that is stored (-1: none), all broker sets that have, or
    may have, messages of the application. ``newest`` is the batch that is recorded, -1 if none is."""

    queue: MessageQueue
    stored: int
    brokers: tuple[str, ...]
    newest: int


class SinkSender:
    """On the loop of its client. ``close`` it."""

    def __init__(self, mq: RocketMQ) -> None:
        self._mq, self._context = mq, mq._context

    async def close(self) -> None:
        await self._mq.close()

    def message_id(self) -> str:
        """Returns an id for a message without an identity."""
        return self._context.ids.next(self._context.clock.wall_ms())

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues that take messages. Waits for a master, as sends do: one that is started again between two
        batches ends no query. Raises NoSuchTopic, BrokerUnavailable."""
        routes, deadline, attempt = self._context.routes, self._context.clock.now() + PATIENCE_S, 0
        while not (route := await routes.await_known(topic)).writable:
            if self._context.clock.now() >= deadline:
                raise BrokerUnavailable(
                    "no broker takes messages for this topic: no set of it has a master", topic=topic
                )
            await self._pause(topic, attempt)
            attempt += 1
        return tuple(sorted(route.writable))

    async def unaware(self, topic: str, brokers: Iterable[str]) -> list[str]:
        """Returns the broker sets that store a message as often as it is sent: originals, and older ones of ours."""
        names = []
        for broker in sorted(set(brokers)):
            response = await self._ask_state(topic, "-", 0, broker)
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                names.append(broker)
        return names

    async def begin(self, place: SinkPlace, queues: Sequence[MessageQueue], sets: Sequence[str] = ()) -> SinkStart:
        """Returns where a partition goes on; if a later batch is recorded, only that counts. ``sets``: further broker
        sets that may have messages of the application.

        Raises NonDeterministicReplay for another number of partitions, CheckpointLost for another query, BrokerError,
        BrokerUnavailable.
        """
        start = SinkStart(queues[place.partition % len(queues)], -1, (), -1)
        of_queues = {queue.broker for queue in queues}
        # A set whose master is away, or that is being emptied, has no queue to write to, and may have a part of this.
        others = set((await self._context.routes.find(place.topic)).addresses) - of_queues
        others.difference_update(await self.unaware(place.topic, others))
        brokers = dict.fromkeys(sorted({*of_queues, *others, *sets}))
        past = set[str]()
        while pending := [broker for broker in brokers if broker not in past]:
            past.add(pending[0])
            state = await self._state(place, pending[0])
            if state.query is None or state.batch is None:
                continue
            _check(place, state)
            brokers |= dict.fromkeys(names_of(state.brokers or ""))
            start = replace(start, newest=max(start.newest, state.batch))
            if state.batch == place.batch and state.sequence is not None and state.sequence > start.stored:
                queue = MessageQueue(place.topic, pending[0], state.queue_id or 0)
                start = replace(start, queue=queue, stored=state.sequence)
        return replace(start, brokers=tuple(sorted(brokers)))

    async def send_once(self, place: SinkPlace, queue: MessageQueue, contents: Sequence[Content]) -> None:
        """Send messages with their identities, to be stored once. Raises as ``begin``, and Unavailable if messages
        before them are missing, which a takeover lost: begin again."""
        response = await self._send(RequestCode.SEND_SINK_BATCH, [queue], encode_batch(contents))
        code = response.code
        if code == ResponseCode.MESSAGE_ILLEGAL and len(contents) > 1:
            for part in _halves(contents):
                await self.send_once(place, queue, part)
            return
        about = {"topic": place.topic, "application": place.application, "batch": place.batch}
        if code in (ResponseCode.SINK_DIFFERS, ResponseCode.SINK_PARTITIONS):
            raise differs(place, response.remark or "")
        if code == ResponseCode.SINK_QUERY:
            raise CheckpointLost(
                f"another query or a later batch is recorded at the broker: {response.remark}", **about
            )
        if code == ResponseCode.SINK_GAP:
            raise Unavailable(f"the broker lacks messages that it had: {response.remark}", **about)
        if code != ResponseCode.SUCCESS:
            raise refusal(response, broker=queue.broker, **about)

    async def send_again(self, queues: Sequence[MessageQueue], contents: Sequence[Content]) -> None:
        """Send messages to the first of the queues that takes them. Raises BrokerError, Unavailable."""
        response = await self._send(RequestCode.SEND_BATCH_MESSAGE, queues, encode_batch(contents))
        if response.code == ResponseCode.MESSAGE_ILLEGAL and len(contents) > 1:
            for part in _halves(contents):
                await self.send_again(queues, part)
            return
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response, topic=queues[0].topic)

    async def _send(self, code: RequestCode, queues: Sequence[MessageQueue], body: bytes) -> Command:
        """Send until a queue has it for good, or will never. Returns the response."""
        deadline, errors, failure = self._context.clock.now() + PATIENCE_S, 0, TallyError()
        attempt = 0
        while self._context.clock.now() < deadline:
            queue = queues[attempt % len(queues)]
            try:
                response = await self._ask(queue.topic, queue.broker, self._command(code, queue, body), SEND_S)
            except Unavailable as error:
                failure = error
            else:
                is_error = response.code == ResponseCode.SYSTEM_ERROR
                errors += is_error
                if response.code not in _NOT_NOW and not (is_error and errors < _ERRORS):
                    return response
                failure = refusal(response, topic=queue.topic, broker=queue.broker)
            await self._pause(queue.topic, attempt)
            attempt += 1
        raise Unavailable(
            "a broker does not say that disk and slaves have the messages", queue=queue, reason=str(failure)
        ) from failure

    async def _state(self, place: SinkPlace, broker: str) -> SinkStateResponse:
        response = await self._ask_state(place.topic, name_part(place.application), place.partition, broker)
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response, topic=place.topic, broker=broker)
        return SinkStateResponse.of(response)

    async def _ask_state(self, topic: str, application: str, partition: int, broker: str) -> Command:
        header = SinkStateHeader(topic=topic, application=application, partition=partition)
        deadline, attempt, failure = self._context.clock.now() + PATIENCE_S, 0, TallyError()
        while self._context.clock.now() < deadline:
            try:
                command = request(RequestCode.GET_SINK_STATE, header.to_fields())
                response = await self._ask(topic, broker, command, self._context.settings.request_timeout_s)
                if response.code not in _NOT_NOW:
                    return response
                failure = refusal(response, topic=topic, broker=broker)
            except Unavailable as error:
                failure = error
            await self._pause(topic, attempt)
            attempt += 1
        raise BrokerUnavailable(
            "the application has, or may have, sent to this broker set, and its master does not say how far: nothing "
            "is sent elsewhere. If it is gone for good, let another application go on",
            broker=broker,
            reason=str(failure),
        ) from failure

    async def _ask(self, topic: str, broker: str, command: Command, timeout_s: float) -> Command:
        route = self._context.routes.cached(topic) or await self._context.routes.await_known(topic)
        address = route.master(broker)
        if address is None:
            raise BrokerUnavailable("this broker set has no master now", topic=topic, broker=broker)
        return await self._context.remoting.ask(address, command, timeout_s)

    def _command(self, code: RequestCode, queue: MessageQueue, body: bytes) -> Command:
        form = SendForm(
            producer_group=_GROUP,
            topic=queue.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            batch=True,
            broker=queue.broker,
        )
        return request(code, form.fill(0, self._context.clock.wall_ms(), 0, _WAITS), body)

    async def _pause(self, topic: str, attempt: int) -> None:
        await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
        self._context.routes.refresh_soon(topic)


def _halves(contents: Sequence[Content]) -> tuple[Sequence[Content], Sequence[Content]]:
    """Returns two parts of a batch that a broker does not take as one: its own maxMessageSize may be small."""
    middle = len(contents) // 2
    return contents[:middle], contents[middle:]


def differs(place: SinkPlace, what: str) -> NonDeterministicReplay:
    """Returns the error of a batch that is repeated otherwise."""
    return NonDeterministicReplay(
        f"batch {place.batch} of application {place.application} has other messages than when it was sent before: "
        f"{what}; {GO_ON}",
        response_code=int(ResponseCode.SINK_DIFFERS),
        topic=place.topic,
        application=place.application,
        batch=place.batch,
        partition=place.partition,
    )


def _check(place: SinkPlace, state: SinkStateResponse) -> None:
    if state.query != name_part(place.query):
        raise CheckpointLost(
            f"application {place.application} has sent batch {state.batch} of query {state.query}, and this is query "
            f"{place.query}: it began again without its checkpoint. Restore that, or give this query the name of "
            "another application",
            topic=place.topic,
            application=place.application,
            query=state.query,
            batch=state.batch,
        )
    if state.batch == place.batch and state.partitions != place.partitions:
        raise differs(place, f"it was begun in {state.partitions} partitions, and has {place.partitions} now")
