from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from examples.flights import data


def test_the_columns_are_typed_and_missing_values_are_null() -> None:
    table = data.load(1000)
    assert table.num_rows == 1000 and table["row"].to_pylist() == list(range(1000))
    assert set(data.ORDER) | {"event_time"} == set(table.column_names)
    for name in table.column_names:
        assert table.schema.field(name).type == (
            data.UTC_MICROS if name == "event_time" else data.column_type(name)
        ) or (name == "row" and table.schema.field(name).type == pa.int64())
    assert table["dep_delay"].null_count > 0
    assert table["event_time"][0].as_py() == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)  # 5:15 in New York


def test_payloads_are_objects_with_the_row_and_the_19_columns_in_batches() -> None:
    table = data.load(50)
    batches = list(data.payloads(table, 20, batch_rows=12))
    assert [len(batch) for batch in batches] == [12, 12, 6]
    records = [msgspec.json.decode(payload) for batch in batches for payload in batch]
    assert [record["row"] for record in records] == list(range(20, 50))
    assert all(tuple(record) == data.ORDER for record in records)
