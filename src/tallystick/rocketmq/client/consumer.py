"""Reads topics for a group: their queues, or this member's share of them.

A message that was handed out is *unacknowledged* until the loop asks for the next one, or ``ack`` says that it is done,
or ``nack`` gave it back and its broker has stored it once more. What is committed for a queue, every few seconds, by
``commit`` and at the end, is the offset of its lowest unacknowledged message: after a crash that one comes again, and
whatever was acknowledged behind it. A loop that is left, by an error, by cancelling or by ``break``, has not finished
what it had at hand.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Set
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tallystick.errors import UsageError
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.arguments import FROM_WHERE, check_place
from tallystick.rocketmq.client.assignment import Assignment
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.delivery import DeliveryCore
from tallystick.rocketmq.client.locking import QueueLocks
from tallystick.rocketmq.client.membership import Membership
from tallystick.rocketmq.client.ready import ReadyMessages
from tallystick.rocketmq.client.rebalancing import QueueListener, Rebalancing, is_in_listener
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.sharing import QueueSelection, Sharing
from tallystick.rocketmq.client.subscription import ALL_TAGS, TagFilter
from tallystick.rocketmq.client.unacked import UnackedBounds
from tallystick.rocketmq.wire.values import ConsumerGroup, MessageQueue
from tallystick.runtime.arguments import instance, items, number, whole
from tallystick.runtime.loops import check_loop
from tallystick.runtime.tasks import together, watch

QUEUES_AT_ONCE = 256  # that are asked where they end, or where to go on


@dataclass(frozen=True)
class ConsumerLag:
    """How many messages are stored and not acknowledged by the group, by queue. Messages that its tags leave out are
    counted."""

    by_queue: Mapping[MessageQueue, int]

    @property
    def total(self) -> int:
        """The lag of all queues."""
        return sum(self.by_queue.values())


class Consumer:
    """Made by ``RocketMQ.consumer``. Iterate over it; it begins with the first message that is asked for, or with
    ``start``."""

    def __init__(
        self,
        context: BrokerContext,
        *,
        membership: Membership,
        group: str,
        filters: Mapping[str, TagFilter],
        start: str | int,
        selection: QueueSelection,
        auto_ack: bool,
        ordered: bool,
        on_assigned: QueueListener | None,
        on_revoked: QueueListener | None,
    ) -> None:
        self.group, self.topics = group, tuple(filters)
        self._context, self._membership, self._filters, self._from = context, membership, filters, start
        self._ordered = ordered
        settings = context.settings
        bounds = UnackedBounds.of(settings)
        self._core = DeliveryCore(bounds, settings.nack_delays_s, auto_ack=auto_ack, ordered=ordered)
        self._ready = ReadyMessages(context.events, group, self._core)
        self._assignment = Assignment(context, group, self._core, self._ready)
        self._sharing = Sharing(context, group, selection, self._fail)
        self._rebalancing = Rebalancing(
            context,
            group=group,
            filters=filters,
            sharing=self._sharing,
            assignment=self._assignment,
            locks=QueueLocks(context, group) if ordered and selection.is_shared else None,
            start=start,
            gives_back=selection.is_shared and not ordered,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._entered = False
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[Any] | None = None  # in order: who reads, until it has left the loop

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues of its topics that this member reads now, without those of the group's retry topic."""
        return [queue for queue in self._assignment if queue.topic in self._filters]

    def __repr__(self) -> str:
        state = (
            "closed" if self._closing is not None else f"{len(self.queues)} queues" if self._tasks else "not started"
        )
        return f"<Consumer {self.group} of {', '.join(self.topics)}: {state}>"

    async def start(self) -> None:
        """Join the group and begin to read. Repeated calls are one; it goes on when its caller is cancelled.

        Raises NoSuchTopic (after ``topic_wait_s``), Unavailable, UsageError (one group twice): then it is closed.
        Raises UsageError when it was closed before.
        """
        self._require_open()
        if self._starting is None:
            self._starting = self._begin(self._start())
        await asyncio.wait([self._starting])
        if not self._starting.cancelled() and (error := self._starting.exception()) is not None:
            await self.close()
            raise error

    def _require_open(self) -> None:
        check_loop(self._context.loop)
        if self._closing is not None:
            raise UsageError("this consumer is closed: make another one with mq.consumer(…)", group=self.group)

    async def _start(self) -> None:
        self._begin(self._keep_committing())
        self._begin(self._assignment.keep_sending_back())
        for topic in self.topics:
            await self._context.routes.await_known(topic)
        if self._membership.has_consumer(self.group):
            raise UsageError("this client has a consumer of this group already", group=self.group)
        self._entered = True
        await self._membership.enter(self._as_member(), self._rebalancing.changed.set)
        await self._rebalancing.share_out()
        self._begin(self._rebalancing.keep_sharing())

    def _fail(self, error: Exception) -> None:
        """Fail the loop with an error, behind the messages that are here."""
        self._ready.fail(error)

    async def close(self) -> None:
        """Stop reading, commit what was acknowledged, leave the group. What cannot be committed is an event.

        What is at hand is not acknowledged: whoever closes may be an error that its processing raised. What waits to be
        given back is given back now. Repeated calls are one; it goes on when its caller is cancelled. In a listener it
        returns at once: the end comes after the listener's.
        """
        check_loop(self._context.loop)
        self._leave_loop()
        if self._closing is None:
            at_work = self._at_work()
            self._ready.close()
            self._closing = asyncio.get_running_loop().create_task(self._close(at_work), context=Context())
        if not (self._closing.done() or is_in_listener(self._context)):  # what a listener raised is told once
            await asyncio.shield(self._closing)
        await self._unlock_rest()

    def _leave_loop(self) -> None:
        """Who calls this closes the consumer: if that is its loop, it does not finish what it has at hand."""
        if self._reader is asyncio.current_task():
            self._reader = None

    def _at_work(self) -> set[MessageQueue]:
        """Returns the queues of which the loop has a message that it has not finished: no other member may read them
        meanwhile."""
        if self._reader is None or self._reader.done():
            return set()
        return {core.queue for core in self._core.at_work([self._assignment[queue] for queue in self._assignment])}

    async def _close(self, at_work: Set[MessageQueue]) -> None:
        for task in self._tasks:  # among them perhaps who closes: a listener
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._rebalancing.give_up_all(at_work)
        finally:
            if self._entered:
                await self._membership.leave(self.group)
        if self._reader is None:  # the loop has ended meanwhile
            await self._rebalancing.unlock_all()
        else:  # it asks for the next message, or closes, or ends without a word
            self._reader.add_done_callback(self._loop_ended)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Messages

    def __aiter__(self) -> Self:
        """Begin a loop. What an earlier loop had at hand and did not finish is delivered again first.

        Raises UsageError when it is closed.
        """
        self._require_open()
        self._core.begin_loop()
        return self

    def __anext__(self) -> Coroutine[Any, Any, ReceivedMessage]:
        """Returns the next message, and waits for it if there is none. Ends when the consumer is closed.

        Raises why the consumer cannot go on: BrokerError too, when all brokers of the topic refuse it from its start
        on, as a group that does not exist.
        """
        return self._next(_loop_task())

    async def _next(self, loop_task: asyncio.Task[Any] | None) -> ReceivedMessage:
        core = self._core
        core.finish()
        if core.room_made:
            self._ready.make_room()
        if not core.ready and not await self._await_ready():
            await self._end_loop()
            raise StopAsyncIteration
        if self._ordered:
            self._reader = loop_task
        return core.take()

    async def _end_loop(self) -> None:
        """What the loop had at hand when somebody else closed the consumer is finished: others may have its queue."""
        self._reader = None
        await self._unlock_rest()

    def _loop_ended(self, task: asyncio.Task[Any]) -> None:
        if self._reader is task:
            self._begin(self._end_loop())

    async def _unlock_rest(self) -> None:
        """When it is closed, and its loop is at no message any more."""
        if self._reader is None and self._closing is not None and self._closing.done():
            await self._rebalancing.unlock_all()

    def batches(
        self, max_messages: int = 500, *, max_wait_s: float = 1.0
    ) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Lists of messages: ``max_messages``, or what has come ``max_wait_s`` after the first, one at least.

        When the loop's body has finished a list it is acknowledged, but for what was given back, and committed. Ends
        and raises as the loop over single messages does. Raises UsageError for an ordered consumer and a closed one.
        """
        whole(max_messages, "max_messages", least=1)
        number(max_wait_s, "max_wait_s")
        self._require_open()
        if self._ordered:
            raise UsageError("an ordered consumer hands out one message of a queue at a time", group=self.group)
        return self._batches(max_messages, max_wait_s)

    async def _batches(self, max_messages: int, max_wait_s: float) -> AsyncGenerator[list[ReceivedMessage], None]:
        self._core.begin_loop()
        while await self._await_ready():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max_wait_s):
                    await self._ready.wait_for(max_messages)
            if not self._core.ready or self._closing is not None:
                continue
            yield self._core.take_batch(max_messages)
            self._core.finish()
            self._ready.make_room()
            await self._assignment.commit_or_tell()

    def ack(self, message: ReceivedMessage) -> None:
        """The processing of a message is done, whatever becomes of the loop. Messages may be acknowledged in any order;
        the next commit tells the broker.

        A message that this consumer does not have any more, as its queue was taken away or sought, is an event.
        """
        check_loop(self._context.loop)
        self._ready.acknowledged(self._core.ack(instance(message, ReceivedMessage, "message")), message)

    def nack(self, message: ReceivedMessage, *, delay_s: float | None = None) -> None:
        """The processing of a message failed: it is to be delivered again, after ``delay_s``, by default
        ``nack_delays_s``.

        It goes to the retry topic of the group, and to its dead letters after too many times. The offset passes over it
        when the broker has stored it there. In ordered and unshared reading, or when no broker takes it, this consumer
        delivers it again itself. Raises UsageError.
        """
        check_loop(self._context.loop)
        instance(message, ReceivedMessage, "message")
        if delay_s is not None:
            number(delay_s, "delay_s")
        self._ready.acknowledged(self._core.nack(message, self._context.clock.now(), delay_s), message)
        self._assignment.nacked()

    async def commit(self) -> None:
        """Commit the offset of the lowest unacknowledged message of each queue, and wait until the brokers have it.

        What is at hand and not acknowledged is not committed. Raises BrokerError, Unavailable (ambiguous).
        """
        check_loop(self._context.loop)
        await self._assignment.commit()

    # Where it stands

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that it will hand out. Raises UsageError for a queue that it does not
        read."""
        return self._core.position(self._assignment[queue])

    async def lag(self) -> ConsumerLag:
        """Returns how many messages each queue has from its lowest unacknowledged one on. Raises BrokerError,
        Unavailable."""
        check_loop(self._context.loop)
        queues = list(self._assignment)
        ends = await together((offsets.end_offset(self._context, queue) for queue in queues), QUEUES_AT_ONCE)
        there = [(queue, end) for queue, end in zip(queues, ends, strict=True) if queue in self._assignment]
        return ConsumerLag({queue: max(0, end - self._assignment[queue].committable) for queue, end in there})

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset. Messages of the queue that were handed out before count no more, nor do their
        acknowledgements. Brokers get the offset with the next commit. Raises UsageError."""
        check_loop(self._context.loop)
        self._assignment.seek(queue, whole(offset, "offset"))

    async def seek_to(self, where: str | int, *, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on at the ``first`` message, behind the ``last``, or at a time in ms: in these queues, or all ``queues``.

        Raises BrokerError, Unavailable, UsageError.
        """
        check_loop(self._context.loop)
        check_place(where, "a place in a queue")
        targets = self.queues if queues is None else items(queues, "queues")
        for queue in targets:
            self._assignment[queue]  # or it raises
        searches = (offsets.offset_of(self._context, queue, where) for queue in targets)
        target_offsets = await together(searches, QUEUES_AT_ONCE)
        for queue, offset in zip(targets, target_offsets, strict=True):
            if queue in self._assignment:
                self._assignment.seek(queue, offset)

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull and hand out nothing more of these queues, or of all that it reads now, until ``resume``. Raises
        UsageError."""
        check_loop(self._context.loop)
        targets = self._assignment if queues is None else items(queues, "queues")
        self._core.pause([self._assignment[queue] for queue in targets])

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with these queues, or with all. Raises UsageError for a queue that it does not read."""
        check_loop(self._context.loop)
        for queue in self._assignment if queues is None else items(queues, "queues"):
            self._core.resume(self._assignment[queue])
        self._ready.let_readers_go_on()
        self._ready.arrived.set()

    # Inside

    async def _await_ready(self) -> bool:
        """Start if that is still to be done, and wait for a message: see ``ReadyMessages.wait``."""
        check_loop(self._context.loop)
        if self._closing is None and (self._starting is None or not self._starting.done()):
            await self.start()
        return await self._ready.wait()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        watch([task], self._fail)
        return task

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(self._context.settings.commit_interval_s)
            await self._assignment.commit_or_tell()

    def _as_member(self) -> ConsumerGroup:
        """As heartbeats say it."""
        now_ms = self._context.clock.wall_ms()
        filters = dict(self._filters)
        if self._sharing.retry_topic is not None:
            filters[self._sharing.retry_topic] = ALL_TAGS
        return ConsumerGroup(
            self.group,
            consume_from=FROM_WHERE.get(str(self._from), "CONSUME_FROM_TIMESTAMP"),
            subscriptions=tuple(tags.subscription(topic, now_ms) for topic, tags in filters.items()),
        )


def _loop_task() -> asyncio.Task[Any] | None:
    """Whose loop calls ``__anext__``. Another task may await the message: ``wait_for`` and ``create_task`` make one,
    which has ended when the loop is at the message. None: another thread calls."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
