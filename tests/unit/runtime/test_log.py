"""Events in ``logging``: levels, text, JSON, and silence by default."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading

import pytest

from tallystick.errors import UsageError
from tallystick.runtime import log as log_module
from tallystick.runtime.event_kinds import KINDS, level_of
from tallystick.runtime.events import Event, Events
from tallystick.runtime.log import MAX_WAITING, LogOutput, LogSettings, log_listener, log_to_stderr
from tallystick.runtime.sparing import MAX_OF_HOST

pytestmark = pytest.mark.usefixtures("house_logger")


def written(settings: LogSettings, *events: Event) -> str:
    lines = io.BytesIO()
    log = LogOutput(lines.write, settings)
    listen = log_listener("broker")
    for event in events:
        listen(event)
    log.close(within_s=30)
    return lines.getvalue().decode()


CLOSED = Event("ledger closed", {"ledger": 3, "last_entry": 9})
FAILED = Event("bookie failed", {"bookie": "b0", "reason": "gone"})


def test_a_host_has_records_with_the_event_at_its_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tallystick"):
        events = Events(log_listener())
        events.emit("ledger closed", ledger=3, last_entry=9)
        events.emit("bookie failed", bookie="b0", reason="gone")
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("tallystick", "INFO", "ledger closed ledger=3 last_entry=9"),
        ("tallystick", "WARNING", "bookie failed bookie=b0 reason=gone"),
    ]
    assert caplog.records[1].event == FAILED  # type: ignore[attr-defined]  # what its docstring promises


def test_nothing_is_printed_where_nobody_configured_logging(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("tallystick").propagate = False  # pytest listens at the root
    Events(log_listener()).emit("client failed", reason="a fault")
    assert capfd.readouterr() == ("", "")


def test_a_line_of_text_has_time_level_kind_and_fields() -> None:
    line = written(LogSettings(), FAILED)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +\[warning", line), line
    assert "bookie failed" in line and "bookie=b0" in line and "reason=gone" in line
    assert line.count("\n") == 1


def test_a_line_of_json_is_one_object() -> None:
    line = json.loads(written(LogSettings(style="json"), Event("bookie failed", {"bookie": "b0", "first": b"\xff"})))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "bookie failed",
        "level": "warning",
        "logger": "tallystick.broker",
        "bookie": "b0",
        "first": "b'\\xff'",
    }


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("info", 2), ("warning", 1), ("error", 0)])
def test_levels_leave_out_what_is_below(level: str, lines: int) -> None:
    settings = LogSettings.of({"TALLY_LOG_LEVEL": level})
    assert written(settings, CLOSED, FAILED).count("\n") == lines


def test_other_libraries_lines_go_their_own_way() -> None:
    lines = io.BytesIO()
    log = LogOutput(lines.write, LogSettings())
    logging.getLogger("kazoo").error("not ours")
    log.close(within_s=30)
    assert lines.getvalue() == b""


class Reader:
    """Of a pipe that is full, until it is ``read``."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.lines: list[str] = []

    def write(self, line: bytes) -> None:
        self.asked.set()
        self.go_on.wait(30)
        self.lines.append(line.decode())


def test_nobody_waits_for_a_reader_and_what_was_not_read_is_counted() -> None:
    reader = Reader()
    log = LogOutput(reader.write, LogSettings(style="json"))
    listen = log_listener()
    listen(FAILED)
    assert reader.asked.wait(30)
    for _ in range(MAX_WAITING + 7):
        logging.getLogger("tallystick").info("said")
    log.close(within_s=0)  # as at the end of a process whose lines nobody reads: it does not wait
    assert reader.lines == []
    reader.go_on.set()
    log.close(within_s=30)
    kinds = [json.loads(line)["event"] for line in reader.lines]
    assert kinds.count("said") == MAX_WAITING
    lost = [json.loads(line) for line in reader.lines if "log lines lost" in line]
    assert [line["count"] for line in lost] == [7]


