"""Whatever is wrong with what the queries made must be seen, and so must how far behind they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights import data, results
from examples.flights.acks import AckedRun
from examples.flights.results import Commit, compare_derived, lag

SOURCE = data.load(10)
NAMES = ["row", "carrier", "hour", "dep_delay", "event_time"]
DERIVED = SOURCE.select(NAMES).set_column(4, "event_time", SOURCE["event_time"].cast(pa.timestamp("ms", tz="UTC")))


def replaced(name: str, value: object) -> pa.Table:
    index = NAMES.index(name)
    values = [value, *DERIVED[name].to_pylist()[1:]]
    return DERIVED.set_column(index, name, pa.array(values, DERIVED.schema.field(name).type))


def test_an_equal_stream_is_good_in_any_order() -> None:
    for table in (DERIVED, DERIVED.take(pa.array(range(9, -1, -1)))):
        found = compare_derived(SOURCE, table)
        assert found.good and found.rows == 10 and found.faults == ()


@pytest.mark.parametrize(
    ("damage", "counts", "faults"),
    [
        (lambda: DERIVED.filter(pc.not_equal(DERIVED["row"], 2)), (1, 0, 0), ("lost: row 2",)),
        (lambda: pa.concat_tables([DERIVED, DERIVED.slice(3, 1)]), (0, 1, 0), ("doubled: row 3",)),
        (lambda: replaced("carrier", "XX"), (0, 0, 1), ("unlike the source: row 0",)),
        (lambda: replaced("dep_delay", None), (0, 0, 1), ("unlike the source: row 0",)),
        (lambda: replaced("event_time", 1), (0, 0, 1), ("unlike the source: row 0",)),
        (lambda: replaced("row", 99), (1, 0, 1), ("lost: row 0", "unlike the source: row 99")),
        (lambda: DERIVED.slice(0, 0), (10, 0, 0), ("lost: row 0, 1, 2, 3, 4, …",)),
    ],
)
def test_each_kind_of_damage_is_counted_and_named(
    damage: Callable[[], pa.Table], counts: tuple[int, int, int], faults: tuple[str, ...]
) -> None:
    found = compare_derived(SOURCE, damage())
    assert not found.good
    assert (found.lost, found.doubled, found.different) == counts and found.faults == faults


def test_lag_is_what_is_acknowledged_and_not_visible() -> None:
    acked = [AckedRun(0, 0, 0, 5, time=1.0), AckedRun(0, 5, 5, 5, time=2.0)]
    assert lag(acked, [Commit(1.5, 4), Commit(3.0, 6)], [0.0, 1.0, 1.7, 2.0, 3.5]) == [0, 5, 1, 6, 0]
    assert lag(acked, [], [2.5]) == [10]


def test_a_compaction_of_the_table_adds_no_rows(tmp_path: Path) -> None:
    def version(rows: int, is_new: bool) -> Path:
        added = {"stats": json.dumps({"numRecords": rows}), "dataChange": is_new}
        path = tmp_path / "version.json"
        path.write_text(
            "\n".join(map(json.dumps, [{"commitInfo": {"timestamp": 1500}}, {"add": added}, {"remove": {}}]))
        )
        return path

    assert results._commit(version(7, True)) == Commit(1.5, 7)
    assert results._commit(version(7, False)) == Commit(1.5, 0)
