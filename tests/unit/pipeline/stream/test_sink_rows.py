"""Frames become messages, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.errors import UsageError
from tallystick.pipeline.stream.sink_rows import check_columns, messages_of

STRINGS = pa.map_(pa.string(), pa.string())


TEXT, BYTES, NUMBER, TIME = StringType(), BinaryType(), LongType(), TimestampType()


def columns(*, is_raw: bool = False, **types: DataType) -> tuple[str, ...]:
    schema = StructType()
    for name, kind in types.items():
        schema.add(name, kind)
    return check_columns(schema, is_raw=is_raw)


def test_columns_come_in_any_order_and_case() -> None:
    given = columns(eventtime=TIME, VALUE=TEXT, key=BYTES, properties=MapType(TEXT, TEXT))
    assert given == ("eventTime", "value", "key", "properties")
    assert columns(value=BYTES, is_raw=True) == ("value",)


@pytest.mark.parametrize(
    ("types", "is_raw", "text"),
    [
        ({"value": BYTES, "id": NUMBER}, False, "column id is none of value, key"),
        ({"value": NUMBER}, False, "column value is of binary or string, not of bigint"),
        ({"value": TEXT, "eventTime": NUMBER}, False, "column eventTime is of timestamp, not of bigint"),
        ({"value": TEXT, "properties": MapType(TEXT, IntegerType())}, False, "not of map<string,int>"),
        ({"key": TEXT}, False, "has a column value"),
        ({"value": TEXT, "Value": TEXT}, False, "has one column value, in whatever case"),
        ({"value": TEXT, "key": TEXT}, True, "raw entries are values alone"),
    ],
)
def test_what_is_no_message_is_refused(types: dict[str, DataType], is_raw: bool, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        columns(is_raw=is_raw, **types)
    assert text in str(refused.value)


def test_rows_are_messages_in_their_order() -> None:
    time = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["ü", ""]),
            pa.array([b"\xff", None], pa.binary()),
            pa.array([[("a", "1"), ("b", None)], None], STRINGS),
            pa.array([time, None], pa.timestamp("us", tz="UTC")),
        ],
        names=["value", "key", "properties", "eventTime"],
    )
    assert list(messages_of(batch, ("value", "key", "properties", "eventTime"))) == [
        OutMessage("ü".encode(), b"\xff", 1500, {"a": "1", "b": ""}),
        OutMessage(b"", None, None, {}),
    ]


def test_rows_that_cannot_be_stored_are_refused() -> None:
    with pytest.raises(UsageError, match="has no value"):
        list(messages_of(pa.RecordBatch.from_pydict({"v": [b"a", None]}), ("value",)))
    early = pa.array([datetime(1969, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]), early], names=["value", "eventTime"])
    with pytest.raises(UsageError, match="not before 1970"):
        list(messages_of(batch, ("value", "eventTime")))


def test_a_time_that_python_has_not_is_written() -> None:
    """It may be what another producer sent."""
    late = pa.array([253_402_300_800_000_499, (1 << 63) - 1], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), late], names=["value", "eventTime"])
    assert list(messages_of(batch, ("value", "eventTime"))) == [
        OutMessage(b"a", None, 253_402_300_800_000),
        OutMessage(b"b", None, 9_223_372_036_854_776),
    ]
