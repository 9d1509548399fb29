"""A message or batch that is checked and ready to be sent to any queue, with the outcome so far."""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections.abc import Sequence
from typing import cast

import msgspec

from tallystick.codec.records import Buffer, Content
from tallystick.errors import UsageError
from tallystick.rocketmq.client.arguments import check_message, check_queue
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.sending import SendingCore, SendResult
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import TEMPLATE_TOPIC
from tallystick.rocketmq.wire.record import Message, encode_batch, encode_plain_batch
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.send_form import SendForm
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, SysFlag
from tallystick.runtime.arguments import payload_bytes

_BATCH, _SINGLE = int(RequestCode.SEND_BATCH_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)  # plain numbers: per message
_COMPRESSED = int(SysFlag.COMPRESSED | SysFlag.ZLIB)


class Envelope(msgspec.Struct, eq=False):
    """``queue`` is that of the attempt under way, ``fixed_queue`` the only one that the caller allows, ``members`` what
    was gathered in it."""

    future: asyncio.Future[SendResult]
    sending: SendingCore
    group: str
    topic: str
    batch: bool
    new_topic_queues: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    body: bytes
    fixed_queue: MessageQueue | None
    queue: MessageQueue | None = None
    members: list[Member] = msgspec.field(default_factory=list)

    def leave_out_given_up(self) -> None:
        """Leave out gathered messages that were given up, before another attempt; without any other all of it is."""
        if not any([member.future.done() for member in self.members]):
            return
        self.members[:] = [member for member in self.members if not member.future.done()]
        if not self.members:
            self.future.cancel()
        else:
            self.body = encode_batch([member.content for member in self.members])

    def command(self, queue: MessageQueue, *, one_way: bool = False) -> Command:
        form = _form(self.group, self.topic, self.batch, self.new_topic_queues, queue.queue_id, queue.broker)
        fields = form.fill(self.sys_flag, self.born_timestamp, self.flag, self.properties)
        return request(_BATCH if self.batch else _SINGLE, fields, self.body, one_way=one_way)


class Member(msgspec.Struct, eq=False):
    """A checked message that becomes one of a batch, with the future of its result."""

    message: Message
    message_id: str
    content: Content
    future: asyncio.Future[SendResult]


def message_envelope(context: BrokerContext, group: str, message: Message, queue: MessageQueue | None) -> Envelope:
    """Returns the envelope of a message. Raises UsageError for a message that no broker takes."""
    body, sys_flag, now_ms = checked_body(context, message), 0, context.clock.wall_ms()
    if is_compressed(context.settings, body):
        body, sys_flag = zlib.compress(body), _COMPRESSED
    return _envelope(context, group, message, context.ids.next(now_ms), False, sys_flag, now_ms, body, queue)


def checked_body(context: BrokerContext, message: Message) -> bytes:
    """Returns the body of a message. Raises UsageError for a message that no broker takes."""
    if _has_more(message):
        check_message(message)
    settings, body = context.settings, payload_bytes(message.body, "a message's body")
    if not 0 < len(body) <= settings.max_message_bytes:
        raise UsageError(f"a message's body has 1 to {settings.max_message_bytes} bytes", bytes=len(body))
    return body


def is_compressed(settings: BrokerClientSettings, body: bytes) -> bool:
    """Whether a body is sent compressed."""
    return 0 < settings.compress_above_bytes <= len(body)


