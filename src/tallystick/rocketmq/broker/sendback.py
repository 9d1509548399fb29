"""The checks of a message that a consumer gives back: it goes to the retry topic of its group or, after too many times,
to the dead-letter topic.

The original delivers it again after a delay that grows; this broker has no delays and delivers it again at once. The
response is sent when disk and slaves have the copy, as with a send: the group's offset passes over the message then.
When they are late a consumer of ours asks again, and names the copy: the broker waits for that one and makes no other.
Source: ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.refusals import FAQ, Refusal
from tallystick.rocketmq.broker.send_checks import DELAY, FIRST_MAX_RECONSUME_VERSION, CheckedSend
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import PutRequest
from tallystick.rocketmq.wire.headers import SendBackHeader
from tallystick.rocketmq.wire.record import RETRY_TOPIC, WAIT, StoredMessage, decode_message, encode_properties
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    COMPRESSION_MASK,
    DLQ_PREFIX,
    RETRY_PREFIX,
    GroupConfig,
    Perm,
    ResponseCode,
    SysFlag,
)

_ORIGIN = "ORIGIN_MESSAGE_ID"
_COPIED_FLAGS = int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS) | COMPRESSION_MASK


class ExistingCopy(NamedTuple):
    """A copy that is stored already, in this topic, at the physical offsets ``offset`` to ``end``: the response waits
    for it."""

    topic: str
    offset: int
    end: int


class SendBack:
    """Checks requests CONSUMER_SEND_MSG_BACK."""

    def __init__(self, settings: BrokerSettings, store: MessageStore, topics: Topics, groups: Groups) -> None:
        self._settings, self._store, self._topics, self._groups = settings, store, topics, groups
        self._turn = 0

    def check(self, command: Command, peer: str) -> CheckedSend | ExistingCopy | Refusal | None:
        """Returns what to store, or None if the group takes no message again. Raises RemoteProtocolError."""
        header = SendBackHeader.of(command)
        group = self._groups.get(header.group, peer)
        if group is None:
            remark = f"subscription group not exist, {header.group} {FAQ}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, checked=False)
        if not self._settings.perm & Perm.WRITE:
            remark = f"the broker[{self._settings.client_host}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark, checked=False)
        if group.retry_queues <= 0:
            return None
        retry = self._topics.create_retry(RETRY_PREFIX + group.name, group.retry_queues)
        if not retry.perm & Perm.WRITE:
            remark = f"the topic[{retry.name}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark, checked=False)
        message = self._message(header)
        if message is None:
            remark = f"look message by offset failed, {header.offset}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark, checked=False)
        copy = self._record(header.copy) if header.copy is not None else None
        if copy is not None and _is_copy(copy, message, group.name):
            return ExistingCopy(copy.topic, copy.physical_offset, copy.physical_offset + copy.size)
        if message.reconsume_times >= _most(group, header, command.version) or header.delay_level < 0:
            return _again(message, self._topics.create_retry(DLQ_PREFIX + group.name).name, 0)
        self._turn += 1
        return _again(message, retry.name, self._turn % max(1, min(group.retry_queues, retry.write_queues)))

    def _message(self, header: SendBackHeader) -> StoredMessage | None:
        """Returns None if there is no message at the offset, or not the one that the consumer has."""
        message = self._record(header.offset)
        is_exact = self._settings.access.authorizes
        return message if message is not None and _is_meant(message, header, is_exact=is_exact) else None

    def _record(self, offset: int) -> StoredMessage | None:
        record = self._store.record(offset)
        try:
            return decode_message(record) if record is not None else None
        except RemoteProtocolError:
            return None


def whole_topic(group: str, topic: str) -> str:
    """Returns the name of a topic that a consumer of this group names: clients leave out a namespace, which their group
    has."""
    namespace, sign, _ = group.removeprefix(RETRY_PREFIX).partition("%")
    has_one = not sign or not namespace or topic.startswith((f"{namespace}%", "%"))
    return topic if has_one else f"{namespace}%{topic}"


def _is_meant(message: StoredMessage, header: SendBackHeader, *, is_exact: bool) -> bool:
    """Whether a message is the one that the consumer names: after a log was lost, its offset may be that of another
    one.

    Clients name the producer's id or the offset id, and the topic where it is stored or where it was sent, without
    their namespace. ``is_exact``: it is of the topic to which the client needed rights, and of no other whose name ends
    so.
    """
    identifier, topic = header.origin_msg_id, header.origin_topic
    if identifier and identifier not in (message.unique_key, message.offset_id):
        return False
    topics = message.topic, message.properties.get(RETRY_TOPIC, message.topic)
    if is_exact:
        return whole_topic(header.group, topic or "") in topics
    return not topic or any(name == topic or name.endswith(f"%{topic}") for name in topics)


def _is_copy(copy: StoredMessage, message: StoredMessage, group: str) -> bool:
    """Whether a record is the copy that was made when the group gave this delivery of the message back."""
    origin = message.properties.get(_ORIGIN, message.offset_id)
    return (
        copy.topic in (RETRY_PREFIX + group, DLQ_PREFIX + group)
        and copy.properties.get(_ORIGIN) == origin
        and copy.reconsume_times == message.reconsume_times + 1
    )


def _most(group: GroupConfig, header: SendBackHeader, version: int) -> int:
    """Returns how often a message may be delivered again."""
    if version >= FIRST_MAX_RECONSUME_VERSION and header.max_reconsume_times is not None:
        return header.max_reconsume_times
    return group.retry_max_times


def _again(message: StoredMessage, topic: str, queue_id: int) -> CheckedSend:
    properties = {name: value for name, value in message.properties.items() if name != DELAY}
    properties.setdefault(RETRY_TOPIC, message.topic)
    properties.setdefault(_ORIGIN, message.offset_id)
    properties[WAIT] = "false"
    content = message.flag, message.stored_body, encode_properties(properties)
    put_request = PutRequest(
        topic,
        queue_id,
        (content,),
        message.born_timestamp,
        message.born_host,
        message.sys_flag & _COPIED_FLAGS,
        message.reconsume_times + 1,
    )
    return CheckedSend(put_request, True, None)
