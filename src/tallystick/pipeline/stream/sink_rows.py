"""The rows that are written, as messages: ``value``, and with it ``key``, ``properties`` and ``eventTime``.

Bytes and texts are taken for keys and values, a text in UTF-8. A key of bytes is one of bytes to every Pulsar client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES
from tallystick.errors import UsageError
from tallystick.pipeline.sink_columns import BINARY_OR_STRING
from tallystick.pipeline.sink_columns import check_columns as check_known

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": BINARY_OR_STRING,
    "key": BINARY_OR_STRING,
    "properties": ("map<string,string>",),
    "eventTime": ("timestamp",),
}


def check_columns(schema: StructType, *, is_raw: bool) -> tuple[str, ...]:
    """Returns the columns of a frame as ours are spelled. Raises UsageError for a frame that is no messages."""
    example = "selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
    names = check_known(schema, COLUMNS, example=example)
    if "value" not in names:
        raise UsageError("a frame that is written has a column value, of binary or string")
    if is_raw and len(names) > 1:
        raise UsageError("raw entries are values alone: they have no key, properties or eventTime")
    return names


def messages_of(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[OutMessage]:
    """Returns the rows of an Arrow batch, in order. Raises UsageError for one without a value."""
    by_name = dict(zip(columns, batch.columns, strict=True))
    absent = [None] * batch.num_rows
    parts = [_values(name, by_name[name]) if name in by_name else absent for name in COLUMNS]
    for number, (value, key, properties, event_time) in enumerate(zip(*parts, strict=True)):
        if value is None:
            raise UsageError("a row has no value: leave it out, or write an empty one", row_of_batch=number)
        yield OutMessage(
            value.encode() if isinstance(value, str) else value,
            key,
            None if event_time is None else _ms(event_time, number),
            NO_PROPERTIES if properties is None else _properties(properties),
        )


def _values(name: str, column: pa.Array) -> list[Any]:
    """Returns what each row has; of a time its microseconds since 1970, which Python may have no datetime for."""
    if name == "eventTime":
        import pyarrow as pa

        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _ms(time_us: int, number: int) -> int:
    ms = (time_us + 500) // 1000
    if ms < 0:
        raise UsageError(
            "an event time is not before 1970: messages count from there", row_of_batch=number, eventTime_us=time_us
        )
    return ms


def _properties(pairs: list[tuple[str, Any]]) -> dict[str, str]:
    return {name: "" if value is None else value for name, value in pairs}
