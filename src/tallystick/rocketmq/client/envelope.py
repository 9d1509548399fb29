"""A message or batch, checked and ready to be sent to whichever queue, and what has become of it so far."""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections.abc import Callable, Sequence

from tallystick.errors import TallyError, UsageError
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.sending import Sending, SendResult
from tallystick.rocketmq.wire.headers import SendHeader
from tallystick.rocketmq.wire.record import (
    MAX_PROPERTIES_BYTES,
    UNIQ_KEY,
    Message,
    encode_batch,
    encode_properties,
)
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, SysFlag

TEMPLATE_TOPIC = "TBW102"  # a topic that does not exist yet is made after this one, where brokers allow it
# The fields that differ from message to message, by their letters in SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.
QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, BROKER = "e", "f", "g", "h", "i", "n"

Answered = Callable[["Envelope", Command | TallyError], None]


class Envelope:
    """``queue`` is that of the attempt under way, ``fixed_queue`` the only one that the caller wants."""

    __slots__ = (
        "_answered",
        "_code",
        "_fields",
        "body",
        "fixed_queue",
        "future",
        "queue",
        "sending",
        "topic",
    )

    def __init__(
        self,
        context: BrokerContext,
        code: RequestCode,
        topic: str,
        fields: dict[str, str],
        body: bytes,
        message_id: str,
        fixed_queue: MessageQueue | None,
        answered: Answered,
    ) -> None:
        self.topic, self.body, self.fixed_queue, self._answered = topic, body, fixed_queue, answered
        self._code, self._fields = code, fields
        self.queue: MessageQueue | None = None
        self.sending = Sending(message_id, 1 + context.settings.send_retries)
        self.future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

    def command(self, queue: MessageQueue, *, one_way: bool = False) -> Command:
        fields = self._fields | {QUEUE_ID: str(queue.queue_id), BROKER: queue.broker}
        return request(self._code, fields, self.body, one_way=one_way)

    def answered(self, result: Command | TallyError) -> None:
        self._answered(self, result)


def message_envelope(
    context: BrokerContext, group: str, message: Message, queue: MessageQueue | None, answered: Answered
) -> Envelope:
    """Raises UsageError for a body or properties that no broker takes."""
    settings, body, sys_flag = context.settings, bytes(message.body), 0
    if not 0 < len(body) <= settings.max_message_bytes:
        raise UsageError("a body has 1 byte to max_message_bytes", bytes=len(body))
    if 0 < settings.compress_above_bytes <= len(body):
        body, sys_flag = zlib.compress(body), int(SysFlag.COMPRESSED | SysFlag.ZLIB)
    properties, message_id = _properties(context, message)
    fields = _template(group, message.topic, False, settings.new_topic_queues) | {
        SYS_FLAG: str(sys_flag),
        BORN: str(context.clock.wall_ms()),
        FLAG: str(message.flag),
        PROPERTIES: properties.decode(),
    }
    code = RequestCode.SEND_MESSAGE_V2
    return Envelope(context, code, message.topic, fields, body, message_id, queue, answered)


def batch_envelope(
    context: BrokerContext,
    group: str,
    topic: str,
    members: Sequence[Message],
    queue: MessageQueue | None,
    answered: Answered,
) -> Envelope:
    """Raises UsageError for a member, or a sum of them, that no broker takes."""
    contents = []
    for member in members:
        if not member.body:
            raise UsageError("a body has at least 1 byte", topic=topic)
        contents.append((member.flag, member.body, _properties(context, member)[0]))
    body = encode_batch(contents)
    if len(body) > context.settings.max_message_bytes:
        raise UsageError("a batch has at most max_message_bytes", bytes=len(body))
    # Its own properties hold for the request alone: whether to wait for disk and slaves.
    waits = any(member.wait_stored for member in members)
    properties, message_id = _properties(context, Message(topic, b"", wait_stored=waits))
    fields = _template(group, topic, True, context.settings.new_topic_queues) | {
        BORN: str(context.clock.wall_ms()),
        PROPERTIES: properties.decode(),
    }
    return Envelope(context, RequestCode.SEND_BATCH_MESSAGE, topic, fields, body, message_id, queue, answered)


@functools.lru_cache(maxsize=1024)
def _template(group: str, topic: str, batch: bool, new_topic_queues: int) -> dict[str, str]:
    """The fields that all messages of a producer to a topic share, and places for the others."""
    return SendHeader(
        producer_group=group,
        topic=topic,
        default_topic=TEMPLATE_TOPIC,
        default_topic_queue_nums=new_topic_queues,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
    ).to_letters()


def _properties(context: BrokerContext, message: Message) -> tuple[bytes, str]:
    """In their stored form, with the unique key."""
    properties = message.all_properties()
    message_id = properties.get(UNIQ_KEY) or context.ids.next()
    properties[UNIQ_KEY] = message_id
    encoded = encode_properties(properties)
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise UsageError("the properties are too long", bytes=len(encoded), limit=MAX_PROPERTIES_BYTES)
    # Their separators cannot be escaped. As many as there should be means none in a name or value.
    if encoded.count(b"\x01") != len(properties) or encoded.count(b"\x02") != len(properties) or "" in properties:
        raise UsageError("names and values of properties must not have the bytes 1 and 2; names must not be empty")
    return encoded, message_id
