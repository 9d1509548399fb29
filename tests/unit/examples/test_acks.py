from __future__ import annotations

from pathlib import Path

from examples.flights.acks import AckedRun, read_log


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    content = read_log(tmp_path / "log")
    assert (content.parts, content.runs, content.rows) == ((), (), 0)


def test_a_line_that_was_cut_by_the_kill_promises_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("part 4\nacked 4 0 100 50 12.5\nacked 4 50 150 7")
    content = read_log(log)
    assert content.parts == (4,) and content.rows == 50
    assert content.runs == (AckedRun(part=4, position=0, row=100, count=50, time=12.5),)
