"""Events in ``logging``: levels, text, JSON, and silence by default."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from tallystick.errors import UsageError
from tallystick.runtime.event_kinds import KINDS, level_of
from tallystick.runtime.events import Event, Events
from tallystick.runtime.log import LogSettings, log_listener, log_to

pytestmark = pytest.mark.usefixtures("house_logger")


def written(settings: LogSettings, *events: Event) -> str:
    stream = io.StringIO()
    log_to(stream, settings, colors=False)
    listen = log_listener("broker")
    for event in events:
        listen(event)
    return stream.getvalue()


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
    stream = io.StringIO()
    log_to(stream, LogSettings(), colors=False)
    logging.getLogger("kazoo").error("not ours")
    assert stream.getvalue() == ""


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
