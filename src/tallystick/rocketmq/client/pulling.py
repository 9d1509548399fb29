"""One queue, pulled for one consumer: long polls at the master or, when it is away, at a slave (H13).

``PullPosition.responded`` decides what a response means; the loop around it only sends, waits and hands over.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Hashable
from dataclasses import dataclass
from typing import Protocol

from tallystick.errors import BrokerError, NoSuchTopic, Unavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.responses import refusal
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.wire.headers import PullHeader, PullResponse
from tallystick.rocketmq.wire.record import decode_messages
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, MessageQueue, PullFlag, RequestCode, ResponseCode

QUEUE_OFFSET, MARK = "queueOffset", "tallyMark"  # the fields that differ from pull to pull
PULL_FLAGS = int(PullFlag.SUSPEND | PullFlag.SUBSCRIPTION)
REFUSED_PAUSE_S = 1.0  # at least
EMPTY_PAUSE_S = 0.1  # after a response that is empty although nothing was waited for
NOTHING_NEW = frozenset((ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY))
# Waiting does not cure these.
FATAL = frozenset(
    (ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
)


@dataclass(slots=True)
class PullPosition:
    """Where a consumer stands in a queue, and which broker id the last response suggested.

    ``mark`` names the last message before that, if a broker of ours gave it: to a broker that became master meanwhile
    and has another message there, the offset says nothing.
    """

    queue: MessageQueue
    filter: TagFilter
    next_offset: int
    broker_id: int = MASTER_ID
    mark: str = ""
    corrected: bool = False  # the last response moved the offset, as messages were deleted or lost

    def responded(self, response: Command) -> list[ReceivedMessage]:
        """Returns the messages of a response, in order. Raises BrokerError for a refusal, RemoteProtocolError."""
        self.corrected = False
        if response.code not in NOTHING_NEW and response.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise refusal(response, queue=self.queue)
        header = PullResponse.of(response)
        self.broker_id = header.suggest_which_broker_id
        if response.code == ResponseCode.PULL_OFFSET_MOVED:
            self.corrected = header.next_begin_offset != self.next_offset
            self.next_offset, self.mark = header.next_begin_offset, header.mark or ""
            return []
        # Decoded first: what cannot be read is not passed over.
        records = decode_messages(bytes(response.body)) if response.code == ResponseCode.SUCCESS else []
        first, self.next_offset = self.next_offset, max(self.next_offset, header.next_begin_offset)
        if header.mark is not None and header.next_begin_offset == self.next_offset:
            self.mark = header.mark
        queue, everything, matches = self.queue, not self.filter.tags, self.filter.matches
        return [
            ReceivedMessage(queue, message)
            for message in records
            if message.queue_offset >= first and (everything or matches(message.tags))
        ]


class Receiver(Protocol):
    """Gets what a reader pulls, and gives the next position."""

    def next_pull(self) -> Awaitable[PullPosition]:
        """Returns the next pull, when there is room for its messages. Raises BrokerError, Unavailable."""
        ...

    def responded(self, pull: PullPosition, response: Command) -> bool:
        """Take a response. Returns whether it had messages. Raises BrokerError, RemoteProtocolError."""
        ...

    def topic_gone(self) -> None:
        """The queue's topic is not there: when it is again it may be another one, made anew."""
        ...


