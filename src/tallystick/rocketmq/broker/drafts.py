"""From a request that sends to what the log is to store, or to the reason why not (``SendMessageProcessor``).

The checks stand in the original's order. What it would store and deliver later, or deliver in two steps (delays,
timers, transactions, batches in one record), this broker does not have: such a message is refused, never delivered at
once as if it were another.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.locks import BrokerQueueLocks
from tallystick.rocketmq.broker.refusals import FAQ, Refusal
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import NOT_FOR_CLIENTS, Topics, refusal_of_topic
from tallystick.rocketmq.store.appender import most_members
from tallystick.rocketmq.store.values import Draft
from tallystick.rocketmq.wire.headers import SendHeader, read_send
from tallystick.rocketmq.wire.message_ids import UniqueKeys
from tallystick.rocketmq.wire.record import MAX_PROPERTIES_BYTES, UNIQ_KEY, WAIT, decode_batch, decode_properties
from tallystick.rocketmq.wire.registration import topic_places
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import (
    COMPRESSION_MASK,
    DLQ_PREFIX,
    RETRY_PREFIX,
    TRANSACTION_MASK,
    Perm,
    ResponseCode,
    SysFlag,
    TopicConfig,
)
from tallystick.runtime.clock import Clock

REGION, TRACE, CLUSTER, DELAY = "MSG_REGION", "TRACE_ON", "CLUSTER", "DELAY"
REGION_NAME = "DefaultRegion"
MAX_BATCH_TOPIC_CHARS = 127
MAX_BATCH = 14_000  # messages: the answer has an id of each in its header, and some 3 us each are a turn of the loop

_NOT_OF_CLIENTS = ~(int(SysFlag.COMPRESSED | SysFlag.MULTI_TAGS) | COMPRESSION_MASK)
_NOT_OF_HOSTS = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)  # the store knows better
_TRANSACTION = int(TRANSACTION_MASK)
_UNIQ_KEY, _WAIT = UNIQ_KEY + "\x01", WAIT + "\x01"
_WAITING = f"\x02{_WAIT}true\x02"
_TIMERS = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DEL_UNIQKEY")


class Drafted(NamedTuple):
    """``wait``: the answer waits for disk and slaves. ``unique_key`` is told back to the producer."""

    draft: Draft
    wait: bool
    unique_key: str | None


class _Good(NamedTuple):
    """What the checks of a topic's name left to know about it."""

    config: TopicConfig
    queues: int  # a queue id is below that
    flags: int  # that its messages get
    is_retry: bool


