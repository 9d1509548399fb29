"""The sends of one turn of the event loop to one topic, as one batch.

A request costs several times what the bytes of a message do. Whoever sends many at a time, each with a call, gets what
``send_batch`` gives: the batch goes when the turn is over, so nothing waits for others to come, and each call gets the
result of its message. Source: the original's ``ProduceAccumulator``, which does wait for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.envelope import (
    Envelope,
    Member,
    checked_body,
    content_of,
    gathered_envelope,
    is_compressed,
)
from tallystick.rocketmq.client.sending import SendResult
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.values import DLQ_PREFIX, RETRY_PREFIX

# Brokers bound a batch by its records, and ours by 14,000 messages: what they would refuse together goes apart.
_RECORD_BYTES = 128  # of a member's record, beside its body, properties and topic; or less
_MOST_MEMBERS = 10_000


class _Batch(msgspec.Struct, eq=False):
    members: list[Member]
    size: int = 0


class Gathering:
    """``bytes``: those of all messages that wait for the end of the turn."""

    def __init__(
        self,
        context: BrokerContext,
        group: str,
        start: Callable[[Envelope], object],
        dropped: Callable[[], None],
    ) -> None:
        """``start`` sends an envelope; its future is looked at here. ``dropped`` is called when messages wait no more
        of which none goes: nobody else tells that there is room."""
        self._context, self._group, self._start, self._dropped = context, group, start, dropped
        self._most_bytes = context.settings.gather_bytes
        self._batches: dict[tuple[str, bool], _Batch] = {}  # by topic, and by whether disk and slaves are waited for
        self.bytes = 0

    def take(self, message: Message) -> asyncio.Future[SendResult] | None:
        """Take a message. Returns the future of its result, None if it is one that goes alone. Raises UsageError for a
        message that no broker takes."""
        context, body = self._context, checked_body(self._context, message)
        is_inner = message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))  # brokers take no batch there
        if is_inner or len(body) >= self._most_bytes or is_compressed(context.settings, body):
            return None
        message_id = context.ids.next(context.clock.wall_ms())
        content = content_of(message, body, message_id)
        size = len(body) + len(content[2]) + len(message.topic) + _RECORD_BYTES
        member = Member(message, message_id, content, context.loop.create_future())
        key = message.topic, message.wait_stored
        batch = self._batches.get(key)
        if batch is not None and (batch.size + size > self._most_bytes or len(batch.members) == _MOST_MEMBERS):
            self._send(key)
            batch = None
        if batch is None:
            if not self._batches:
                context.loop.call_soon(self.send)
            batch = self._batches[key] = _Batch([])
        batch.members.append(member)
        batch.size += size
        self.bytes += size
        return member.future

    def send(self) -> None:
        """Send what was gathered."""
        while self._batches:
            self._send(next(iter(self._batches)))

    def _send(self, key: tuple[str, bool]) -> None:
        batch = self._batches.pop(key)
        self.bytes -= batch.size
        members = [member for member in batch.members if not member.future.done()]  # others were given up
        if not members:
            self._dropped()
            return
        try:
            envelope = gathered_envelope(self._context, self._group, members)
        except Exception as error:  # whatever it is, nobody may wait for ever, and other batches go
            for member in members:
                member.future.set_exception(error)
            self._dropped()
            return
        envelope.future.add_done_callback(lambda future: _tell(members, future))
        self._start(envelope)


def _tell(members: list[Member], outcome: asyncio.Future[SendResult]) -> None:
    """Tell each message that the last attempt had what became of it, unless it was given up."""
    if outcome.cancelled():  # as all of them were
        return
    if (error := outcome.exception()) is not None:
        for member in members:
            if not member.future.done():
                member.future.set_exception(error)
        return
    whole, count = outcome.result(), len(members)
    offset_ids = whole.offset_id.split(",")
    if len(offset_ids) != count:
        offset_ids = [whole.offset_id] * count
    for number, (member, offset_id) in enumerate(zip(members, offset_ids, strict=True), whole.queue_offset):
        if not member.future.done():
            member.future.set_result(
                SendResult(whole.status, member.message_id, offset_id, whole.queue, number, whole.maybe_twice)
            )