class QueueReader:
    """Pulls one queue until its ``run`` is cancelled."""

    def __init__(self, context: BrokerContext, group: str, queue: MessageQueue, receiver: Receiver) -> None:
        self.queue = queue
        # What is away is away for all queues of it; one may be refused alone, and that is told of for all of them.
        self._source = (queue.topic, queue.broker)
        self._refusals = (*self._source, "refused")
        self._context, self._group, self._receiver = context, group, receiver

    async def run(self) -> None:
        """Pull for ever. Raises BrokerError, NoSuchTopic, RemoteProtocolError when waiting would not help."""
        try:
            await self._pull()
        finally:
            self._context.outages.ended(self.queue)

    async def _pull(self) -> None:
        context = self._context
        while True:
            try:
                pull = await self._receiver.next_pull()
                asked_at, before = context.clock.now(), pull.next_offset
                has_messages = self._receiver.responded(pull, await ask(context, self._group, pull))
            except Unavailable as error:
                self._tell("pull failed", self._source, error)
                context.routes.refresh_soon(self.queue.topic)
                await asyncio.sleep(context.outages.pause_s(self._source, context.clock.now()))
            except BrokerError as error:
                await self._pause_refused(error)
            else:
                if self._outage_ended():
                    context.events.emit("pulls answered again", queue=self.queue, group=self._group)
                if pull.corrected:
                    context.events.emit("offset moved", queue=self.queue, offset=before, to=pull.next_offset)
                elif not has_messages and pull.next_offset == before and context.clock.now() - asked_at < EMPTY_PAUSE_S:
                    await asyncio.sleep(EMPTY_PAUSE_S)  # a broker that does not hold pulls

    async def _pause_refused(self, error: BrokerError) -> None:
        if error.response_code in FATAL:
            raise error
        outages, now = self._context.outages, self._context.clock.now()
        outages.put_off(self.queue, now)
        pause_s = outages.pause_s(self.queue, now)
        self._tell("pull refused", self._refusals, error)
        if isinstance(error, NoSuchTopic):
            self._receiver.topic_gone()
            with contextlib.suppress(Unavailable):
                await self._context.routes.await_known(self.queue.topic)  # gone everywhere? That is raised.
        await asyncio.sleep(max(pause_s, REFUSED_PAUSE_S))

    def _tell(self, kind: str, key: Hashable, error: Exception) -> None:
        self._context.tell_outage(kind, key, error, queue=self.queue, group=self._group)

    def _outage_ended(self) -> bool:
        """A pull got its response. Returns whether it was reported that those of this queue, or broker, did not."""
        outages = self._context.outages
        outages.ended(self.queue)
        was_away, was_refused = outages.ended(self._source), outages.ended(self._refusals)
        return was_away or was_refused


async def ask(context: BrokerContext, group: str, pull: PullPosition) -> Command:
    """Returns the response to one pull, which a broker may hold for a while. Raises Unavailable, NoSuchTopic.

    A slave that does not know a topic proves nothing: only its master's response does.
    """
    settings, queue = context.settings, pull.queue
    topic = await context.routes.find(queue.topic)
    address = context.brokers.choose(topic.addresses.get(queue.broker, {}), pull.broker_id, context.clock.now())
    if address is None:
        raise Unavailable("this queue's broker is gone", queue=queue)
    own_fields = {QUEUE_OFFSET: str(pull.next_offset), MARK: pull.mark}
    fields = _fields(settings, group, queue, pull.filter.expression) | own_fields
    command = request(RequestCode.PULL_MESSAGE, fields)
    try:
        response = await context.remoting.ask(address, command, settings.pull_timeout_s)
    except Unavailable:
        context.brokers.failed(address, context.clock.now())
        raise
    if response.code == ResponseCode.TOPIC_NOT_EXIST and address != topic.master(queue.broker):
        context.brokers.failed(address, context.clock.now())
        raise Unavailable(
            "this slave has no such topic, and perhaps has not copied it yet", queue=queue, address=address
        )
    if response.code == ResponseCode.SYSTEM_BUSY:  # perhaps a slave that serves no reads: another may
        context.brokers.failed(address, context.clock.now())
    else:
        context.brokers.responded(address)
    return response


@functools.lru_cache(maxsize=1024)
def _fields(settings: BrokerClientSettings, group: str, queue: MessageQueue, expression: str) -> dict[str, str]:
    """Returns the fields that all pulls of a reader share, with a place for the others."""
    return PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=settings.pull_count,
        sys_flag=PULL_FLAGS,
        commit_offset=0,
        suspend_timeout_millis=int(settings.pull_hold_s * 1000),
        subscription=expression,
        sub_version=0,
        expression_type="TAG",
        max_msg_bytes=settings.pull_bytes,
        broker=queue.broker,
    ).to_fields()
