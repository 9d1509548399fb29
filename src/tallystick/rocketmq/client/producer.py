"""Sends messages: to one writable queue after the other, again when an attempt fails, many at a time.

A broker stores a message that it may then call late for a disk or a slave (``SendResult.status``). An attempt without
a response leaves doubt: the retry may store the message twice (``SendResult.maybe_twice``), and an error that says so
is ``ambiguous``.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from tallystick.codec.records import Buffer
from tallystick.errors import BrokerUnavailable, NoSuchTopic, TallyError, UsageError
from tallystick.rocketmq.client.arguments import check_topic
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.envelope import Envelope, batch_envelope, message_envelope
from tallystick.rocketmq.client.gathering import Gathering
from tallystick.rocketmq.client.sending import SendResult
from tallystick.rocketmq.client.topic import TEMPLATE_TOPIC, QueueChoice, Topic
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.arguments import items
from tallystick.runtime.loops import check_loop

MIN_TIMEOUT_S = 0.001


class Producer:
    """Made by ``RocketMQ.producer``; it works on that client's loop, as long as the client is open."""

    def __init__(self, context: BrokerContext, group: str) -> None:
        self.group = group
        self._context, self._settings = context, context.settings
        self._choice = QueueChoice(context.random.getrandbits(16))
        self._sendings: dict[Envelope, None] = {}  # without response
        self._inflight_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._searches: dict[str, asyncio.Task[None]] = {}
        self._envelopes_without_route: dict[str, list[Envelope]] = {}  # by topic: they wait for its route
        self._failure: Exception | None = None
        self._closed = False
        gathers = self._settings.gather_bytes > 0
        self._gathering = Gathering(context, group, self._start, self._wake) if gathers else None
        self._checked_topic: str | None = None  # the last one that passed: mostly it is the next one's, too

    def __repr__(self) -> str:
        return f"<Producer {self.group} {'closed' if self._closed else 'open'}>"

    async def send(
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
        """Send one message and wait until a broker has stored it.

        Waits first while ``max_inflight_bytes`` have no response. ``wait_stored`` False: the broker answers without
        waiting for disk and slaves. ``queue``: this one and no other, without retries elsewhere. Raises UsageError,
        NoSuchTopic, BrokerError, Unavailable; what is ``ambiguous`` may have been stored.
        """
        message = Message(topic, body, tags, _keys(keys), properties or {}, flag, wait_stored)
        if self._gathering is None or queue is not None:
            envelope = self._envelope(message, queue)
            await self._wait_for_room()
            return await self._start(envelope)
        await self._wait_for_room()
        return await self._gather(message)

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
    ) -> asyncio.Future[SendResult]:
        """Send one message without waiting. Returns a future of the result; raises and fails as ``send``.

        Takes messages beyond the bound on bytes in flight too: await ``drain`` or futures before memory runs short.
        """
        message = Message(topic, body, tags, _keys(keys), properties or {}, flag, wait_stored)
        return self._start(self._envelope(message, queue)) if queue is not None else self._gather(message)

    async def send_batch(
        self, topic: str, messages: Iterable[Message | Buffer], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue, where they stand one after the other: all are stored, or none.

        Together they may be as long as one message. Raises as ``send``.
        """
        self._check(topic)
        envelope = batch_envelope(self._context, self.group, topic, items(messages, "messages"), queue)
        await self._wait_for_room()
        return await self._start(envelope)

    async def send_one_way(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Send one message without a response. Raises UsageError, NoSuchTopic, Unavailable (no route)."""
        envelope = self._envelope(Message(topic, body, tags, _keys(keys), properties or {}), None)
        route = await self._find(topic)
        queue, address = self._target(envelope, route)
        self._context.remoting.tell(address, envelope.command(queue, one_way=True))

    async def drain(self) -> None:
        """Wait until everything sent so far has its response, good or bad."""
        check_loop(self._context.loop)
        if self._gathering is not None:
            self._gathering.send()
        if futures := [each.future for each in self._sendings]:
            await asyncio.wait(futures)  # which leaves them alone when it is cancelled

    def _fail(self, error: Exception) -> None:
        """Take no more messages, for this reason; messages under way go on."""
        self._failure = error

    async def close(self) -> None:
        """Take no more messages and wait for the responses of those under way, at most until their time-outs.

        Those that still wait for room do not go: UsageError for each."""
        check_loop(self._context.loop)
        self._closed = True
        await self.drain()

    def _gather(self, message: Message) -> asyncio.Future[SendResult]:
        """Send a message to any queue, with others of this turn of the loop if the settings say so."""
        if self._gathering is not None:
            self._check(message.topic)
            if (future := self._gathering.take(message)) is not None:
                return future
        return self._start(self._envelope(message, None))

    def _envelope(self, message: Message, queue: MessageQueue | None) -> Envelope:
        self._check(message.topic)
        return message_envelope(self._context, self.group, message, queue)

    def _check(self, topic: str) -> None:
        check_loop(self._context.loop)
        self._require_open()
        if topic is not self._checked_topic:
            check_topic(topic)
            self._checked_topic = topic

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("this producer is closed")
        if self._failure is not None:
            raise self._failure

    # On the way

    def _start(self, envelope: Envelope) -> asyncio.Future[SendResult]:
        now = self._context.clock.now()
        envelope.sending.deadline = now + self._settings.send_timeout_s
        self._sendings[envelope] = None
        self._inflight_bytes += len(envelope.body)
        topic = self._context.routes.cached(envelope.topic)
        if topic is not None and topic.writable and envelope.topic not in self._envelopes_without_route:
            self._attempt(envelope, topic, now)
        else:
            self._await_route(envelope)
        return envelope.future

    def _attempt_again(self, envelope: Envelope) -> None:
        size = len(envelope.body)
        envelope.leave_out_given_up()
        self._inflight_bytes += len(envelope.body) - size
        self._attempt(envelope, self._context.routes.cached(envelope.topic), self._context.clock.now())

    def _attempt(self, envelope: Envelope, topic: Topic | None, now: float) -> None:
        """Send a message to the next queue, unless its caller has given it up."""
        if envelope.future.cancelled():
            self._drop(envelope)
            return
        try:
            if topic is None:
                raise NoSuchTopic(topic=envelope.topic)
            envelope.queue, address = self._target(envelope, topic)
            left_s, on_response = envelope.sending.deadline - now, functools.partial(self._responded, envelope)
            command = envelope.command(envelope.queue)
            self._context.remoting.ask_nowait(address, command, max(left_s, MIN_TIMEOUT_S), on_response)
        except Exception as error:  # nowhere to send it, now or at all; or a bug, but nobody may wait for ever
            self._settle(envelope, envelope.sending.failure or error)

    def _target(self, envelope: Envelope, topic: Topic) -> tuple[MessageQueue, str]:
        queue = envelope.fixed_queue
        if queue is None:
            if not topic.writable:
                raise BrokerUnavailable("no broker takes messages for this topic now", topic=topic.name)
            queue = self._choice.choose(topic.writable, envelope.sending.avoid)
        address = topic.master(queue.broker)
        if address is None:
            raise BrokerUnavailable("this queue has no master now", topic=topic.name, broker=queue.broker)
        return queue, address

    def _responded(self, envelope: Envelope, result: Command | TallyError) -> None:
        assert envelope.queue is not None
        send_result = envelope.sending.responded(envelope.queue, result, self._context.clock.now())
        if send_result is not None:
            self._settle(envelope, send_result)
            return
        self._context.routes.refresh_soon(envelope.topic)
        failure = envelope.sending.failure
        assert failure is not None
        if envelope.sending.may_retry and not self._closed:
            self._context.events.emit("send retried", topic=envelope.topic, reason=str(failure))
            self._attempt_again(envelope)
        else:
            self._settle(envelope, failure)

    def _settle(self, envelope: Envelope, result: SendResult | Exception) -> None:
        if not envelope.future.done():  # the caller may have given up
            if isinstance(result, Exception):
                envelope.future.set_exception(result)
            else:
                envelope.future.set_result(result)
        self._drop(envelope)

    def _drop(self, envelope: Envelope) -> None:
        del self._sendings[envelope]
        self._inflight_bytes -= len(envelope.body)
        if self._room:
            self._wake()

    # Waiting for a route

    async def _find(self, name: str) -> Topic:
        """Returns the topic's route or, for one that does not exist yet, that of the template, with its queues. Both
        may be missing for a moment, at a name server that has just started."""
        wait_s = min(self._settings.topic_wait_s, self._settings.send_timeout_s / 2)
        return await self._context.routes.patiently(lambda: self._find_now(name), wait_s)

    async def _find_now(self, name: str) -> Topic:
        routes = self._context.routes
        try:
            topic = routes.cached(name) or await routes.refresh(name)
            return topic if topic.writable else await routes.refresh(name)
        except NoSuchTopic as error:
            try:
                template = routes.cached(TEMPLATE_TOPIC) or await routes.refresh(TEMPLATE_TOPIC)
            except NoSuchTopic:
                raise error from None
            return routes.stand_in(name, template, self._settings.new_topic_queues)

    def _await_route(self, envelope: Envelope) -> None:
        name = envelope.topic
        self._envelopes_without_route.setdefault(name, []).append(envelope)
        if name not in self._searches:
            self._searches[name] = asyncio.create_task(self._find_and_send(name))

    async def _find_and_send(self, name: str) -> None:
        failure: Exception | None = None
        try:
            await self._find(name)
        except Exception as error:  # whatever it is, the messages that wait must hear of it
            failure = error
        finally:
            del self._searches[name]
        for envelope in self._envelopes_without_route.pop(name):
            if failure is not None:
                self._settle(envelope, failure)
            else:
                self._attempt_again(envelope)

    # Room

    def _has_room(self) -> bool:
        gathered_bytes = self._gathering.bytes if self._gathering is not None else 0
        return self._inflight_bytes + gathered_bytes < self._settings.max_inflight_bytes

    async def _wait_for_room(self) -> None:
        if self._has_room() and not self._room:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(turn)
        try:
            await turn
            self._require_open()  # nobody waits for what would go now
        finally:  # also when the caller gave up: then the turn is the next one's
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """One at a time: it adds its bytes before the next is let in."""
        while self._room and self._has_room():
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def _keys(keys: str | Sequence[str]) -> Sequence[str]:
    return (keys,) if isinstance(keys, str) else items(keys, "keys") if keys else ()
