"""How a table is kept, with what is checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tallystick.errors import UsageError
from tallystick.runtime.arguments import check_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AVAILABLE_NOW = "available-now"
PARTITIONS: Mapping[str, tuple[str, ...]] = {"": (), "day": ("event_day",), "hour": ("event_day", "event_hour")}
_INTERVAL = re.compile(r"\d{1,9} ?(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)", re.ASCII)
_SPARK_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

Schema = Literal["json", "raw"]


@dataclass(frozen=True)
class IngestSettings:
    """How rows become those of a table, and how that is kept. Raises UsageError for values that cannot work."""

    # "json": the fields of the objects in the value; "raw": the source's columns; or a function of a frame.
    schema: Schema | Callable[[DataFrame], DataFrame] = "json"
    value_schema: str = ""  # of "json", as in "carrier STRING, delay INT"; "": whatever fields there are
    partition_by: str = ""  # "day" or "hour" of the event time, in UTC; "": none
    event_time: str = ""  # an expression of SQL over the columns; "": the source's event time, or its publish time
    trigger: str = "10 seconds"  # a batch so often; "available-now": what there is now, and then the end
    compact_every: int = 50  # commits of a Delta table until its small files are made large ones; 0: never
    target_file_bytes: int = 128 * 1024 * 1024  # a file is full with these, and compaction makes such files
    max_columns: int = 1_000  # of a table: fields of JSON beyond these are set aside with their rows
    orphan_age_s: float = 3_600.0  # files of dead attempts are deleted when they are so old
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg: properties for pyiceberg's load_catalog

    def __post_init__(self) -> None:
        check_settings(self, may_be_zero=("compact_every", "orphan_age_s"))
        if self.schema not in ("json", "raw") and not callable(self.schema):
            raise UsageError("schema is json, raw, or a function from a data frame to another one", given=self.schema)
        if self.value_schema and self.schema != "json":
            raise UsageError("value_schema is of the schema json", schema=self.schema)
        if self.partition_by not in PARTITIONS:
            raise UsageError("partition_by is day or hour", given=self.partition_by)
        if self.event_time and not self.partition_by:
            raise UsageError("event_time says nothing without partition_by")
        if not all(isinstance(text, str) for pair in self.catalog.items() for text in pair):
            raise UsageError("catalog has texts as names and values")
        self.spark_trigger()

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return PARTITIONS[self.partition_by]

    def spark_trigger(self) -> dict[str, str | bool]:
        """Returns what ``DataStreamWriter.trigger`` takes."""
        if self.trigger == AVAILABLE_NOW:
            return {"availableNow": True}
        match = _INTERVAL.fullmatch(self.trigger)
        if match is None:
            raise UsageError(f"trigger is {AVAILABLE_NOW}, or a time as in 500ms or 10 seconds", given=self.trigger)
        number = self.trigger.removesuffix(match[1]).strip()
        return {"processingTime": f"{number} {_SPARK_UNITS.get(match[1], match[1])}"}
