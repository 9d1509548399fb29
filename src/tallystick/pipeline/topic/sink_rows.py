"""The rows that are written, as messages: ``body`` or ``value``, and with it ``keys`` or ``key``, ``tags``,
``properties`` and ``flag``. Those columns of a frame that was read which tell where a message was are passed over, and
so are properties that clients and brokers set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from tallystick.errors import UsageError
from tallystick.pipeline.sink_columns import BINARY_OR_STRING, check_columns
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.sink_identity import SINK
from tallystick.rocketmq.wire.system_properties import SYSTEM_PROPERTIES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TYPES = {
    "value": BINARY_OR_STRING,
    "key": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "body": BINARY_OR_STRING,
    "keys": ("string",),
}
_OTHER_NAMES = {"value": "body", "key": "keys"}
_PLACES = [name for name in COLUMNS.names if name not in TYPES]
_NOT_OURS = SYSTEM_PROPERTIES | {SINK}


class SinkRow(msgspec.Struct, array_like=True, frozen=True):
    """What a message says. Its encoded form is what tells it from others."""

    body: bytes
    keys: str | None
    tags: str | None
    properties: list[tuple[str, str]]
    flag: int

    def message(self, topic: str) -> Message:
        keys = (self.keys,) if self.keys else ()
        return Message(topic, self.body, self.tags or None, keys, dict(self.properties), self.flag)


encode_row = msgspec.msgpack.Encoder().encode
decode_row = msgspec.msgpack.Decoder(SinkRow).decode


def topic_columns(schema: StructType) -> tuple[str, ...]:
    """Returns the columns of a frame, those that are passed over as they are. Raises UsageError for a frame that is no
    messages."""
    example = "selectExpr('CAST(id AS STRING) AS key', 'to_json(struct(*)) AS value')"
    names = check_columns(schema, TYPES, example=example, passed_over=_PLACES)
    columns = tuple(_OTHER_NAMES.get(name, name) for name in names)
    if "body" not in columns:
        raise UsageError("a frame that is written has a column value (or body), of binary or string")
    if len(set(columns)) < len(columns):
        raise UsageError("value and body are one column, and so are key and keys: give one", columns=",".join(names))
    return columns


def rows_of(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[SinkRow]:
    """Returns the rows of an Arrow batch, in order. Raises UsageError for one without a value."""
    by_name = dict(zip(columns, batch.columns, strict=True))
    absent = [None] * batch.num_rows
    parts = [
        by_name[name].to_pylist() if name in by_name else absent
        for name in ("body", "keys", "tags", "properties", "flag")
    ]
    for number, (body, keys, tags, properties, flag) in enumerate(zip(*parts, strict=True)):
        if not body:
            raise UsageError("a row has no value, or an empty one: a message has a byte at least", row_of_batch=number)
        yield SinkRow(
            body.encode() if isinstance(body, str) else body,
            keys or None,
            tags or None,
            [] if properties is None else _properties(properties),
            flag or 0,
        )


def _properties(pairs: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """In the order of their names: of a map's order nothing is known."""
    return sorted((name, value or "") for name, value in pairs if name not in _NOT_OURS)
