"""How a table is kept, with what is checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tallystick.errors import UsageError
from tallystick.runtime.arguments import check_settings, mapping, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AVAILABLE_NOW = "available-now"
PARTITIONS: Mapping[str, tuple[str, ...]] = {"": (), "day": ("event_day",), "hour": ("event_day", "event_hour")}
_INTERVAL = re.compile(r"\d{1,9} ?(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)", re.ASCII)
_SPARK_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

HEADERS = ("", "confluent")  # of values in Avro
MAX_COLUMNS = 1_000

Schema = Literal["json", "avro", "raw"]


@dataclass(frozen=True)
class IngestSettings:
    """How rows become those of a table, and how that is kept. Raises UsageError for values that cannot work."""

    # "json": the fields of the objects in the value; "avro": those of the record; "raw": the source's columns; or a
    # function of a frame.
    schema: Schema | Callable[[DataFrame], DataFrame] = "json"
    # Of "json", as in "carrier STRING, delay INT"; "": whatever fields there are. Of "avro" its schema, or a file.
    value_schema: str = ""
    value_header: str = ""  # before each value of "avro": "confluent", a zero and the number of a schema; "": nothing
    partition_by: str = ""  # "day" or "hour" of the event time, in UTC; "": none
    event_time: str = ""  # an expression of SQL over the columns; "": the source's event time, or its publish time
    trigger: str = "10 seconds"  # a batch so often; "available-now": what there is now, and then the end
    compact_every: int = 50  # commits of a Delta table until its small files are made large ones; 0: never
    target_file_bytes: int = 128 * 1024 * 1024  # a file is full with these, and compaction makes such files
    max_columns: int = MAX_COLUMNS  # of a table: fields of JSON beyond these are set aside with their rows
    orphan_age_s: float = 3_600.0  # files of dead attempts are deleted when they are so old
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg: properties for pyiceberg's load_catalog

    def __post_init__(self) -> None:
        check_settings(self, may_be_zero=("compact_every", "orphan_age_s"))
        for name in ("value_schema", "value_header", "partition_by", "event_time", "trigger"):
            text(getattr(self, name), name)
        mapping(self.catalog, "catalog")
        self._check_schema()
        if self.partition_by not in PARTITIONS:
            raise UsageError("partition_by is day or hour", given=self.partition_by)
        if self.event_time and not self.partition_by:
            raise UsageError("event_time says nothing without partition_by")
        if not all(isinstance(each, str) for pair in self.catalog.items() for each in pair):
            raise UsageError("catalog has texts as names and values")
        self.spark_trigger()

    def _check_schema(self) -> None:
        if not callable(self.schema) and self.schema not in ("json", "avro", "raw"):
            raise UsageError("schema is json, avro, raw, or a function from a frame to another one", given=self.schema)
        if self.value_schema and self.schema not in ("json", "avro"):
            raise UsageError("value_schema is of the schemas json and avro", schema=self.schema)
        if not self.value_schema and self.schema == "avro":
            raise UsageError("the schema avro needs a value_schema: Avro's own as JSON, or a file that has it")
        if self.value_header not in HEADERS or (self.value_header and self.schema != "avro"):
            raise UsageError("value_header is confluent, of the schema avro", given=self.value_header)

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
