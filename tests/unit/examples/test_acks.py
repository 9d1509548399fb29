from __future__ import annotations

from pathlib import Path

from examples.flights.acks import AckedRun, AckLog, read_log


def test_a_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    content = read_log(tmp_path / "log")
    assert (content.runs, content.steps, content.rows, content.resumed_at) == ((), (), 0, 0)


def test_a_line_that_was_cut_by_the_kill_promises_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("acked 4 0 100 50 12.5\nacked 4 50 150 7")
    content = read_log(log)
    assert content.rows == 50
    assert content.runs == (AckedRun(part=4, position=0, row=100, count=50, time=12.5),)


def test_what_a_program_tells_of_itself_is_no_promise(tmp_path: Path) -> None:
    with AckLog(str(tmp_path / "log")) as log:
        log.step("stream opened ledger=3")
        log.write("resumed", 120)
        log.write("acked", 3, 0, 120, 5, 13.0)
    content = read_log(tmp_path / "log")
    assert [step.text for step in content.steps] == ["stream opened ledger=3"]
    assert (content.resumed_at, content.rows) == (120, 5)
