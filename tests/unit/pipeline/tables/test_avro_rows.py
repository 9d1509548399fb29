"""Values in Avro as columns: what is whole is in them, and all else is set aside as it came."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import UsageError
from tallystick.pipeline.tables import avro_rows
from tallystick.pipeline.tables.avro_rows import AvroDecoder, AvroFields

UTC = datetime.UTC
AT = datetime.datetime(2024, 2, 29, 12, 30, 1, 250_000, tzinfo=UTC)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
STOP = {"type": "record", "name": "Stop", "fields": [{"name": "at", "type": MILLIS}]}
FLIGHT = {
    "type": "record", "name": "Flight", "namespace": "air",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "number", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": [{"type": "long", "logicalType": "timestamp-micros"}, "null"]},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["LATE", "FINE"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "other", "type": ["null", "Code"]},
        {"name": "stops", "type": {"type": "array", "items": STOP}},
        {"name": "named", "type": {"type": "map", "values": "Stop"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "yes", "type": "boolean"}, {"name": "part", "type": "float"}, {"name": "whole", "type": "double"},
        {"name": "raw", "type": "bytes"},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "carrier": "UÄ", "delay": None, "number": -(2**63), "day": datetime.date(1, 1, 1), "at": AT,
    "fare": decimal.Decimal("-1234.05"), "id": "0731e794-3bae-4cf6-888f-1292c5a903a6", "state": "FINE", "code": b"abc",
    "other": b"xyz", "stops": [{"at": AT}], "named": {"home": {"at": AT}}, "time": 7, "yes": True, "part": 1.5,
    "whole": 0.1, "raw": b"\0\xff",
}  # fmt: skip


def body(row: dict[str, Any], schema: Any = FLIGHT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {**row, "time": datetime.time(0, 0, 0, 7_000)})
    return out.getvalue()


def decode(values: list[bytes | None], schema: Any = FLIGHT, header: str = "") -> list[dict[str, Any]]:
    decoder = pickle.loads(pickle.dumps(AvroDecoder(json.dumps(schema), header)))
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(values))), pa.array(values, pa.binary())], ["_n", "value"])
    rows = [row for part in decoder([batch]) for row in part.to_pylist()]
    assert [row.pop("_n") for row in rows] == [*range(len(values))]
    return rows


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def test_all_types() -> None:
    (row,) = decode([body(ROW)])
    assert row.pop("_dead_letter") is None
    assert row == {**ROW, "named": [("home", {"at": AT})]}
    assert {name: kind.simpleString() for name, kind in AvroFields(json.dumps(FLIGHT)).columns.items()} == {
        "carrier": "string", "delay": "int", "number": "bigint", "day": "date", "at": "timestamp",
        "fare": "decimal(6,2)", "id": "string", "state": "string", "code": "binary", "other": "binary",
        "stops": "array<struct<at:timestamp>>", "named": "map<string,struct<at:timestamp>>", "time": "int",
        "yes": "boolean", "part": "float", "whole": "double", "raw": "binary",
    }  # fmt: skip


def test_what_is_not_whole_is_set_aside_and_its_neighbours_are_not() -> None:
    whole = body(ROW)
    bad = [whole[:-1], whole + b"\0", b"", b"\xff" * 40, whole[:3]]
    rows = decode([whole, *bad, None, whole])
    assert [row["_dead_letter"] for row in rows] == [None, *bad, None, None]
    assert [row["number"] for row in rows] == [-(2**63), *[None] * 6, -(2**63)]


@pytest.mark.parametrize("around", [lambda kind: kind, lambda kind: {"type": "array", "items": kind}])
def test_negative_indexes_of_unions_and_enums_are_none(around: Any) -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["x", "y"]}
    schema = record(("a", around(["null", "long"])), ("e", around(enum)), ("again", around(["null", "E"])))
    start, end = (b"", b"") if around(0) == 0 else (b"\2", b"\0")  # one item, and no more

    def value(union: bytes, symbol: bytes, again: bytes) -> bytes:
        return b"".join(start + part + end for part in (union, symbol, again))

    good = value(b"\2\4", b"\2", b"\2\0")
    bad = [value(b"\1\4", b"\2", b"\0"), value(b"\3", b"\2", b"\0"), value(b"\0", b"\1", b"\0")]
    bad += [value(b"\0", b"\3", b"\0"), value(b"\0", b"\0", b"\1\0"), value(b"\0", b"\0", b"\2\1")]
    rows = decode([good, *bad], schema)
    assert [row["_dead_letter"] for row in rows] == [None, *bad]
    assert json.dumps(rows[0]["e"]) in ('"y"', '["y"]')


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ({"type": "int", "logicalType": "date"}, 2_932_897),  # the first day of the year 10,000
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62),
        ({"type": "long", "logicalType": "timestamp-micros"}, -(2**63)),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 253_402_300_800_000),
    ],
)
def test_times_that_no_table_has(kind: Any, number: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record(("t", kind["type"]))), {"t": number})
    assert decode([out.getvalue()], record(("t", kind)))[0] == {"t": None, "_dead_letter": out.getvalue()}


def test_numbers_of_too_many_digits() -> None:
    schema, plain = (
        record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1})),
        record(("d", "bytes")),
    )
    values = [
        body({"d": number.to_bytes(size, "big", signed=True)}, plain) for number, size in ((-9999, 9), (10_000, 9))
    ]
    values += [body({"d": b"\1" * 5_000_000}, plain)]  # which as a number of decimal digits would take hours
    rows = decode([*values], schema)
    assert [row["d"] for row in rows] == [decimal.Decimal("-999.9"), None, None]
    assert [row["_dead_letter"] is None for row in rows] == [True, False, False]


def test_a_header_of_five_bytes() -> None:
    schema = record(("n", "long"))
    value = body({"n": 5}, schema)
    values = [b"\0\0\0\0\7" + value, b"\1\0\0\0\7" + value, b"\0\0\0\7", value]
    rows = decode([*values], schema, "confluent")
    assert [row["n"] for row in rows] == [5, None, None, None]
    assert [row["_dead_letter"] for row in rows] == [None, *values[1:]]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes(values: list[bytes]) -> None:
    for value, row in zip(values, decode([*values]), strict=True):
        assert (row["_dead_letter"] == value) == (row["number"] is None)


def test_blocks_that_promise_more_than_there_is_take_no_memory() -> None:
    schema = record(("list", {"type": "array", "items": "boolean"}), ("text", "string"))
    longest = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1
    tracemalloc.start()
    try:
        values: list[bytes | None] = [longest + b"\1", b"\0" + longest + b"a", b"\1\1" + longest]
        assert [row["_dead_letter"] for row in decode(values, schema)] == values
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_value_of_very_many_parts_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows._CountedReads, "_left", 100_000)
    schema = record(("list", {"type": "array", "items": ["null", "boolean"]}))
    few, many = body({"list": [None] * 10}, schema), body({"list": [None] * 200_000}, schema)
    rows = decode([few, many], schema)
    assert [row["_dead_letter"] for row in rows] == [None, many]
    assert (len(rows[0]["list"]), rows[1]["list"]) == (10, None)


def test_long_values_are_decoded_few_at_a_time() -> None:
    schema = record(("b", "bytes"))
    decoder = AvroDecoder(json.dumps(schema), "")
    value = body({"b": bytes(3_000_000)}, schema)
    batch = pa.RecordBatch.from_arrays([pa.array([value, b"", value, None, value], pa.binary())], ["value"])
    parts = [*decoder([batch])]
    assert [part.num_rows for part in parts] == [2, 2, 1]
    assert [part.num_rows for part in decoder([batch.slice(0, 0)])] == [0]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("no.avsc", "value_schema of avro is a schema as JSON, or a file"),
        ("{", "value_schema is no schema of Avro"),
        (record(("a", "text")), "no schema of Avro: UnknownType"),
        ('"string"', "value_schema is an Avro record"),
        (record(("_a", "int")), "field '_a' of value_schema begins with an underscore"),
        (record(("a", "int"), ("A", "int")), "field 'A' of value_schema differs from another one in case alone"),
        (record(("a", ["int", "string"])), "a union has null and one other type"),
        (record(("a", "null")), "a value of the Avro type null"),
        (record(("a", ["null", "R"])), "the Avro type R contains itself"),
        (record(), "takes a byte at least"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "takes a byte at least"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "1 to 38 digits"),
    ],
)  # fmt: skip
def test_schemas_that_no_table_has(schema: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        AvroFields(schema if isinstance(schema, str) else json.dumps(schema))


def test_types_in_types_have_an_end() -> None:
    kind: Any = "int"
    for _ in range(200):
        kind = {"type": "array", "items": kind}
    with pytest.raises(UsageError, match="64 types in one another"):
        AvroFields(json.dumps(record(("a", kind))))


def test_a_file_of_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "flight.avsc"
    path.write_text(json.dumps(FLIGHT))
    assert AvroFields(str(path)).columns.keys() == ROW.keys()
