"""The checks of a send: they end in what the log is to store, or in a refusal (``SendMessageProcessor``).

The checks stand in the original's order. What it would store and deliver later, or deliver in two steps (delays,
timers, transactions, batches in one record), this broker does not have: such a message is refused, never delivered at
once as if it were another.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.codec.sent_properties import (
    UNIQ_KEY_IS,
    has_broker_properties,
    usual_properties,
    value_of,
    waits_for_store,
)
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.broker.refusals import FAQ, Refusal
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import NOT_FOR_CLIENTS, Topics, refusal_of_topic
from tallystick.rocketmq.store.appender import most_members
from tallystick.rocketmq.store.values import PutRequest
from tallystick.rocketmq.wire.headers import SendHeader, read_send
from tallystick.rocketmq.wire.message_ids import UniqueKeys
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES, decode_batch, decode_properties
from tallystick.rocketmq.wire.registration import topic_places
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.sink_identity import SINK, SINK_MARK, without_identity
from tallystick.rocketmq.wire.values import (
    COMPRESSION_MASK,
    DLQ_PREFIX,
    RETRY_PREFIX,
    TRANSACTION_MASK,
    Perm,
    RequestCode,
    ResponseCode,
    SysFlag,
    TopicConfig,
)
from tallystick.runtime.clock import Clock

REGION, TRACE, CLUSTER, DELAY = "MSG_REGION", "TRACE_ON", "CLUSTER", "DELAY"
REGION_NAME = "DefaultRegion"
MAX_BATCH_TOPIC_CHARS = 127
MAX_BATCH = 14_000  # messages: the response has an id of each in its header, and some 3 us each are a turn of the loop

_NOT_OF_CLIENTS = ~(int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS) | COMPRESSION_MASK)
_NOT_OF_HOSTS = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)  # the store knows better
_TRANSACTION, _SINK_BATCH = int(TRANSACTION_MASK), int(RequestCode.SEND_SINK_BATCH)
_TIMERS = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DEL_UNIQKEY")


class CheckedSend(NamedTuple):
    """A send that may be stored. ``wait``: its response waits for disk and slaves. ``unique_key`` goes into the
    response."""

    put_request: PutRequest
    wait: bool
    unique_key: str | None


class _CheckedTopic(NamedTuple):
    """A topic that has passed the checks, and what a send needs to know of it."""

    config: TopicConfig
    queues: int  # a queue id is below that
    flags: int  # that its messages get
    is_retry: bool


class SendChecks:
    """Checks one request at a time, and makes topics where that is allowed."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        topics: Topics,
        groups: Groups,
        locks: QueueLocksCore,
        clock: Clock,
        keys: UniqueKeys,
    ) -> None:
        """``keys`` gives ids to messages that come without one."""
        self._settings, self._topics, self._groups, self._locks = settings, topics, groups, locks
        self._clock, self._keys = clock, keys
        self._changes = topics.changes
        self._checked_topics: dict[str, _CheckedTopic] = {}  # by name, since the topics changed last
        self._turn = 0
        # Of a batch, whose records are one piece.
        self._most_members = min(MAX_BATCH, most_members(settings.store.max_message_bytes))
        self._broker_properties = f"{REGION}\x01{REGION_NAME}\x02{TRACE}\x01true\x02{CLUSTER}\x01{settings.cluster}\x02"
        self._stored_broker_properties = self._broker_properties.encode()

    def check(self, command: Command, peer: str, born_host: bytes) -> CheckedSend | Refusal:
        """Check a SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE or SEND_SINK_BATCH. Raises RemoteProtocolError."""
        header = read_send(command)
        if not command.body:
            return Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body", checked=False)
        topic = header.topic
        topic_info = self._checked_topics.get(topic) if self._topics.changes == self._changes else None
        if topic_info is None:
            outcome = self._check_topic(header, peer)
            if isinstance(outcome, Refusal):
                return outcome
            topic_info = outcome
        queue_id, flags = header.queue_id, header.sys_flag & _NOT_OF_HOSTS | topic_info.flags
        if queue_id >= topic_info.queues or not topic_info.queues:
            remark = f"request queueId[{queue_id}] is illegal, {_topic_text(topic_info.config)} Producer: {peer}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if queue_id < 0:
            queue_id = self._next_of(topic_info.config.write_queues or topic_info.queues)
        if flags & _NOT_OF_CLIENTS:
            if flags & _TRANSACTION:
                return self._refuse_transaction()
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message's sysFlag[{flags}] is not supported")
        put_request = PutRequest(
            topic, queue_id, (), header.born_timestamp, born_host, flags, header.reconsume_times or 0
        )
        if header.batch:
            return self._batch(put_request, header, command)
        if topic_info.is_retry:
            refusal = self._retry(put_request, header, command.version, peer)
            if refusal is not None:
                return refusal
        return self._single(put_request, header, command, is_retry=topic_info.is_retry)

    def _single(
        self, put_request: PutRequest, header: SendHeader, command: Command, *, is_retry: bool
    ) -> CheckedSend | Refusal:
        properties = header.properties or ""
        usual = usual_properties(properties, self._stored_broker_properties)
        if usual is not None:
            stored, unique_key, waits = usual
            put_request.messages = ((header.flag, command.body, stored),)
            return CheckedSend(put_request, waits, unique_key)
        if properties and properties[-1] != "\x02":
            properties += "\x02"
        if has_broker_properties(properties):
            cleaned = self._cleaned(properties, is_retry=is_retry)
            if isinstance(cleaned, Refusal):
                return cleaned
            properties = cleaned
        unique_key = value_of(properties, UNIQ_KEY_IS) or ""
        if not unique_key:
            unique_key = self._keys.next(self._clock.wall_ms())
            properties += f"{UNIQ_KEY_IS}{unique_key}\x02"
        put_request.messages = ((header.flag, command.body, (properties + self._broker_properties).encode()),)
        return CheckedSend(put_request, waits_for_store(properties), unique_key)

    def _check_topic(self, header: SendHeader, peer: str) -> _CheckedTopic | Refusal:
        config = self._look_up(header, peer)
        if isinstance(config, Refusal):
            return config
        if self._topics.changes != self._changes:
            self._changes, self._checked_topics = self._topics.changes, {}
        flags = int(SysFlag.MULTI_TAGS) if config.filter_type == "MULTI_TAG" else 0
        most = max(config.write_queues, config.read_queues)
        topic_info = self._checked_topics[header.topic] = _CheckedTopic(
            config, most, flags, header.topic.startswith(RETRY_PREFIX)
        )
        return topic_info

    def _look_up(self, header: SendHeader, peer: str) -> TopicConfig | Refusal:
        topic = header.topic
        config = self._topics.get(topic)
        if not self._settings.perm & Perm.WRITE and config is not None and config.order:
            remark = f"the broker[{self._settings.client_host}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        refusal = refusal_of_topic(topic)
        if refusal is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, refusal)
        if topic in NOT_FOR_CLIENTS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        return config or self._create(header, peer)

    def _create(self, header: SendHeader, peer: str) -> TopicConfig | Refusal:
        topic = header.topic
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            return self._topics.create_retry(topic) if self._groups.get(group, peer) else _no_group(group)
        config = self._topics.create_on_send(topic, header.default_topic, header.default_topic_queue_nums, peer)
        if config is not None:
            return config
        remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
        places = topic_places(TopicConfig(topic))
        if self._topics.room(peer) < places:
            remark = f"topic[{topic}] not exist, and this broker has all the topics that it may (maxTopics)"
            if self._topics.room() >= places:
                remark = f"topic[{topic}] not exist, and sends from one host made as many as they may (maxTopics)"
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)

    def _next_of(self, count: int) -> int:
        """Returns a queue for a message that may have any."""
        self._turn += 1
        return self._turn % count

    def _batch(self, put_request: PutRequest, header: SendHeader, command: Command) -> CheckedSend | Refusal:
        if len(put_request.topic) > MAX_BATCH_TOPIC_CHARS:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(put_request.topic)}")
        if put_request.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {put_request.topic}"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        properties = header.properties or ""
        if len(properties) > MAX_PROPERTIES_BYTES:  # they are not stored, but the response has one of them
            remark = f"the properties of the batch are longer than {MAX_PROPERTIES_BYTES} characters"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        put_request.messages = decode_batch(command.body, self._most_members + 1)
        if len(put_request.messages) > self._most_members:
            remark = f"the batch has more than the {self._most_members} messages that one may have here"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if command.code != _SINK_BATCH and SINK_MARK in b"".join([own for _, _, own in put_request.messages]):
            put_request.messages = [(flag, body, without_identity(own)) for flag, body, own in put_request.messages]
        return CheckedSend(put_request, waits_for_store(properties), value_of(properties, UNIQ_KEY_IS))

    def _retry(self, put_request: PutRequest, header: SendHeader, version: int, peer: str) -> Refusal | None:
        """Check a message that a consumer sends to its retry topic itself; one that failed too often goes to the
        dead-letter topic. Returns None if it may be stored."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.get(group, peer)
        if config is None:
            return _no_group(group)
        most = config.retry_max_times
        if version >= FIRST_MAX_RECONSUME_VERSION and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if put_request.reconsume_times > most or self._locks.in_order(group, self._clock.now()):
            put_request.topic = self._topics.create_retry(DLQ_PREFIX + group).name
            put_request.queue_id = 0
        return None

    def _cleaned(self, properties: str, *, is_retry: bool) -> str | Refusal:
        """Returns properties of which some mean something to a broker, without those that it sets itself."""
        properties_by_name = decode_properties(properties)
        if properties_by_name.get("TRAN_MSG", "").lower() == "true":
            return self._refuse_transaction()
        if not properties_by_name.keys().isdisjoint(_TIMERS):
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if "INNER_NUM" in properties_by_name:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch in one message is not supported")
        level = properties_by_name.pop(DELAY, "0")
        if not is_retry and level.removeprefix("+").lstrip("0").isdecimal():  # more than 0
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"delayed messages are not supported: DELAY is {level}")
        for name in (REGION, TRACE, CLUSTER, "POP_CK", SINK):  # an identity is of the message that it was copied from
            properties_by_name.pop(name, None)
        return "".join([f"{name}\x01{value}\x02" for name, value in properties_by_name.items()])

    def _refuse_transaction(self) -> Refusal:
        remark = f"the broker[{self._settings.client_host}] sending transaction message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)


FIRST_MAX_RECONSUME_VERSION = 121  # older clients do not say how often they want to try


def _no_group(group: str) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}")


def _topic_text(config: TopicConfig) -> str:
    """Returns a topic as the original prints it."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in _LETTERS)
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.name}, readQueueNums={config.read_queues}, "
        f"writeQueueNums={config.write_queues}, perm={perm}, topicFilterType={config.filter_type}, "
        f"topicSysFlag={config.sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


_LETTERS = (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