def test_what_a_stranger_can_make_happen_without_end_is_some_lines_with_a_count() -> None:
    """2,000 sends of 300 bytes were 341 KB of log."""
    lines = io.BytesIO()
    log = LogOutput(lines.write, LogSettings(style="json"))
    for number in range(2000):
        log_listener("broker")(Event("request failed", {"peer": f"127.0.0.1:{number}", "code": 10}))
    log_listener("broker")(Event("request failed", {"peer": "127.0.0.2:1", "code": 10}))
    log.close(within_s=30)
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["event"] for line in written] == ["request failed"] * (MAX_OF_HOST + 1) + ["log lines left out"]
    assert (written[-1]["of"], written[-1]["count"]) == ("request failed", 2000 - MAX_OF_HOST)


def test_a_line_that_cannot_be_written_stops_no_later_one() -> None:
    lines: list[bytes] = []

    def write(line: bytes) -> None:
        if b"ledger=1" in line:
            raise BrokenPipeError
        lines.append(line)

    log = LogOutput(write, LogSettings())
    listen = log_listener()
    for ledger in (1, 2):
        listen(Event("ledger closed", {"ledger": ledger}))
    log.close(within_s=30)
    assert [b"log lines lost" in line for line in lines] == [True, False]


def test_lines_are_written_once_whatever_the_host_and_a_call_before_listen_to(caplog: pytest.LogCaptureFixture) -> None:
    before, lines = io.BytesIO(), io.BytesIO()
    logs = [LogOutput(one.write, LogSettings()) for one in (before, lines)]
    log_listener("broker")(FAILED)
    for log in logs:
        log.close(within_s=30)
    assert (before.getvalue(), lines.getvalue().count(b"\n"), caplog.records) == (b"", 1, [])


def test_a_fault_is_in_its_line_of_json() -> None:
    lines = io.BytesIO()
    log = LogOutput(lines.write, LogSettings(style="json"))
    try:
        raise ZeroDivisionError("ours")
    except ZeroDivisionError:
        logging.getLogger("tallystick.broker").exception("a fault")
    log.close(within_s=30)
    line = json.loads(lines.getvalue())
    assert (line["event"], line["level"], "exc_info" in line) == ("a fault", "error", False)
    assert "Traceback" in line["exception"] and line["exception"].endswith("ZeroDivisionError: ours")


@pytest.mark.parametrize(
    ("is_terminal", "environment", "colored"),
    [(True, {}, True), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True), (False, {}, False)],
)
def test_colors_are_for_terminals_of_who_wants_them(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, environment: dict[str, str], colored: bool
) -> None:
    lines = io.BytesIO()
    monkeypatch.setattr(log_module, "_to_stderr", lines.write)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    log = log_to_stderr(environment)
    log_listener("broker")(FAILED)
    log.close(within_s=30)
    assert (b"\x1b[" in lines.getvalue()) is colored


@pytest.mark.parametrize(
    ("environment", "named"),
    [({"TALLY_LOG_LEVEL": "loud"}, "TALLY_LOG_LEVEL"), ({"TALLY_LOG_FORMAT": "xml"}, "TALLY_LOG_FORMAT")],
)
def test_a_wrong_variable_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        LogSettings.of(environment)


def test_variables_choose_and_empty_ones_do_not() -> None:
    assert LogSettings.of({}) == LogSettings("text", "info")
    assert LogSettings.of({"TALLY_LOG_LEVEL": "", "TALLY_LOG_FORMAT": ""}) == LogSettings("text", "info")
    assert LogSettings.of({"TALLY_LOG_LEVEL": "Error", "TALLY_LOG_FORMAT": "json"}) == LogSettings("json", "error")


def test_every_kind_has_a_level_and_a_sentence() -> None:
    assert {one.level for one in KINDS.values()} == {logging.INFO, logging.WARNING, logging.ERROR}
    assert [kind for kind, one in KINDS.items() if not one.meaning.endswith(".")] == []
    assert level_of("of nobody") == logging.WARNING
