"""A message or batch that is checked and ready to be sent to any queue, with the outcome so far."""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections.abc import Sequence

import msgspec

from tallystick.errors import UsageError
from tallystick.rocketmq.client.arguments import check_message, check_queue
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.sending import SendingCore, SendResult
from tallystick.rocketmq.client.topic import TEMPLATE_TOPIC
from tallystick.rocketmq.wire.record import Message, encode_batch
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.send_form import SendForm
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, SysFlag
from tallystick.runtime.arguments import payload_bytes

_BATCH, _SINGLE = int(RequestCode.SEND_BATCH_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)  # plain numbers: per message
_COMPRESSED = int(SysFlag.COMPRESSED | SysFlag.ZLIB)


class Envelope(msgspec.Struct, eq=False):
    """``queue`` is that of the attempt under way, ``fixed_queue`` the only one that the caller allows."""

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

    def command(self, queue: MessageQueue, *, one_way: bool = False) -> Command:
        form = _form(self.group, self.topic, self.batch, self.new_topic_queues, queue.queue_id, queue.broker)
        fields = form.fill(self.sys_flag, self.born_timestamp, self.flag, self.properties)
        return request(_BATCH if self.batch else _SINGLE, fields, self.body, one_way=one_way)


def message_envelope(context: BrokerContext, group: str, message: Message, queue: MessageQueue | None) -> Envelope:
    """Returns the envelope of a message. Raises UsageError for a message that no broker takes."""
    if message.tags or message.keys or message.properties or message.flag or message.wait_stored is not True:
        check_message(message)
    settings, body, sys_flag = context.settings, payload_bytes(message.body, "a message's body"), 0
    if not 0 < len(body) <= settings.max_message_bytes:
        raise UsageError(f"a message's body has 1 to {settings.max_message_bytes} bytes", bytes=len(body))
    if 0 < settings.compress_above_bytes <= len(body):
        body, sys_flag = zlib.compress(body), _COMPRESSED
    return _envelope(context, group, message, False, sys_flag, context.clock.wall_ms(), body, queue)


def batch_envelope(
    context: BrokerContext, group: str, topic: str, members: Sequence[Message], queue: MessageQueue | None
) -> Envelope:
    """Returns the envelope of a batch. Raises UsageError for a member, or a sum of them, that no broker takes."""
    now_ms, next_id = context.clock.wall_ms(), context.ids.next
    contents = []
    for member in members:
        check_message(member)
        body = payload_bytes(member.body, "a message's body")
        if not body:
            raise UsageError("a body has at least 1 byte", topic=topic)
        contents.append((member.flag, body, member.encode_with_id(next_id(now_ms)).encode()))
    batch_body = encode_batch(contents)
    if len(batch_body) > context.settings.max_message_bytes:
        raise UsageError("a batch has at most max_message_bytes", bytes=len(batch_body))
    # Its own properties hold for the request alone: whether to wait for disk and slaves.
    whole = Message(topic, b"", wait_stored=any(member.wait_stored for member in members))
    return _envelope(context, group, whole, True, 0, now_ms, batch_body, queue)


def _envelope(
    context: BrokerContext,
    group: str,
    message: Message,
    batch: bool,
    sys_flag: int,
    now_ms: int,
    body: bytes,
    queue: MessageQueue | None,
) -> Envelope:
    settings = context.settings
    if queue is not None:
        check_queue(queue, message.topic)
    message_id = context.ids.next(now_ms)
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
