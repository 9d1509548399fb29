"""The options of the format ``tally-topic``; those that Kafka's source has, too, are spelled as there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.admin.dev_lookup import find_name_server
from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.option_values import CUTTING, OptionValues
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.client.arguments import check_group, check_topic
from tallystick.rocketmq.remoting.client import addresses_in
from tallystick.rocketmq.wire.values import MessageQueue

# Every broker has this group from its start, so reading makes none. Nothing is ever committed for it.
GROUP = "TOOLS_CONSUMER"

# What only one kind of query has.
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
FOLLOWING_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")

OPTIONS = {
    "path": "what load(path) says: the topics, as in subscribe",
    "nameServer": "where brokers are known: host:port, several parted by ; (else TALLY_NAMESRV, else the running "
    "development cluster)",
    "subscribe": "the topics to read, parted by commas",
    "subscribePattern": "instead of subscribe: a regular expression that whole names of topics match",
    "assign": 'instead of subscribe: single queues as JSON, {"topic": {"broker": [0, 1]}}',
    "columns": "which columns, in which order (default: all)",
    "startingOffsets": "earliest (the default of spark.read), latest (that of spark.readStream), or by queue as JSON: "
    '{"topic": {"broker": {"0": 12, "1": -2}}}',
    "endingOffsets": "latest (the default), or by queue as JSON; exclusive",
    "startingTimestamp": "in ms: from the first message of each queue stored at this time or later",
    "endingTimestamp": "in ms: up to the last message of each queue stored before this time",
    "failOnDataLoss": "true (the default): what was deleted before it was read is an error; false: it is left out",
    "readFrom": "master (the default) or slave: which is asked first; the other one stands in for it",
    "group": "the consumer group whose rights count (default TOOLS_CONSUMER); no offsets are committed for it",
    "decode": "true (the default): bodies as they were sent; false: as they are stored, perhaps compressed",
    **CUTTING,
    "maxRecordsPerPartition": "the most messages that one task reads (default: any number)",
    "maxOffsetsPerTrigger": "about the most messages of a batch of a streaming query (default: any number)",
    "maxBytesPerTrigger": "about the most bytes of a batch of a streaming query, as in 256m (default: any number)",
    "minOffsetsPerTrigger": "of a streaming query: no batch before there are so many messages (default 1)",
    "maxTriggerDelay": "or the last batch was so long ago, as in 500ms, 10s, 15m or 2h (default 15m)",
    "groupId": "the consumer group whose offsets a streaming query moves behind itself (default: none)",
}


@dataclass(frozen=True)
class TopicOptions:
    """All options, checked. ``topics``, unless there is a ``pattern``; of them the ``assigned`` queues, unless that is
    None."""

    name_servers: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: frozenset[MessageQueue] | None = None
    columns: tuple[str, ...] = COLUMNS.names
    start: Bound = field(default_factory=lambda: Bound("startingOffsets", EARLIEST))
    end: Bound = field(default_factory=lambda: Bound("endingOffsets", LATEST))
    fail_on_data_loss: bool = True
    slave_first: bool = False
    group: str = GROUP
    decode: bool = True
    limits: Limits = field(default_factory=Limits)
    trigger: TriggerLimits = field(default_factory=TriggerLimits)
    group_id: str | None = None

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        follows: bool | None = None,
    ) -> TopicOptions:
        """From Spark's options. ``environment``: None is the process's. ``follows``: of a streaming query, or of a
        batch; None where that is not known yet. Raises UsageError."""
        values = OptionValues(options, OPTIONS).with_path("subscribe")
        values.refuse_of_other_kind(BATCH_ONLY, FOLLOWING_ONLY, follows=follows)
        topics, pattern, assigned = _subscription(values)
        start = _bound(values, "startingOffsets", "startingTimestamp", LATEST if follows else EARLIEST)
        end = _bound(values, "endingOffsets", "endingTimestamp", LATEST)
        if end.default == EARLIEST and end.timestamp_ms is None:
            raise UsageError("endingOffsets is latest or JSON: nothing ends at its beginning")
        if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms > end.timestamp_ms:
            raise UsageError("startingTimestamp is after endingTimestamp")
        return cls(
            name_servers=_name_servers(values.given_or("nameServer", lambda: find_name_server(environment))),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            columns=COLUMNS.parse(values.text("columns")) if "columns" in values else COLUMNS.names,
            start=start,
            end=end,
            fail_on_data_loss=values.choice("failOnDataLoss", ("true", "false")) == "true",
            slave_first=values.choice("readFrom", ("master", "slave")) == "slave",
            group=values.text("group", GROUP),
            decode=values.choice("decode", ("true", "false")) == "true",
            limits=values.limits(),
            trigger=values.trigger_limits(),
            group_id=check_group(values.text("groupId")) if "groupId" in values else None,
        )

    def wants(self, queue: MessageQueue) -> bool:
        """Whether the options name a queue."""
        if self.assigned is not None:
            return queue in self.assigned
        return queue.topic in self.topics if self.pattern is None else self.pattern.fullmatch(queue.topic) is not None


def _subscription(
    values: OptionValues,
) -> tuple[tuple[str, ...], re.Pattern[str] | None, frozenset[MessageQueue] | None]:
    if sum(name in values for name in SUBSCRIPTIONS) != 1:
        raise UsageError("give one of the options subscribe, subscribePattern and assign: which topics are to be read")
    if "subscribePattern" in values:
        return (), values.pattern("subscribePattern"), None
    if "assign" in values:
        assigned = _assigned(values.text("assign"))
        return tuple(sorted({queue.topic for queue in assigned})), None, assigned
    topics = {name.strip() for name in values.text("subscribe").split(",")}
    for topic in topics:
        check_topic(topic)
    return tuple(sorted(topics)), None, None


def _assigned(text: str) -> frozenset[MessageQueue]:
    try:
        queues = frozenset(
            MessageQueue(topic, broker, _number(number))
            for topic, brokers in json.loads(text).items()
            for broker, numbers in brokers.items()
            for number in numbers
        )
    except (ValueError, TypeError, AttributeError):
        queues = frozenset()
    if not queues:
        raise UsageError('assign is JSON as in {"topic": {"broker": [0, 1]}}', value=text)
    return queues


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _name_servers(text: str) -> tuple[str, ...]:
    addresses = addresses_in(text)
    if not addresses:
        raise UsageError("nameServer is host:port, several parted by ;", nameServer=text)
    return addresses


def _bound(values: OptionValues, offsets: str, timestamp: str, default: int) -> Bound:
    if offsets in values and timestamp in values:
        raise UsageError(f"{offsets} and {timestamp} are two answers to one question: give one")
    if timestamp in values:
        return Bound(timestamp, timestamp_ms=values.integer(timestamp, 0))
    return Bound.parse(offsets, values.text(offsets), default)
