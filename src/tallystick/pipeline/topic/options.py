"""The options of the format ``tally-topic``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.admin.dev_lookup import find_name_server
from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.option_values import CUTTING, OptionValues
from tallystick.pipeline.topic.bounds import EARLIEST, LATEST, Bound
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.rocketmq.remoting.client import addresses_in

# Every broker has this group from its start, so reading makes none. Nothing is ever committed for it.
GROUP = "TOOLS_CONSUMER"

OPTIONS = {
    "path": "what load(path) says: the topic",
    "nameServer": "where brokers are known: host:port, several parted by ; (else TALLY_NAMESRV, else the running "
    "development cluster)",
    "topic": "the topic to read",
    "columns": "which columns, in which order (default: all)",
    "startingOffsets": 'earliest (the default), latest, or by queue as JSON: {"topic": {"broker": {"0": 12, "1": -2}}}',
    "endingOffsets": "latest (the default), or by queue as JSON; exclusive",
    "startingTimestamp": "in ms: from the first message of each queue stored at this time or later",
    "endingTimestamp": "in ms: up to the last message of each queue stored before this time",
    "readFrom": "master (the default) or slave: which is asked first; the other one stands in for it",
    "group": "the consumer group whose rights count (default TOOLS_CONSUMER); no offsets are committed",
    "decode": "true (the default): bodies as they were sent; false: as they are stored, perhaps compressed",
    **CUTTING,
}


@dataclass(frozen=True)
class TopicOptions:
    """All options, checked."""

    name_servers: tuple[str, ...]
    topic: str
    columns: tuple[str, ...] = COLUMNS.names
    start: Bound = field(default_factory=lambda: Bound(EARLIEST))
    end: Bound = field(default_factory=lambda: Bound(LATEST))
    slave_first: bool = False
    group: str = GROUP
    decode: bool = True
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def parse(cls, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> TopicOptions:
        """From Spark's options. ``environment``: None is the process's. Raises UsageError."""
        values = OptionValues(options, OPTIONS).with_path("topic")
        topic = values.text("topic")
        if not topic:
            raise UsageError("the option topic is missing")
        start = _bound(values, topic, "startingOffsets", "startingTimestamp", EARLIEST)
        end = _bound(values, topic, "endingOffsets", "endingTimestamp", LATEST)
        if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms > end.timestamp_ms:
            raise UsageError("startingTimestamp is after endingTimestamp")
        return cls(
            name_servers=_name_servers(values.given_or("nameServer", lambda: find_name_server(environment))),
            topic=topic,
            columns=COLUMNS.parse(values.text("columns")) if "columns" in values else COLUMNS.names,
            start=start,
            end=end,
            slave_first=values.choice("readFrom", ("master", "slave")) == "slave",
            group=values.text("group", GROUP),
            decode=values.choice("decode", ("true", "false")) == "true",
            limits=values.limits(),
        )


def _name_servers(text: str) -> tuple[str, ...]:
    addresses = addresses_in(text)
    if not addresses:
        raise UsageError("nameServer is host:port, several parted by ;", nameServer=text)
    return addresses


def _bound(values: OptionValues, topic: str, offsets: str, timestamp: str, default: int) -> Bound:
    if offsets in values and timestamp in values:
        raise UsageError(f"{offsets} and {timestamp} are two answers to one question: give one")
    if timestamp in values:
        return Bound(timestamp_ms=values.integer(timestamp, 0))
    return Bound.parse(offsets, values.text(offsets), topic, default)
