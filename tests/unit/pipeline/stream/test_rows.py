from __future__ import annotations

from typing import Any

from tallystick.bookkeeper.wire.pulsar_messages import InMessage
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES, Position
from tallystick.pipeline.stream.rows import SCHEMA, RowRun, arrays_of, bytes_of, row_of, row_of_raw
from tallystick.pipeline.stream.schema import COLUMNS


def message(entry: int, data: bytes = b"v", **fields: Any) -> InMessage:
    plain = InMessage(Position(7, entry), data, None, NO_PROPERTIES, 1_000, None, "p", 5)
    return plain._replace(**fields)


def run_of(*messages: InMessage, stream: str = "s") -> RowRun:
    rows = [row_of(each) for each in messages]
    return RowRun(stream, 7, rows, bytes_of(rows))


def column(name: str, *runs: RowRun) -> list[Any]:
    [array] = arrays_of(runs, [name])
    assert array.type == SCHEMA.field(name).type
    return list(array.to_pylist())


def test_columns_are_those_of_the_schema() -> None:
    assert SCHEMA.names == list(COLUMNS.types)
    run = run_of(message(0), message(1, position=Position(7, 1, 3)))
    arrays = arrays_of([run, run_of(message(2), stream="t")], SCHEMA.names)
    assert [len(array) for array in arrays] == [3] * len(COLUMNS.types)
    assert [array.type for array in arrays] == [field.type for field in SCHEMA]


def test_places() -> None:
    runs = [run_of(message(0), message(1, position=Position(7, 1, 3))), run_of(message(2), stream="t")]
    assert column("stream", *runs) == ["s", "s", "t"]
    assert column("position", *runs) == ["7:0", "7:1:3", "7:2"]
    assert column("ledger", *runs) == [7, 7, 7] and column("entry", *runs) == [0, 1, 2]
    assert column("batchIndex", *runs) == [None, 3, None]


def test_keys_and_values() -> None:
    run = run_of(message(0, b"", key="ü"), message(1, key=b"\xff"), message(2), message(3, b"", is_null=True))
    assert column("key", run) == ["ü".encode(), b"\xff", None, None]
    assert column("value", run) == [b"", b"v", b"v", None]
    assert column("value", run._replace(rows=run.rows[:3])) == [b"", b"v", b"v"]


def test_properties() -> None:
    run = run_of(message(0, properties={"a": "1", "b": ""}), message(1), message(2, properties={"c": "ü"}))
    assert column("properties", run) == [[("a", "1"), ("b", "")], [], [("c", "ü")]]


def test_times_and_numbers_as_java_sees_them() -> None:
    run = run_of(message(0, event_time_ms=1), message(1, sequence=(1 << 64) - 1, publish_time_ms=(1 << 64) - 1))
    assert [time and time.timestamp() for time in column("eventTime", run)] == [0.001, None]
    assert [time.timestamp() for time in column("publishTime", run)] == [1.0, -0.001]
    of_nanoseconds = run_of(message(0, event_time_ms=1_700_000_000_000_000_000), message(1, event_time_ms=1))
    assert [time and time.timestamp() for time in column("eventTime", of_nanoseconds)] == [None, 0.001]
    assert column("sequence", run) == [5, -1] and column("producer", run) == ["p", "p"]


def test_raw_entries_have_a_place_and_a_value() -> None:
    run = RowRun("s", 7, [row_of_raw(0, b"x"), row_of_raw(1, b"")], 1)
    assert column("value", run) == [b"x", b""] and column("position", run) == ["7:0", "7:1"]
    assert column("properties", run) == [[], []]
    for name in COLUMNS.nullable - {"value"}:
        assert column(name, run) == [None, None]
