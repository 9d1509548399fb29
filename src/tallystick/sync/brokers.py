"""Producers and consumers without ``async``: see ``tallystick.topics``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from tallystick.codec.records import Buffer
from tallystick.errors import UsageError
from tallystick.rocketmq.client import client, consumer, producer, rebalancing
from tallystick.rocketmq.client.consumer import ConsumerLag
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sending import SendResult
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import Topic
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.arguments import payload_bytes, plain_function
from tallystick.runtime.events import Events
from tallystick.sync.connection import BlockingClient
from tallystick.sync.loop import LoopThread, alone

CHUNK_BYTES = 256 * 1024


QueueListener = Callable[[list[MessageQueue]], None]


def _on_thread(queue_listener: QueueListener | None, what: str) -> rebalancing.QueueListener | None:
    """It may use the blocking client, which waits for the loop. Raises UsageError for what is no plain function."""
    if queue_listener is None:
        return None
    plain_function(queue_listener, what)

    async def call(queues: list[MessageQueue]) -> None:
        result: object = await asyncio.to_thread(queue_listener, queues)
        if inspect.iscoroutine(result):  # a lambda may make one
            result.close()
            raise UsageError(f"{what} is a function, and does its work when it is called: nobody awaits a coroutine")

    return call


def _share_of_chunk(message: ReceivedMessage) -> float:
    return message.record.size / CHUNK_BYTES


class RocketMQ(BlockingClient[client.RocketMQ]):
    """Made by ``topics``. Connects when first used, once for each process. ``close`` it, or use ``with``."""

    def producer(self, group: str) -> Producer:
        """The one of this group, or another when that was closed. Raises UsageError."""
        loop, mq = self._client()
        return Producer(loop, loop.call(lambda: mq.producer(group)))

    def consumer(
        self,
        group: str,
        topic: str | Sequence[str] | Mapping[str, str],
        *,
        tags: str = "*",
        start: str | int = "last",
        queues: Sequence[MessageQueue] | None = None,
        alone: bool = False,
        ordered: bool = False,
        auto_ack: bool = True,
        on_assigned: QueueListener | None = None,
        on_revoked: QueueListener | None = None,
    ) -> Consumer:
        """Reads a topic, or several, for a group; begins when it is iterated over, entered or started.

        The arguments are those of ``tallystick.RocketMQ.consumer``. Listeners are plain functions, called on threads of
        their own; they may use this client. Raises UsageError.
        """
        loop, mq = self._client()
        consumer = loop.call(
            lambda: mq.consumer(
                group,
                topic,
                tags=tags,
                start=start,
                queues=queues,
                alone=alone,
                ordered=ordered,
                auto_ack=auto_ack,
                on_assigned=_on_thread(on_assigned, "on_assigned"),
                on_revoked=_on_thread(on_revoked, "on_revoked"),
            )
        )
        return Consumer(loop, consumer)

    def read(
        self, queue: MessageQueue, first: int, end: int | None = None, *, tags: str = "*"
    ) -> Iterator[ReceivedMessage]:
        """Returns the messages of one queue from offset ``first`` up to, without, ``end``; without one, for ever.

        No group is joined and no offset is committed. Raises UsageError; in the loop BrokerError, NoSuchTopic,
        Unavailable.
        """
        loop, mq = self._client()
        return loop.iterate(lambda: mq.read(queue, first, end, tags=tags), alone if end is None else _share_of_chunk)

    def topic(self, name: str) -> Topic:
        """Its queues and where they are, as a name server knows it now. Raises NoSuchTopic at once, Unavailable."""
        loop, mq = self._client()
        return loop.run(mq.topic(name))

    def queue_limits(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the first message that is still there, and that of the next one to come.

        Raises BrokerError, NoSuchTopic, Unavailable.
        """
        loop, mq = self._client()
        return loop.run(mq.queue_limits(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at this time (ms since 1970) or later. Raises as ``queue_limits``."""
        loop, mq = self._client()
        return loop.run(mq.offset_at(queue, timestamp_ms))


class Producer:
    """Made by ``RocketMQ.producer``; may be used from several threads."""

    def __init__(self, loop: LoopThread, wrapped: producer.Producer) -> None:
        self._loop, self._producer = loop, wrapped
        self.group = wrapped.group

    def __repr__(self) -> str:
        return repr(self._producer)

    def send(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_stored: bool = True,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send one message and return when a broker has stored it: look at the result's ``status``.

        Waits first while ``max_inflight_bytes`` have no response. ``wait_stored`` False: the broker answers without
        waiting for disk and slaves. ``queue``: this one and no other. Raises UsageError, NoSuchTopic, BrokerError,
        Unavailable; what is ``ambiguous`` may have been stored.
        """
        return self._loop.run(
            self._producer.send(
                topic,
                body,
                tags=tags,
                keys=keys,
                properties=properties,
                flag=flag,
                wait_stored=wait_stored,
                queue=queue,
            )
        )

    def send_nowait(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_stored: bool = True,
        queue: MessageQueue | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """A future of the result; errors of the call itself come through it too."""
        return self._loop.submit(
            self._producer.send(
                topic,
                payload_bytes(body, "a message's body"),
                tags=tags,
                keys=keys,
                properties=properties,
                flag=flag,
                wait_stored=wait_stored,
                queue=queue,
            )
        )

    def send_batch(
        self, topic: str, messages: Iterable[Message | Buffer], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue, where they stand one after the other: all are stored, or none.

        Together they may be as long as one message. Raises as ``send``.
        """
        return self._loop.run(self._producer.send_batch(topic, messages, queue=queue))

    def send_one_way(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Send one message and never hear of it. Raises UsageError, NoSuchTopic, Unavailable (no route)."""
        self._loop.run(self._producer.send_one_way(topic, body, tags=tags, keys=keys, properties=properties))

    def drain(self) -> None:
        """Wait until everything sent so far has its response, good or bad."""
        self._loop.run(self._producer.drain())

    def close(self) -> None:
        """Take no more messages, and wait for the responses of those under way."""
        self._loop.run(self._producer.close())


class Consumer:
    """Made by ``RocketMQ.consumer``. Iterate over it, on one thread: messages cross one by one."""

    def __init__(self, loop: LoopThread, wrapped: consumer.Consumer) -> None:
        self._loop, self._consumer = loop, wrapped
        self.group, self.topics = wrapped.group, wrapped.topics

    @property
    def queues(self) -> list[MessageQueue]:
        """Those of its topics that this member reads now."""
        return self._loop.call(lambda: self._consumer.queues)

    def __repr__(self) -> str:
        return repr(self._consumer)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._loop.iterate(lambda: self._consumer, alone)

    def batches(self, max_messages: int = 500, *, max_wait_s: float = 1.0) -> Iterator[list[ReceivedMessage]]:
        """Lists of messages, each committed when the loop's body has finished it. Raises as the asynchronous one."""
        return self._loop.iterate(lambda: self._consumer.batches(max_messages, max_wait_s=max_wait_s), alone)

    def start(self) -> None:
        """Join the group and begin to read. Raises NoSuchTopic (after ``topic_wait_s``), Unavailable, UsageError."""
        self._loop.run(self._consumer.start())

    def ack(self, message: ReceivedMessage) -> None:
        """Its processing is done, whatever becomes of the loop."""
        self._loop.call(lambda: self._consumer.ack(message))

    def nack(self, message: ReceivedMessage, *, delay_s: float | None = None) -> None:
        """Its processing failed: it is to be delivered again. Raises UsageError."""
        self._loop.call(lambda: self._consumer.nack(message, delay_s=delay_s))

    def commit(self) -> None:
        """Return when the brokers have what was acknowledged. Raises BrokerError, Unavailable (ambiguous)."""
        self._loop.run(self._consumer.commit())

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that it will hand out. Raises UsageError for a queue that it does not read."""
        return self._loop.call(lambda: self._consumer.position(queue))

    def lag(self) -> ConsumerLag:
        """How many messages each queue has from its lowest unacknowledged one on. Raises BrokerError, Unavailable."""
        return self._loop.run(self._consumer.lag())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset. What was handed out of the queue before counts no more. Raises UsageError."""
        self._loop.call(lambda: self._consumer.seek(queue, offset))

    def seek_to(self, where: str | int, *, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on at the ``first`` message, behind the ``last``, or at a time in ms. Raises as the asynchronous one."""
        self._loop.run(self._consumer.seek_to(where, queues=queues))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull and hand out nothing more of these, or of all that it reads now, until ``resume``. Raises UsageError."""
        self._loop.call(lambda: self._consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with these queues, or with all. Raises UsageError for a queue that it does not read."""
        self._loop.call(lambda: self._consumer.resume(queues))

    def close(self) -> None:
        """Stop reading, commit what was acknowledged, leave the group."""
        self._loop.run(self._consumer.close())

    def __enter__(self) -> Self:
        self._loop.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._consumer.__aexit__(kind, error, trace))


def topics(
    name_servers: str | Sequence[str],
    *,
    settings: BrokerClientSettings | None = None,
    events: Events | None = None,
) -> RocketMQ:
    """A client of the brokers of these name servers; see ``tallystick.topics``. Nothing is contacted before its use."""
    opening = client.topics(name_servers, settings=settings, events=events)
    return RocketMQ(opening, settings or BrokerClientSettings())
