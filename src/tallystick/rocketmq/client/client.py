"""The client of brokers: producers, consumers, and the routes and heartbeats that they share."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import Self
from weakref import WeakSet

from tallystick.errors import UsageError
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.arguments import check_group, check_place, check_queue, check_topic
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.context import BrokerContext, message_ids
from tallystick.rocketmq.client.membership import Membership
from tallystick.rocketmq.client.name_servers import addresses_of
from tallystick.rocketmq.client.outages import Outages
from tallystick.rocketmq.client.producer import Producer
from tallystick.rocketmq.client.reading import read_queue
from tallystick.rocketmq.client.rebalancing import QueueListener, is_in_listener
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.routes import TopicRoutes
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.sharing import QueueSelection
from tallystick.rocketmq.client.subscription import TagFilter, filters_of
from tallystick.rocketmq.client.topic import BrokerChoice, Topic
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.arguments import MAX_INT64, instance, items, listener, optional, whole
from tallystick.runtime.events import Events
from tallystick.runtime.log import log_listener
from tallystick.runtime.loops import check_loop
from tallystick.runtime.machine import this_machine
from tallystick.runtime.opening import Opening
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch


class RocketMQ:
    """Made by ``topics``; on one running event loop. ``close`` it, or use it with ``async with``."""

    def __init__(
        self, name_servers: Sequence[str], outside: Outside, settings: BrokerClientSettings, *, program: str
    ) -> None:
        """``program`` shows operators to whom a connection belongs: host@process."""
        clock, random, events = outside.clock, outside.random, outside.events
        security = settings.security or BrokerSecurity.of(os.environ)
        self._name_servers = tuple(name_servers)
        remoting = RemotingClient(
            security.around(outside),
            RemotingSettings(),
            self._on_request,
            self._connection_lost,
            security.credentials(clock),
        )
        self._context = BrokerContext(
            client_id=f"{program}#{random.getrandbits(48):012x}",
            remoting=remoting,
            routes=TopicRoutes(
                remoting,
                name_servers=name_servers,
                settings=settings,
                clock=clock,
                events=events,
                on_change=self._route_changed,
            ),
            brokers=BrokerChoice(settings.down_s),
            outages=Outages(),
            ids=message_ids(random),
            settings=settings,
            clock=clock,
            random=random,
            events=events,
        )
        self._membership = Membership(self._context)
        self._producers: dict[str, Producer] = {}
        self._closed_producers: WeakSet[Producer] = WeakSet()  # what one still sends holds it
        self._consumers: WeakSet[Consumer] = WeakSet()  # one that is reading is held by its tasks
        upkeep = (self._context.routes.keep_fresh(), self._membership.keep_beating())
        self._tasks = [asyncio.create_task(work) for work in upkeep]
        watch(self._tasks, self._fail)
        self._failure: Exception | None = None
        self._closing: asyncio.Future[None] | None = None

    def producer(self, group: str) -> Producer:
        """Returns the producer of this group; a group has one in each client, and another when that was closed."""
        self._require_open()
        producer = self._producers.get(check_group(group))
        if producer is None or producer._closed:
            if producer is not None:
                self._closed_producers.add(producer)
            producer = self._producers[group] = Producer(self._context, group)
            self._membership.add_producer(group)
        return producer

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
        """Reads a topic, or several, for a group; begins when it is iterated over.

        ``topic``: one, several, or a mapping from topic to tags. All members of a group read the same.
        ``tags``: only messages with one of these, ``A || B``. ``start``: where a group begins that has never been here,
        at the ``first`` message, after the ``last``, or at a time in ms; a broker that still has all of a queue lets a
        new group begin at its first message whatever it wants. ``queues``: these; ``alone``: all of the topics';
        else the group's members share them out. ``ordered``: of each queue, a message is handed out when the one before
        it is acknowledged. ``auto_ack``: what a loop's body has finished is acknowledged; without it only ``ack`` does.
        ``on_revoked(queues)`` is called, and awaited, before queues are given up: what was handed out can still be
        acknowledged and is committed then. ``on_assigned(queues)`` after queues of a broker were taken on.
        Raises UsageError.
        """
        self._require_open()
        filters = filters_of(topic, tags)
        for name in filters:
            check_topic(name)
        fixed_queues = None if queues is None else [check_queue(queue) for queue in items(queues, "queues")]
        if fixed_queues == []:
            raise UsageError("queues names none: leave it out to read this member's share", group=group)
        for queue in fixed_queues or ():
            if queue.topic not in filters:
                raise UsageError("a queue is of a topic that the consumer does not read", queue=queue)
        listener(on_assigned, "on_assigned")
        listener(on_revoked, "on_revoked")
        for flag, name in ((alone, "alone"), (ordered, "ordered"), (auto_ack, "auto_ack")):
            instance(flag, bool, name)
        consumer = Consumer(
            self._context,
            membership=self._membership,
            group=check_group(group),
            filters=filters,
            start=check_place(start, "where a consumer starts"),
            selection=QueueSelection(tuple(filters), fixed_queues, alone),
            auto_ack=auto_ack,
            ordered=ordered,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._consumers.add(consumer)
        return consumer

    def read(
        self, queue: MessageQueue, first: int, end: int | None = None, *, tags: str = "*"
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages of one queue from offset ``first`` up to, without, ``end``; without one, for ever.

        For nobody's account: no group is joined and no offset is committed. What is not there any more is left out.
        Raises BrokerError, NoSuchTopic, Unavailable.
        """
        self._require_open()
        check_queue(queue)
        first, end = whole(first, "first"), None if end is None else whole(end, "end")
        return read_queue(self._context, queue, first, end, TagFilter.parse(tags))

    async def topic(self, name: str) -> Topic:
        """Returns a topic's queues and where they are, as a name server has them now. Raises NoSuchTopic at once,
        Unavailable."""
        self._require_open()
        check_topic(name)
        return await self._context.routes.refresh(name)

    async def queue_limits(self, queue: MessageQueue) -> tuple[int, int]:
        """Returns the offset of the first message that is still there, and that of the next one to come."""
        self._require_open()
        return await offsets.queue_limits(self._context, check_queue(queue))

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at this time or later."""
        self._require_open()
        timestamp_ms = whole(timestamp_ms, "timestamp_ms", most=MAX_INT64)
        return await offsets.offset_at(self._context, check_queue(queue), timestamp_ms)

    async def close(self) -> None:
        """Wait for what was sent, commit what was finished, take leave of the brokers.

        Repeated calls are one. It goes on when its caller is cancelled. In a consumer's listener it returns at once:
        the end comes after the listener's. Raises what a consumer's listener raises.
        """
        check_loop(self._context.loop)
        if self._closing is None:
            for consumer in tuple(self._consumers):
                consumer._leave_loop()
            self._closing = asyncio.get_running_loop().create_task(self._close(), context=Context())
        if not (self._closing.done() or is_in_listener(self._context)):
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for producer in (*self._producers.values(), *self._closed_producers):
            await producer.close()
        closing = [consumer.close() for consumer in tuple(self._consumers)]
        results = await asyncio.gather(*closing, return_exceptions=True)
        await self._membership.leave_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._context.routes.close()
        await self._context.remoting.close()
        for result in results:
            if isinstance(result, BaseException):  # a listener's
                raise result

    def __repr__(self) -> str:
        return f"<RocketMQ {';'.join(self._name_servers)} {'open' if self._closing is None else 'closed'}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _on_request(self, link: Link, command: Command) -> None:
        self._membership.requested(link, command)

    def _connection_lost(self, address: str) -> None:
        self._context.brokers.connection_lost(address)
        self._membership.connection_lost(address)

    def _route_changed(self) -> None:
        self._membership.route_changed()

    def _fail(self, error: Exception) -> None:
        """A task for heartbeats or routes failed: fail producers and consumers, which would be left out of their
        groups."""
        self._failure = error
        self._context.events.emit("client failed", reason=repr(error))
        for producer in self._producers.values():
            producer._fail(error)
        for consumer in tuple(self._consumers):
            consumer._fail(error)

    def _require_open(self) -> None:
        check_loop(self._context.loop)
        if self._closing is not None:
            raise UsageError("this client is closed")
        if self._failure is not None:
            raise self._failure


def topics(
    name_servers: str | Sequence[str],
    *,
    settings: BrokerClientSettings | None = None,
    events: Events | None = None,
) -> Opening[RocketMQ]:
    """Returns a client of the topics that these name servers have.

    ``name_servers``: ``host:port``, several as a list or separated by ``;`` or ``,``. ``async with
    topics("127.0.0.1:9876") as mq`` or ``mq = await topics(…)``. Nothing is contacted before it is used. Raises
    UsageError.
    """
    addresses = addresses_of(name_servers)
    optional(settings, BrokerClientSettings, "settings")
    optional(events, Events, "events")

    async def start() -> RocketMQ:
        outside = this_machine(events or Events(log_listener()))
        program = f"{platform.node() or 'client'}@{os.getpid()}"
        return RocketMQ(addresses, outside, settings or BrokerClientSettings(), program=program)

    return Opening(start, "topics(…)")
