"""Whatever is wrong with the table must be seen: a comparison that passes everything proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.flights.acks import AckedRun
from examples.flights.verify import LEDGERS, QUEUES, Verdict, compare

ROWS = 10
SOURCE = pa.table(
    {
        "row": pa.array(range(ROWS), pa.int64()),
        "delay": pa.array([None if row == 3 else row - 5 for row in range(ROWS)], pa.int64()),
        "tailnum": pa.array([None if row == 4 else f"N{row}" for row in range(ROWS)], pa.string()),
        "time_hour": pa.array([row * 3_600_000_000 for row in range(ROWS)], pa.timestamp("us", tz="UTC")),
    }
)
ACKED = [AckedRun(part=1, position=0, row=0, count=6, time=0.0), AckedRun(part=2, position=0, row=6, count=4, time=1.0)]
# Rows 0 to 5 are in ledger 1, 6 to 9 in ledger 2.
STORED = SOURCE.add_column(0, "ledger", pa.array([1] * 6 + [2] * 4, pa.int64())).add_column(
    1, "entry", pa.array([*range(6), *range(4)], pa.int64())
)


def replaced(name: str, values: Sequence[object]) -> pa.Table:
    index = STORED.column_names.index(name)
    return STORED.set_column(index, name, pa.array(values, STORED.schema.field(name).type))


def verdict(table: pa.Table) -> Verdict:
    return compare(SOURCE, table, LEDGERS, ACKED)


def test_an_equal_table_is_good_in_any_order_of_its_rows() -> None:
    for table in (STORED, STORED.take(pa.array(range(ROWS - 1, -1, -1)))):
        found = verdict(table)
        assert found.good and (found.rows, found.acknowledged) == (ROWS, ROWS)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda: STORED.filter(pc.not_equal(STORED["row"], 2)), {"lost": 1, "missing": 1}),
        (lambda: pa.concat_tables([STORED, STORED.slice(2, 1)]), {"doubled": 1, "out_of_order": 1}),
        (lambda: replaced("delay", [1, *STORED["delay"].to_pylist()[1:]]), {"different": 1}),
        (lambda: replaced("delay", [*STORED["delay"].to_pylist()[:3], 0, *range(-1, 5)]), {"different": 1}),
        (lambda: replaced("tailnum", [None, *STORED["tailnum"].to_pylist()[1:]]), {"different": 1}),
        (lambda: replaced("time_hour", [1, *range(1, ROWS)]), {"different": ROWS}),
        (lambda: replaced("entry", [1, 0, *range(2, 6), *range(4)]), {"lost": 2, "out_of_order": 1}),
        (lambda: replaced("ledger", [1] * 5 + [2] * 5), {"lost": 1}),
    ],
)
def test_each_kind_of_damage_is_counted(damage: Callable[[], pa.Table], what: dict[str, int]) -> None:
    found = verdict(damage())
    assert not found.good
    assert {name: getattr(found, name) for name in what} == what


def test_queues_lie_beside_each_other_and_each_keeps_its_order() -> None:
    queues = pa.array([row % 2 for row in range(ROWS)], pa.int32())
    offsets = pa.array([row // 2 for row in range(ROWS)], pa.int64())
    table = SOURCE.add_column(0, "queueId", queues).add_column(1, "queueOffset", offsets)
    acked = [AckedRun(part=row % 2, position=row // 2, row=row, count=1, time=0.0) for row in range(ROWS)]
    assert compare(SOURCE, table, QUEUES, acked).good
    swapped = pa.array([1, 1, 0, 0, *[row // 2 for row in range(4, ROWS)]], pa.int64())
    found = compare(SOURCE, table.set_column(1, "queueOffset", swapped), QUEUES, acked)
    assert (found.out_of_order, found.lost, found.missing) == (2, 4, 0)


def test_the_first_rows_of_each_fault_are_named() -> None:
    found = verdict(pa.concat_tables([STORED.slice(6), STORED.slice(9, 1)]))
    assert found.faults == (
        "acknowledged, and not at its place: row 0, 1, 2, 3, 4, …",
        "doubled: row 9",
        "missing: row 0, 1, 2, 3, 4, …",
        "out of order: row 9",
    )
    assert verdict(STORED).faults == ()
