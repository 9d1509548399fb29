from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import sinks
from sinks import FewRows, Round


def test_the_table_has_medians_and_what_once_costs_beside_at_least_once() -> None:
    results = {
        "stream, exactly once": [Round(2.0, 5.0, 1.0), Round(4.0, 9.0, 9.0), Round(3.0, 6.0, 2.0)],
        "stream, at least once": [Round(2.0, 4.0, 1.0)],
        "none": [Round(1.0, 1.0, 0.0)],
    }
    _, _, once, again, none = sinks.table(results, 10**9).splitlines()
    assert once == "| stream, exactly once | 333 | 6.00 | 2.00 | 1.60 | 1.50 |"
    assert again == "| stream, at least once | 500 | 4.00 | 1.00 |  |  |"
    assert none == "| none | 1000 | 1.00 | 0.00 |  |  |"


def test_batches_of_few_rows_have_a_median() -> None:
    _, _, row = sinks.few_table([FewRows("none", [1.0, 2.0, 30.0], 4.0, 0.4)]).splitlines()
    assert row.startswith("| none | 2 | ") and row.endswith(" | 4 | 0 |")


def test_rows_are_shared_out_to_the_files(tmp_path: Path) -> None:
    sinks.write_rows(tmp_path / "rows", [b"a", b"b"], 12)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "rows").iterdir())]
    assert [table.num_rows for table in tables] == [6, 6] and tables[0]["value"].to_pylist() == [b"a", b"b"] * 3
