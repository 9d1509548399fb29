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
from tallystick.pipeline.option_values import BATCH_ONLY, CUTTING, TRIGGERING, OptionValues, triggering
from tallystick.pipeline.stream.bounds import StreamBound, Word
from tallystick.pipeline.stream.schema import COLUMNS
from tallystick.pipeline.trigger import TriggerLimits

FOLLOWING_ONLY = (*TRIGGERING, "cursor")

OPTIONS = {
    "path": "what load(path) says: the streams, as in subscribe",
    "uri": "where the metadata is: sqlite:///path or zk+hierarchical://host:port;host:port/ledgers (else TALLY_URI, "
    "else the running development cluster)",
    "subscribe": "the streams to read, parted by commas: tenant/namespace/persistent/topic, or "
    "persistent://tenant/namespace/topic",
    "subscribePattern": "instead of subscribe: a regular expression that whole names tenant/namespace/persistent/topic "
    "match",
    "columns": "which columns, in which order (default: all but headers)",
    "includeHeaders": "true: the column headers, too, with the properties as Kafka's source has them (default false)",
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
    **triggering("entries"),
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
        start_ms, end_ms = values.timestamps()
        start = _bound(values, "starting", start_ms, "latest" if follows else "earliest")
        end = _bound(values, "ending", end_ms, "latest")
        if end.default == "earliest":
            raise UsageError("endingOffsets is latest or JSON: nothing ends at its beginning")
        is_raw = values.choice("entryFormat", ENTRY_FORMATS) == "raw"
        if is_raw and (start_ms, end_ms) != (None, None):
            raise UsageError("raw entries do not say when they were published: begin and end with offsets")
        if pattern is None:
            start.check(streams)
            end.check(streams)
        return cls(
            uri=require_shared(values.given_or("uri", lambda: find_uri(environment))),
            streams=streams,
            pattern=pattern,
            columns=values.columns(COLUMNS),
            start=start,
            end=end,
            fail_on_data_loss=values.is_true("failOnDataLoss", default=True),
            is_raw=is_raw,
            limits=values.limits(),
            trigger=values.trigger_limits(),
            cursor=cursor_name(values.text("cursor")) if "cursor" in values else None,
        )


def _subscription(values: OptionValues) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    if values.only_one(("subscribe", "subscribePattern"), "which streams are to be read") == "subscribePattern":
        return (), values.pattern("subscribePattern")
    names = [name.strip() for name in values.text("subscribe").split(",")]
    return tuple(sorted({stream_name(name) for name in names})), None


def _bound(values: OptionValues, end: str, ms: int | None, default: Word) -> StreamBound:
    if ms is not None:
        return StreamBound(f"{end}Timestamp", default, timestamp_ms=ms)
    return StreamBound.parse(f"{end}Offsets", values.text(f"{end}Offsets"), default)