def batch_envelope(
    context: BrokerContext, group: str, topic: str, members: Sequence[Message | Buffer], queue: MessageQueue | None
) -> Envelope:
    """Returns the envelope of a batch: its members are messages, or their bodies. Raises UsageError for no members,
    one of another topic, and one, or a sum of them, that no broker takes."""
    bodies = _plain_bodies(members, topic)
    if not members:
        raise UsageError("a batch has at least one message", topic=topic)
    now_ms, wait_stored = context.clock.wall_ms(), True
    if bodies is not None:
        if not all(bodies):
            raise UsageError("a body has at least 1 byte", topic=topic)
        batch_body = encode_plain_batch(bodies, *context.ids.run(now_ms, len(bodies)))
    else:
        messages = [each if isinstance(each, Message) else Message(topic, each) for each in members]
        wait_stored = any([message.wait_stored for message in messages])
        batch_body = encode_batch([_checked_content(message, context.ids.next(now_ms)) for message in messages])
    if len(batch_body) > context.settings.max_message_bytes:
        raise UsageError("a batch has at most max_message_bytes", bytes=len(batch_body))
    # Its own properties hold for the request alone: whether to wait for disk and slaves.
    whole = Message(topic, b"", wait_stored=wait_stored)
    return _envelope(context, group, whole, context.ids.next(now_ms), True, 0, now_ms, batch_body, queue)


def gathered_envelope(context: BrokerContext, group: str, members: list[Member]) -> Envelope:
    """Returns the envelope of messages that were checked: of one topic, and together no longer than brokers take. It
    keeps the list."""
    now_ms, first = context.clock.wall_ms(), members[0]
    if len(members) == 1:
        body = bytes(first.content[1])  # which it is, and so not copied
        envelope = _envelope(context, group, first.message, first.message_id, False, 0, now_ms, body, None)
    else:
        batch_body = encode_batch([member.content for member in members])
        whole = Message(first.message.topic, b"", wait_stored=first.message.wait_stored)
        envelope = _envelope(context, group, whole, context.ids.next(now_ms), True, 0, now_ms, batch_body, None)
    envelope.members = members
    return envelope


def _plain_bodies(members: Sequence[Message | Buffer], topic: str) -> Sequence[bytes] | None:
    """Returns the bodies of members that have nothing else; None if one of them has. Raises UsageError for one of
    another topic."""
    if set(map(type, members)) == {bytes}:  # nearly always: then a look at each costs more than its encoding
        return cast("Sequence[bytes]", members)
    messages = [member for member in members if isinstance(member, Message)]
    if any([message.topic != topic for message in messages]):
        raise UsageError("all messages of a batch are of its topic", topic=topic)
    if any(map(_has_more, messages)):
        return None
    bodies = [member.body if isinstance(member, Message) else member for member in members]
    return [payload_bytes(body, "a message's body") for body in bodies]


def _has_more(message: Message) -> bool:
    """Whether a message has anything of its own beside its topic and body, which is then to be checked."""
    is_plain = message.tags is None and not message.keys and not message.properties and message.wait_stored is True
    return not is_plain or type(message.flag) is not int or message.flag != 0  # 0.0 is no flag either


def _checked_content(message: Message, message_id: str) -> Content:
    check_message(message)
    body = payload_bytes(message.body, "a message's body")
    if not body:
        raise UsageError("a body has at least 1 byte", topic=message.topic)
    return content_of(message, body, message_id)


def content_of(message: Message, body: bytes, message_id: str) -> Content:
    """Returns a member of a batch. Raises UsageError for properties that no broker takes."""
    return message.flag, body, message.encode_with_id(message_id).encode()


def _envelope(
    context: BrokerContext,
    group: str,
    message: Message,
    message_id: str,
    batch: bool,
    sys_flag: int,
    now_ms: int,
    body: bytes,
    queue: MessageQueue | None,
) -> Envelope:
    settings = context.settings
    if queue is not None:
        check_queue(queue, message.topic)
    properties = message.encode_with_id(message_id)
    return Envelope(
        asyncio.get_running_loop().create_future(),
        SendingCore(message_id, 1 + settings.send_retries),
        group,
        message.topic,
        batch,
        settings.new_topic_queues,
        sys_flag,
        now_ms,
        message.flag,
        properties,
        body,
        queue,
    )


@functools.lru_cache(maxsize=4096)
def _form(group: str, topic: str, batch: bool, new_topic_queues: int, queue_id: int, broker: str) -> SendForm:
    return SendForm(
        producer_group=group,
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=new_topic_queues,
        queue_id=queue_id,
        batch=batch,
        broker=broker,
    )
