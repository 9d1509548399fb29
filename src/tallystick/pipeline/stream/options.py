"""The options of the format ``tally-stream``; those that Kafka's source has, too, are spelled as there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.admin.dev_lookup import find_uri
from tallystick.bookkeeper.metadata.uri import require_shared
from tallystick.bookkeeper.stream.messages import ENTRY_FORMATS
from tallystick.bookkeeper.stream.names import cursor_name, stream_name
from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.option_values import CUTTING, OptionValues
from tallystick.pipeline.stream.bounds import StreamBound, Word
from tallystick.pipeline.stream.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits

# What only one kind of query has.
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
FOLLOWING_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "cursor")

OPTIONS = {
    "path": "what load(path) says: the streams, as in subscribe",
    "uri": "where the metadata is: sqlite:///path or zk+hierarchical://host:port;host:port/ledgers (else TALLY_URI, "
    "else the running development cluster)",
    "subscribe": "the streams to read, parted by commas: tenant/namespace/persistent/topic, or "
    "persistent://tenant/namespace/topic",
    "subscribePattern": "instead of subscribe: a regular expression that whole names tenant/namespace/persistent/topic "
    "match",
    "columns": "which columns, in which order (default: all)",
    "startingOffsets": "earliest (the default of spark.read), latest (that of spark.readStream), or by stream as JSON: "
    '{"tenant/namespace/persistent/topic": "12:0"}',
    "endingOffsets": "latest (the default), or by stream as JSON; exclusive",
    "startingTimestamp": "in ms: from the first entry of each stream that was published at this time or later",
    "endingTimestamp": "in ms: up to the first entry of each stream that was published at this time or later",
    "failOnDataLoss": "true (the default): what was deleted before it was read is an error; false: it is left out",
    "entryFormat": "pulsar (the default): rows are messages; raw: rows are entries, as they are stored",
    **CUTTING,
    "maxRecordsPerPartition": "the most entries that one task reads, each with a message or a batch of them (default: "
    "any number)",
    "maxOffsetsPerTrigger": "about the most entries of a batch of a streaming query (default: any number)",
    "maxBytesPerTrigger": "about the most bytes of a batch of a streaming query, as in 256m (default: any number)",
    "minOffsetsPerTrigger": "of a streaming query: no batch before there are so many entries (default 1)",
    "maxTriggerDelay": "or the last batch was so long ago, as in 500ms, 10s, 15m or 2h (default 15m)",
    "cursor": "the cursor of each stream that a streaming query moves behind itself (default: none)",
}


@dataclass(frozen=True)
class StreamSourceOptions:
    """All options, checked. Either ``streams`` or a ``pattern``."""

    uri: str
    streams: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    columns: tuple[str, ...] = COLUMNS.names
    start: StreamBound = field(default_factory=lambda: StreamBound("startingOffsets", "earliest"))
    end: StreamBound = field(default_factory=lambda: StreamBound("endingOffsets", "latest"))
    fail_on_data_loss: bool = True
    is_raw: bool = False
    limits: Limits = field(default_factory=Limits)
    trigger: TriggerLimits = field(default_factory=TriggerLimits)
    cursor: str | None = None

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        follows: bool | None = None,
    ) -> StreamSourceOptions:
        """From Spark's options. ``environment``: None is the process's. ``follows``: of a streaming query, or of a
        batch; None where that is not known yet. Raises UsageError."""
        environment = os.environ if environment is None else environment
        values = OptionValues(options, OPTIONS).with_path("subscribe")
        values.refuse_of_other_kind(BATCH_ONLY, FOLLOWING_ONLY, follows=follows)
        streams, pattern = _subscription(values)
        start = _bound(values, "startingOffsets", "startingTimestamp", "latest" if follows else "earliest")
        end = _bound(values, "endingOffsets", "endingTimestamp", "latest")
        if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms > end.timestamp_ms:
            raise UsageError("startingTimestamp is after endingTimestamp")
        is_raw = values.choice("entryFormat", ENTRY_FORMATS) == "raw"
        if is_raw and (start.timestamp_ms, end.timestamp_ms) != (None, None):
            raise UsageError("raw entries do not say when they were published: begin and end with offsets")
        if pattern is None:
            start.check(streams)
            end.check(streams)
        return cls(
            uri=require_shared(values.given_or("uri", lambda: find_uri(environment))),
            streams=streams,
            pattern=pattern,
            columns=COLUMNS.parse(values.text("columns")) if "columns" in values else COLUMNS.names,
            start=start,
            end=end,
            fail_on_data_loss=values.choice("failOnDataLoss", ("true", "false")) == "true",
            is_raw=is_raw,
            limits=values.limits(),
            trigger=values.trigger_limits(),
            cursor=cursor_name(values.text("cursor")) if "cursor" in values else None,
        )


def _subscription(values: OptionValues) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if ("subscribe" in values) == ("subscribePattern" in values):
        raise UsageError("give one of the options subscribe and subscribePattern: which streams are to be read")
    if "subscribePattern" in values:
        return (), values.pattern("subscribePattern")
    names = [name.strip() for name in values.text("subscribe").split(",")]
    return tuple(sorted({stream_name(name) for name in names})), None


def _bound(values: OptionValues, offsets: str, timestamp: str, default: Word) -> StreamBound:
    if offsets in values and timestamp in values:
        raise UsageError(f"{offsets} and {timestamp} are two answers to one question: give one")
    if timestamp in values:
        return StreamBound(timestamp, default, timestamp_ms=values.integer(timestamp, 0))
    return StreamBound.parse(offsets, values.text(offsets), default)
