"""The demo's page: what does not show in a run that goes well."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from examples.flights import page, plots
from examples.flights.acks import AckedRun
from examples.flights.report import Counts, Half, Section
from examples.flights.results import Commit
from examples.flights.story import Moment, Run

DERIVED = pa.table({"carrier": ["AA", "UA", "UA"], "hour": [5, 6, 8], "dep_delay": [1, None, -3]})


def test_numbers_of_moments_that_are_close_together_stand_above_each_other() -> None:
    assert plots._levels([0.0, 2.0, 2.1, 2.15, 2.2, 2.25, 3.0, 3.1], apart=0.3) == [0, 0, 1, 2, 3, 4, 0, 1]
    assert plots._levels([], apart=1.0) == []


def test_a_result_that_is_wrong_is_said_first_and_where(tmp_path: Path) -> None:
    run = Run([Moment(10.0, "begin")], [AckedRun(0, 0, 0, 3, 11.0)], commits=[Commit(12.0, 2)])
    good = Section("The stream", Counts(3, 0, 0, 0), [("rows", "3")], True)
    bad = Section("The table", Counts(2, 1, 0, 0), [("rows", "2")], False, ["lost: row 2"])
    page.write(tmp_path / "page.html", [Half("Both", run, [good, bad])], DERIVED)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.index("THE COMPARISON FAILED") < text.index("The table") < text.index("lost: row 2")
    page.write(tmp_path / "page.html", [Half("Both", run, [good])], DERIVED)
    assert "FAILED" not in (tmp_path / "page.html").read_text(encoding="utf-8")
