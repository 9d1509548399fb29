"""Reads a topic for a group: its queues, or this member's share of them, in order within each queue.

A message counts as consumed when the loop asks for the next one, or when ``commit`` is called while it is at hand. A
loop that is left, by an error, by cancelling or by ``break``, has not finished its last message: that one is not
committed, and comes again. Positions are committed every few seconds and at the end: after a crash, messages since the
last commit come again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Sequence
from itertools import repeat
from types import TracebackType
from typing import Any, Self

from tallystick.errors import BrokerError, TallyError, Unavailable, UsageError
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.answers import checked
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.membership import Membership
from tallystick.rocketmq.client.pulling import Pull, QueueReader
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.client.topic import Topic, share
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerIds
from tallystick.rocketmq.wire.headers import ConsumerGroupHeader
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import ConsumerGroup, MessageQueue, RequestCode
from tallystick.runtime.tasks import watch

UNSHARED_S = 1.0  # before queues are shared out again when that failed: a time-out, a heartbeat that was lost
REFUSED_S = 15.0  # from its start, by all brokers: then a consumer raises that; a heartbeat that was lost is made good

_FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


class Consumer:
    """Made by ``RocketMQ.consumer``. Iterate over it; it begins with the first message asked for, or ``start``."""

    def __init__(
        self,
        context: BrokerContext,
        membership: Membership,
        group: str,
        topic: str,
        tags: str,
        start: str | int,
        queues: Sequence[MessageQueue] | None,
        alone: bool,
    ) -> None:
        if isinstance(start, str) and start not in _FROM_WHERE:
            raise UsageError("a consumer starts at first, last, or a time in ms", start=start)
        self.group, self.topic = group, topic
        self._context, self._membership, self._from = context, membership, start
        self._filter = TagFilter.parse(tags)
        self._fixed = list(queues) if queues is not None else None
        self._alone = alone
        self._readers: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._ready: deque[tuple[QueueReader, ReceivedMessage]] = deque()
        self._ready_bytes = 0
        self._crowded = False  # readers wait for room
        self._arrived, self._room, self._rebalance = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._at_hand: tuple[QueueReader, ReceivedMessage] | None = None  # taken, and perhaps being worked on
        self._committed: dict[MessageQueue, int] = {}
        self._failure: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._entered = self._closed = False
        self._shared = self._member = True
        self._admitted = False  # a broker knew the group, or its offsets
        self._refused_since: float | None = None  # by all brokers, with nothing else between

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that this member reads now."""
        return sorted(self._readers)

    async def start(self) -> None:
        """Join the group and begin to read.

        Raises NoSuchTopic (after ``topic_wait_s``), Unavailable, UsageError (one group twice).
        """
        if self._tasks or self._closed:
            return
        self._begin(self._keep_committing())
        try:
            await self._context.routes.await_known(self.topic)
            if self._membership.has_consumer(self.group):
                raise UsageError("this client has a consumer of this group already", group=self.group)
            start = _FROM_WHERE.get(str(self._from), "CONSUME_FROM_TIMESTAMP")
            subscription = self._filter.subscription(self.topic, self._context.clock.wall_ms())
            self._entered = True
            group = ConsumerGroup(self.group, consume_from=start, subscriptions=(subscription,))
            await self._membership.enter(group, self._rebalance.set)
            await self._share_out()
        except BaseException:
            await self.close()
            raise
        self._begin(self._keep_sharing())

    def fail(self, error: Exception) -> None:
        """Whoever iterates gets the error, behind the messages that are here."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()

    async def commit(self) -> None:
        """Store where the group stands, the message at hand included. Raises BrokerError, Unavailable."""
        self._deal_with_the_one_at_hand()
        await self._commit_all(tuple(reader for reader, _ in self._readers.values()))

    async def close(self) -> None:
        """Stop reading, commit what was finished, leave the group. What cannot be committed is an event.

        The message at hand is not committed: whoever closes may be an error that its processing raised.
        """
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        tasks = [*self._tasks, *(task for _, task in self._readers.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._commit_all(tuple(reader for reader, _ in self._readers.values()))
        except TallyError as error:
            self._tell_uncommitted(error)
        self._readers.clear()
        if self._entered:
            await self._membership.leave(self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        """Begin a loop. The message at hand, which an earlier loop did not finish, is delivered again first."""
        if self._at_hand is not None:
            self._ready.appendleft(self._at_hand)
            self._ready_bytes += self._at_hand[1].stored.size
            self._at_hand = None
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, sooner or later. Ends when the consumer is closed; raises why it cannot go on: BrokerError
        too when all brokers of the topic refuse it from its start on, as a group that is not there."""
        self._deal_with_the_one_at_hand()
        if not self._tasks:
            await self.start()
        while not self._ready or self._closed:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        _, message = self._at_hand = self._ready.popleft()
        self._ready_bytes -= message.stored.size
        if self._crowded and self._ready_bytes < self._context.settings.prefetch_bytes:
            self._make_room()
        return message

    def _deal_with_the_one_at_hand(self) -> None:
        if self._at_hand is not None:
            reader, message = self._at_hand
            self._at_hand = None
            reader.undelivered -= 1
            reader.done = message.offset + 1

    # From the readers

    async def _deliver(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        self._ready.extend(zip(repeat(reader), messages, strict=False))
        self._ready_bytes += sum([message.stored.size for message in messages])
        self._arrived.set()
        while self._ready_bytes >= self._context.settings.prefetch_bytes:
            self._crowded = True
            self._room.clear()
            await self._room.wait()

    def _make_room(self) -> None:
        self._crowded = False
        self._room.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        watch([task], self.fail)

    # Which queues

    async def _keep_sharing(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                settings = self._context.settings
                async with asyncio.timeout(
                    settings.rebalance_s if self._shared else min(UNSHARED_S, settings.rebalance_s)
                ):
                    await self._rebalance.wait()
            self._rebalance.clear()
            self._shared = False
            try:
                await self._share_out()
            except BrokerError as error:
                self._refused(error)
            except TallyError as error:
                self._refused_since = None
                self._context.events.emit("queues not shared out", group=self.group, reason=str(error))

    def _refused(self, refusal: BrokerError, *, by_all: bool = True) -> None:
        """A broker that restarted has not heard the group's heartbeats yet; but one that never lets it in is told."""
        self._context.events.emit("queues not shared out", group=self.group, reason=str(refusal))
        now = self._context.clock.now()
        if self._admitted or not by_all:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since >= REFUSED_S:
            self.fail(refusal)

    async def _share_out(self) -> None:
        """``_shared`` says whether it found everything as it is to be; else it is done again soon."""
        self._shared = False
        mine = await self._my_queues()
        if mine is None:
            return
        lost = [reader for queue, (reader, _) in self._readers.items() if queue not in mine]
        if lost:
            await self._give_up(lost)
        gained = [queue for queue in mine if queue not in self._readers]
        failure: Unavailable | None = None
        for queue in gained:
            try:
                await self._take_on(queue)
            except Unavailable as error:  # the rest of the topic can be read; this one is tried again
                failure = error
        if lost or gained:
            self._context.events.emit("queues shared out", group=self.group, queues=len(self._readers))
        self._shared = self._member and failure is None
        if failure is not None:
            if not self._readers:
                raise failure
            self._context.events.emit("queue not reached", group=self.group, reason=str(failure))

    async def _take_on(self, queue: MessageQueue) -> None:
        first = await offsets.first_offset(self._context, self.group, queue, self._from)
        self._admitted = True
        reader = QueueReader(self._context, self.group, Pull(queue, self._filter, first), self._deliver)
        task = asyncio.create_task(reader.run())
        watch([task], self.fail)
        self._readers[queue] = (reader, task)
        self._committed[queue] = first

    async def _my_queues(self) -> list[MessageQueue] | None:
        """None: nobody can say now; all stays as it is."""
        self._member = True
        if self._fixed is not None:
            return self._fixed
        topic = await self._context.routes.find(self.topic)
        if self._alone or not topic.readable:
            return list(topic.readable)
        answer = await self._ask_for_members(topic)
        if answer is None:
            return None
        ids = dialect.read_as(bytes(answer.body), ConsumerIds).ids
        self._member = self._context.client_id in ids  # else a heartbeat was lost, and the next one is on its way
        return share(topic.readable, ids, self._context.client_id)

    async def _ask_for_members(self, topic: Topic) -> Command | None:
        """Any broker of the topic that heard the group's heartbeats knows it. Returns None if none does."""
        refusal: BrokerError | None = None
        failure: Unavailable | None = None
        for queue in {queue.broker: queue for queue in reversed(topic.readable)}.values():
            try:
                return checked(
                    await offsets.ask_broker(
                        self._context, queue, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(self.group)
                    ),
                    group=self.group,
                )
            except BrokerError as error:
                refusal = error
            except Unavailable as error:
                failure = error
        if refusal is not None:
            self._refused(refusal, by_all=failure is None)
            return None
        assert failure is not None, "the topic has a queue"
        raise failure

    async def _give_up(self, lost: Sequence[QueueReader]) -> None:
        """Commit what was done, and forget what was not: whoever has the queue next gets it."""
        if self._at_hand is not None and self._at_hand[0] in lost:
            self._at_hand = None
        for reader in lost:
            _, task = self._readers.pop(reader.queue)
            task.cancel()
        self._ready = deque((reader, message) for reader, message in self._ready if reader not in lost)
        self._ready_bytes = sum(message.stored.size for _, message in self._ready)
        self._make_room()
        try:
            await self._commit_all(lost)
        except TallyError as error:
            self._tell_uncommitted(error)

    # Where the group stands

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(self._context.settings.commit_interval_s)
            try:
                await self._commit_all([reader for reader, _ in self._readers.values()])
            except TallyError as error:
                self._tell_uncommitted(error)

    async def _commit_all(self, readers: Sequence[QueueReader]) -> None:
        """All at once, each by itself: their brokers may differ."""
        results = await asyncio.gather(*(self._commit_one(reader) for reader in readers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _commit_one(self, reader: QueueReader) -> None:
        position = reader.position
        if self._committed.get(reader.queue) != position:
            await offsets.commit(self._context, self.group, reader.queue, position)
            self._committed[reader.queue] = position

    def _tell_uncommitted(self, error: TallyError) -> None:
        self._context.events.emit("not committed", group=self.group, topic=self.topic, reason=str(error))
