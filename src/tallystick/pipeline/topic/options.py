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
from tallystick.pipeline.key_files import security_here
from tallystick.pipeline.option_values import BATCH_ONLY, CUTTING, TRIGGERING, OptionValues, triggering
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.client.arguments import check_group, check_topic
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.client import addresses_in
from tallystick.rocketmq.remoting.security import BrokerSecurity
from tallystick.rocketmq.wire.values import MessageQueue

# Every broker has this group from its start, so reading makes none. Nothing is ever committed for it.
GROUP = "TOOLS_CONSUMER"

# Files, whose names are no secrets: workers read them, and again when they change.
SECURITY = {
    "credentialsFile": "a file with accessKey= and secretKey=, on each worker (else TALLY_BROKER_CREDENTIALS there)",
    "tlsCaFile": "a file with the authorities of brokers and name servers: they are asked by TLS (else "
    "TALLY_BROKER_TLS_CA)",
    "tlsCertFile": "a file with the certificate that is shown to them (else TALLY_BROKER_TLS_CERT)",
    "tlsKeyFile": "a file with its key (else TALLY_BROKER_TLS_KEY)",
}

FOLLOWING_ONLY = (*TRIGGERING, "groupId")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")

OPTIONS = {
    "path": "what load(path) says: the topics, as in subscribe",
    "nameServer": "where brokers are known: host:port, several parted by ; (else TALLY_NAMESRV, else the running "
    "development cluster)",
    **SECURITY,
    "subscribe": "the topics to read, parted by commas",
    "subscribePattern": "instead of subscribe: a regular expression that whole names of topics match",
    "assign": 'instead of subscribe: single queues as JSON, {"topic": {"broker": [0, 1]}}',
    "columns": "which columns, in which order (default: all but headers)",
    "includeHeaders": "true: the column headers, too, with the properties as Kafka's source has them (default false)",
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
    **triggering("messages"),
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
    security: BrokerSecurity | None = None

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
        start_ms, end_ms = values.timestamps()
        start = _bound(values, "starting", start_ms, LATEST if follows else EARLIEST)
        end = _bound(values, "ending", end_ms, LATEST)
        if end.default == EARLIEST and end.timestamp_ms is None:
            raise UsageError("endingOffsets is latest or JSON: nothing ends at its beginning")
        return cls(
            name_servers=name_servers_of(values.given_or("nameServer", lambda: find_name_server(environment))),
            security=security_of(values),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            columns=values.columns(COLUMNS),
            start=start,
            end=end,
            fail_on_data_loss=values.is_true("failOnDataLoss", default=True),
            slave_first=values.choice("readFrom", ("master", "slave")) == "slave",
            group=check_group(values.text("group", GROUP)),
            decode=values.is_true("decode", default=True),
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
    given = values.only_one(SUBSCRIPTIONS, "which topics are to be read")
    if given == "subscribePattern":
        return (), values.pattern("subscribePattern"), None
    if given == "assign":
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
    except (ValueError, TypeError, AttributeError, RecursionError):
        queues = frozenset()
    if not queues:
        raise UsageError('assign is JSON as in {"topic": {"broker": [0, 1]}}', value=text)
    return queues


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def security_of(values: OptionValues) -> BrokerSecurity | None:
    """Returns what the options say; None if none of them is given. Raises UsageError."""
    if not any(name in values for name in SECURITY):
        return None
    return BrokerSecurity(
        credentials_file=values.text("credentialsFile") or None,
        tls_ca_file=values.text("tlsCaFile") or None,
        tls_cert_file=values.text("tlsCertFile") or None,
        tls_key_file=values.text("tlsKeyFile") or None,
    )


def client_settings(security: BrokerSecurity | None) -> BrokerClientSettings:
    """Returns the settings of a worker's client."""
    return BrokerClientSettings(security=security_here(security))


def name_servers_of(text: str) -> tuple[str, ...]:
    """Returns the addresses of the option nameServer. Raises UsageError."""
    addresses = addresses_in(text)
    if not addresses:
        raise UsageError("nameServer is host:port, several parted by ;", nameServer=text)
    return addresses


def _bound(values: OptionValues, end: str, ms: int | None, default: int) -> Bound:
    if ms is not None:
        return Bound(f"{end}Timestamp", timestamp_ms=ms)
    return Bound.parse(f"{end}Offsets", values.text(f"{end}Offsets"), default)