class Drafting:
    """Decides for one request at a time; makes topics where that is allowed."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        locks: BrokerQueueLocks,
        clock: Clock,
        keys: UniqueKeys,
    ) -> None:
        """``keys`` gives ids to messages that come without one."""
        self._settings, self._topics, self._groups, self._locks = settings, topics, groups, locks
        self._clock, self._keys = clock, keys
        self._changes = topics.changes
        self._good: dict[str, _Good] = {}  # since the topics changed last
        self._turn = 0
        # Of a batch, whose records are one piece.
        self._most_members = min(MAX_BATCH, most_members(settings.store.max_message_bytes))
        self._added = f"{REGION}\x01{REGION_NAME}\x02{TRACE}\x01true\x02{CLUSTER}\x01{settings.cluster}\x02"

    def draft(self, command: Command, peer: str, born_host: bytes) -> Drafted | Refusal:
        """For SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE. Raises RemoteProtocolError."""
        header = read_send(command)
        if not command.body:
            return Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body", checked=False)
        topic = header.topic
        good = self._good.get(topic) if self._topics.changes == self._changes else None
        if good is None:
            found = self._check_topic(header, peer)
            if isinstance(found, Refusal):
                return found
            good = found
        queue_id, flags = header.queue_id, header.sys_flag & _NOT_OF_HOSTS | good.flags
        if queue_id >= good.queues or not good.queues:
            remark = f"request queueId[{queue_id}] is illegal, {_shown(good.config)} Producer: {peer}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if queue_id < 0:
            queue_id = self._next_of(good.config.write_queues or good.queues)
        if flags & _NOT_OF_CLIENTS:
            if flags & _TRANSACTION:
                return self._no_transactions()
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message's sysFlag[{flags}] is not supported")
        draft = Draft(topic, queue_id, (), header.born_timestamp, born_host, flags, header.reconsume_times or 0)
        if header.batch:
            return self._batch(draft, header, command)
        if good.is_retry:
            refusal = self._retry(draft, header, command.version, peer)
            if refusal is not None:
                return refusal
        return self._single(draft, header, command, is_retry=good.is_retry)

    def _single(self, draft: Draft, header: SendHeader, command: Command, *, is_retry: bool) -> Drafted | Refusal:
        properties = header.properties or ""
        if properties and properties[-1] != "\x02":
            properties += "\x02"
        if _special(properties):
            cleaned = self._cleaned(properties, is_retry=is_retry)
            if isinstance(cleaned, Refusal):
                return cleaned
            properties = cleaned
        unique_key = value_of(properties, _UNIQ_KEY)
        if not unique_key:
            unique_key = self._keys.next(self._clock.wall_ms())
            properties += f"{_UNIQ_KEY}{unique_key}\x02"
        draft.messages = ((header.flag, command.body, (properties + self._added).encode()),)
        return Drafted(draft, _waits(properties), unique_key)

    def _check_topic(self, header: SendHeader, peer: str) -> _Good | Refusal:
        config = self._look_up(header, peer)
        if isinstance(config, Refusal):
            return config
        if self._topics.changes != self._changes:
            self._changes, self._good = self._topics.changes, {}
        flags = int(SysFlag.MULTI_TAGS) if config.filter_type == "MULTI_TAG" else 0
        most = max(config.write_queues, config.read_queues)
        good = self._good[header.topic] = _Good(config, most, flags, header.topic.startswith(RETRY_PREFIX))
        return good

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
        made = self._topics.create_on_send(topic, header.default_topic, header.default_topic_queue_nums, peer)
        if made is not None:
            return made
        remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
        places = topic_places(TopicConfig(topic))
        if self._topics.room(peer) < places:
            remark = f"topic[{topic}] not exist, and this broker has all the topics that it may (maxTopics)"
            if self._topics.room() >= places:
                remark = f"topic[{topic}] not exist, and sends from one host made as many as they may (maxTopics)"
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)

    def _next_of(self, count: int) -> int:
        """A queue for a message that may have any."""
        self._turn += 1
        return self._turn % count

    def _batch(self, draft: Draft, header: SendHeader, command: Command) -> Drafted | Refusal:
        if len(draft.topic) > MAX_BATCH_TOPIC_CHARS:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(draft.topic)}")
        if draft.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {draft.topic}"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        properties = header.properties or ""
        if len(properties) > MAX_PROPERTIES_BYTES:  # they are not stored, but the answer has one of them
            remark = f"the properties of the batch are longer than {MAX_PROPERTIES_BYTES} characters"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        draft.messages = decode_batch(command.body, self._most_members + 1)
        if len(draft.messages) > self._most_members:
            remark = f"the batch has more than the {self._most_members} messages that one may have here"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        return Drafted(draft, _waits(properties), value_of(properties, _UNIQ_KEY))

    def _retry(self, draft: Draft, header: SendHeader, version: int, peer: str) -> Refusal | None:
        """A consumer sends a message of its group again itself; one that failed too often is put aside."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.get(group, peer)
        if config is None:
            return _no_group(group)
        most = config.retry_max_times
        if version >= FIRST_MAX_RECONSUME_VERSION and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if draft.reconsume_times > most or self._locks.in_order(group, self._clock.now()):
            draft.topic = self._topics.create_retry(DLQ_PREFIX + group).name
            draft.queue_id = 0
        return None

    def _cleaned(self, properties: str, *, is_retry: bool) -> str | Refusal:
        """Properties with names that mean something to a broker, without what it sets itself."""
        named = decode_properties(properties)
        if named.get("TRAN_MSG", "").lower() == "true":
            return self._no_transactions()
        if not named.keys().isdisjoint(_TIMERS):
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if "INNER_NUM" in named:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch in one message is not supported")
        level = named.pop(DELAY, "0")
        if not is_retry and level.removeprefix("+").lstrip("0").isdecimal():  # more than 0
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"delayed messages are not supported: DELAY is {level}")
        for name in (REGION, TRACE, CLUSTER, "POP_CK"):
            named.pop(name, None)
        return "".join([f"{name}\x01{value}\x02" for name, value in named.items()])

    def _no_transactions(self) -> Refusal:
        remark = f"the broker[{self._settings.client_host}] sending transaction message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)


FIRST_MAX_RECONSUME_VERSION = 121  # older clients do not say how often they want to try


def value_of(properties: str, name: str) -> str | None:
    """The value of one property without reading the others; ``name`` ends with the separator."""
    at = properties.find(name)
    while at > 0 and properties[at - 1] != "\x02":
        at = properties.find(name, at + 1)
    if at < 0:
        return None
    start = at + len(name)
    end = properties.find("\x02", start)
    return properties[start:end] if end >= 0 else properties[start:]


def _waits(properties: str) -> bool:
    """What is not said waits, what is anything but true does not."""
    if _WAITING in properties:  # what clients write
        return True
    value = value_of(properties, _WAIT)
    return value is None or value == "true" or value.lower() == "true"


def _special(properties: str) -> bool:
    """Whether a property may be there that means something to a broker: eight searches are less than one parse."""
    return (
        "DELAY\x01" in properties
        or "TRAN_MSG\x01" in properties
        or "TIMER_DEL" in properties
        or "POP_CK\x01" in properties
        or "INNER_NUM\x01" in properties
        or "CLUSTER\x01" in properties
        or "MSG_REGION\x01" in properties
        or "TRACE_ON\x01" in properties
    )


def _no_group(group: str) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}")


def _shown(config: TopicConfig) -> str:
    """As the original prints one."""
    perm = "".join(letter if config.perm & bit else "-" for letter, bit in _LETTERS)
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.name}, readQueueNums={config.read_queues}, "
        f"writeQueueNums={config.write_queues}, perm={perm}, topicFilterType={config.filter_type}, "
        f"topicSysFlag={config.sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


_LETTERS = (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
