"""Values of messages as columns: what fits is in them, and all else is set aside as it came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tallystick.errors import UsageError
from tallystick.pipeline.tables.rows import BatchRows, arrow_schema
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.spark import decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

WHOLE: list[Any] = [
    {"n": 1, "text": "a", "part": 1.5, "yes": True, "list": [1, {"x": 2}], "in": {"deep": [None]}, "none": None},
    {"n": -(2**63), "text": 7, "part": 2, "big": 10**30, "OBJECT<": 2},
    {},
]
UNFIT = [
    b"",
    b" ",
    b"no object",
    b"7",
    b"[1, 2]",
    b'"text"',
    b"null",
    b'{"n": 1',
    b'{"n": 1} and more',
    b'{"n": 1}, {"n": 2}',
    b'{"n": 1}} and more',
    b'{"text": "\xff"}',
    b'{"text": "one", "text": "two"}',
    b'{"N": 1}',
    b'{"_position": "0:0"}',
    b'{"": 1}',
    b'{"a b": 1}',
    b'{"a`b": 1}',
    b'{"deep": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
]


def source(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(f"1:{number}", value) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, "position string, value binary")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in sorted(frame.collect(), key=lambda row: int(row._position[2:]))]


def test_fields_are_found_and_nothing_is_lost(spark: SparkSession) -> None:
    values = [json.dumps(each).encode() for each in WHOLE]
    frame = decoded(source(spark, [*values, *UNFIT, None]))
    assert {each.name: each.dataType.simpleString() for each in frame.schema.fields} == {
        "_position": "string", "n": "bigint", "text": "string", "part": "double", "yes": "boolean", "list": "string",
        "in": "string", "big": "string", "OBJECT<": "bigint", "_dead_letter": "binary",
    }  # fmt: skip
    rows = rows_of(frame)
    assert (rows[0]["n"], rows[0]["text"], rows[0]["part"], rows[0]["yes"]) == (1, "a", 1.5, True)
    assert (json.loads(rows[0]["list"]), json.loads(rows[0]["in"])) == (WHOLE[0]["list"], WHOLE[0]["in"])
    assert (rows[1]["n"], rows[1]["text"], rows[1]["part"], rows[1]["big"], rows[1]["OBJECT<"]) == (
        -(2**63), "7", 2.0, str(10**30), 2
    )  # fmt: skip
    assert [bytes(row["_dead_letter"]) for row in rows if row["_dead_letter"] is not None] == UNFIT
    fields = [name for name in rows[0] if not name.startswith("_")]
    assert all(row[name] is None for row in rows[2:] for name in fields)


def test_a_given_schema_reads_what_it_names(spark: SparkSession) -> None:
    values: list[bytes | None] = [b'{"n": 1, "more": 2, "list": [1]}', b'{"n": "x"}', b'{"n": 1.5}', b'{"list": 1}']
    rows = rows_of(decoded(source(spark, values), "n INT, list ARRAY<INT>"))
    assert [(row["n"], row["list"]) for row in rows] == [(1, [1]), (None, None), (None, None), (None, None)]
    assert [row["_dead_letter"] for row in rows] == [None, *values[1:]]


def test_a_table_keeps_its_types_and_bounds_its_columns(spark: SparkSession) -> None:
    table = pa.schema([("n", pa.string()), ("_dead_letter", pa.binary()), ("event_day", pa.date32())])
    rows = BatchRows(IngestSettings(max_columns=2))
    values: list[bytes | None] = [b'{"n": 5, "a": 1}', b'{"n": 6, "b": 1}', b'{"N": 6}']
    frame = rows.shaped(source(spark, values), table)
    assert frame.columns == ["_position", "n", "a", "_dead_letter"]
    assert [(row["n"], row["a"]) for row in rows_of(frame)] == [("5", 1), (None, None), (None, None)]
    assert [row["_dead_letter"] for row in rows_of(frame)] == [None, *values[1:]]


def test_partitions_are_of_the_event_time_in_utc_whatever_the_sessions_zone(spark: SparkSession) -> None:
    values: list[bytes | None] = [b'{"at": "2026-01-01T00:30:00+02:00"}', b'{"at": "never"}', b"bad"]
    frame = source(spark, values).selectExpr("*", "timestamp'1969-12-31T23:00:00Z' AS publishTime")
    shaped = BatchRows(IngestSettings(partition_by="hour", event_time="try_to_timestamp(at)"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = rows_of(shaped.shaped(frame, None))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [(str(row["event_day"]), row["event_hour"]) for row in rows] == [
        ("2025-12-31", 22),
        *[("1969-12-31", 23)] * 2,
    ]


def test_a_function_makes_the_rows_of_a_table(spark: SparkSession) -> None:
    rows = BatchRows(IngestSettings(schema=lambda frame: frame.selectExpr("position", "cast(1 as tinyint) AS one")))
    schema = arrow_schema(rows.shaped(source(spark, [b"x"]), None).schema)
    assert schema == pa.schema([("position", pa.string()), ("one", pa.int32())])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"schema": lambda frame: frame.selectExpr("interval 1 day AS d")}, "column d has the type interval"),
        ({"schema": lambda frame: frame.selectExpr("null AS v")}, "column v has the type void, which"),
        ({"schema": lambda frame: frame.selectExpr("1 AS `a b`")}, "column 'a b' has a character"),
        ({"schema": lambda frame: frame.selectExpr("1 AS n")}, "the schema json reads the column value"),
        ({"schema": "raw", "partition_by": "day"}, "partition_by needs a time"),
        ({"schema": lambda frame: frame.selectExpr("1 AS event_day"), "partition_by": "day"}, "makes the column"),
        ({"value_schema": "n WHAT"}, "value_schema is names with their types"),
        ({"value_schema": "_n INT"}, "field '_n' of value_schema begins with an underscore"),
    ],
)  # fmt: skip
def test_what_no_table_can_have_is_refused(spark: SparkSession, settings: dict[str, Any], said: str) -> None:
    frame = source(spark, [b"{}"])
    if said.startswith("the schema json"):
        frame, settings = settings["schema"](frame), {}
    with pytest.raises(UsageError, match=said):
        BatchRows(IngestSettings(**settings)).shaped(frame, None)


def test_a_frame_that_is_followed_needs_a_schema(spark: SparkSession) -> None:
    followed = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="value_schema must be given for a frame that follows"):
        decoded(followed)
    assert decoded(followed.selectExpr("cast(cast(value as string) as binary) AS value"), "n INT").columns == [
        "n",
        "_dead_letter",
    ]


def test_values_in_avro(spark: SparkSession) -> None:
    schema = json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "long"]}]})
    frame = decoded(source(spark, [b"\2\x0e", b"\0", b"\2", None]), schema, format="avro")
    assert [(row["_position"], row["n"], row["_dead_letter"]) for row in rows_of(frame)] == [
        ("1:0", 7, None), ("1:1", None, None), ("1:2", None, b"\2"), ("1:3", None, None),
    ]  # fmt: skip
    rates = spark.readStream.format("rate").load()
    followed = rates.selectExpr("cast(cast(value as string) as binary) value")
    assert decoded(followed, schema, format="avro", header="confluent").isStreaming
    settings = IngestSettings(schema="avro", value_schema=schema, value_header="confluent")
    (row,) = BatchRows(settings).shaped(source(spark, [b"\0\0\0\0\1\2\x0e"]), None).collect()
    assert (row.n, row._dead_letter) == (7, None)
    for arguments in ({"format": "avro"}, {"format": "xml"}, {"header": "confluent"}):
        with pytest.raises(UsageError):
            decoded(source(spark, []), **arguments)  # type: ignore[arg-type]
