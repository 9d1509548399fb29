import contextlib
import io
import json
from collections.abc import Mapping, Sequence

import pytest

from tallystick import Position
from tallystick.bookkeeper.stream.hand_over_core import BrokerDeletions
from tallystick.cli import output
from tallystick.errors import (
    BookieUnavailable,
    BrokerError,
    HandOverRefused,
    LedgerFenced,
    NoSuchPosition,
    NotEnoughBookies,
    PositionTrimmed,
    RequestTimeout,
    StreamOwned,
    TallyError,
    UsageError,
)
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.events import Event


def test_a_terminal_never_obeys_a_payload() -> None:
    assert output.payload_text(b"\x1b[2Jhi\tthere\x07\xff\n") == "\\x1b[2Jhi\tthere\\x07\\xff\\x0a"
    assert output.payload_text("é\u202e".encode()) == "é\\u202e"


def test_json_payloads_are_text_where_they_can_be() -> None:
    assert output.payload_json("é".encode()) == {"data": "é"}
    assert output.payload_json(b"\xff") == {"data_base64": "/w=="}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_whatever_the_locale_can_show(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding, errors="backslashreplace", write_through=True))
    for text in ("plain", "Zürich", "東京", "😀", "a\udcff"):
        output.json_line({"text": text})
        line = shown.getvalue().decode(encoding).splitlines()[-1]
        assert json.loads(line) == {"text": text}
        with contextlib.suppress(UnicodeEncodeError):
            text.encode(encoding)
            assert text in line


def test_rows_as_a_table_and_as_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"bookie": "a", "port": 1, "up": True}, {"bookie": "[b]", "port": 22, "up": None}]
    output.rows(rows, json=False, empty="none")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["bookie", "port", "up"],
        ["a", "1", "yes"],
        ["[b]", "22", "-"],
    ]
    output.rows(rows, json=True, empty="none")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


def test_a_long_row_is_not_folded_when_no_terminal_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows([{"name": "x" * 500}], json=False, empty="none")
    assert "x" * 500 in capsys.readouterr().out


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def screen_of(monkeypatch: pytest.MonkeyPatch, columns: int, rows: Sequence[Mapping[str, object]]) -> str:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    output.rows(rows, json=False, empty="none")
    return screen.getvalue()


def test_rows_that_are_wider_than_the_screen_come_one_below_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"broker": name, "why": "its log is not the master's: " + "x" * 60} for name in ("broker-a", "broker-b")]
    shown = screen_of(monkeypatch, 80, rows)
    assert shown.splitlines()[:3] == ["broker  broker-a", f"why     {rows[0]['why']}", ""]
    assert shown.splitlines()[3] == "broker  broker-b"


def test_nothing_is_bold_where_no_colour_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in screen_of(monkeypatch, 80, [{"broker": "a"}])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in screen_of(monkeypatch, 80, [{"broker": "a"}])


def test_nothing_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.rows([], json=False, empty="none")
    output.rows([], json=True, empty="none")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "none\n")


def test_details_a_line_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    output.details({"a": None, "long": ["x", "y"], "map": {"k": b"\x1b"}, "none": []}, json=False)
    assert capsys.readouterr().out == "a     -\nlong  x\n      y\nmap   k=\\x1b\nnone  -\n"


def test_a_terminal_does_not_obey_what_a_stranger_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    name = "b0\x1b[2J\nb1"
    output.details({"bookie": name, "all": [name], "map": {name: 1}}, json=False)
    output.rows([{"host": name}], json=False, empty="")
    assert capsys.readouterr().out.replace("b0\\x1b[2J\\x0ab1", "NAME").split() == [
        "bookie", "NAME", "all", "NAME", "map", "NAME=1", "host", "NAME",
    ]  # fmt: skip


def test_of_very_many_lines_of_a_field_the_first_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    many = {"a": list(range(output.MOST_LINES + 2)), "all": list(range(output.MOST_LINES))}
    output.details(many, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[output.MOST_LINES] == "     … and 2 more: --json has all" and len(lines) == 2 * output.MOST_LINES + 1
    output.details(many, json=True)
    assert json.loads(capsys.readouterr().out) == many


def test_an_event_as_a_line_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    event = Event("ensemble changed", {"ledger": 3, "ensemble": ("a", "b"), "why": TimeoutError("late")})
    output.event_line(event, json=False)
    output.event_line(event, json=True)
    text, line = capsys.readouterr().out.splitlines()
    assert text == "ensemble changed ledger=3 ensemble=('a', 'b') why=late"
    assert json.loads(line) == {"event": "ensemble changed", "ledger": 3, "ensemble": ["a", "b"], "why": "late"}


@pytest.mark.parametrize("kind", [LedgerFenced, NotEnoughBookies, RequestTimeout, BookieUnavailable])
def test_what_to_do_is_a_sentence(kind: type[TallyError]) -> None:
    assert output.advice(kind()).startswith(". ") and output.advice(kind()).endswith(".")


def test_a_shortage_of_bookies_is_told_with_what_was_seen_alone() -> None:
    down = output.advice(NotEnoughBookies(needed=4, available=3, read_only=0))
    assert "are down" in down and "smaller --ensemble" in down and "disk" not in down and "refused" not in down
    assert "--ensemble" not in output.advice(NotEnoughBookies(needed=1, available=0, read_only=0))
    read_only = output.advice(NotEnoughBookies(needed=4, available=3, read_only=1))
    assert "full disk" in read_only and "drain --undo" in read_only
    refused = output.advice(NotEnoughBookies("the ack quorum could not be met", answers={"b": 101}))
    assert "refused" in refused and "--ensemble" not in refused


def test_only_what_changes_something_may_have_been_done_all_the_same() -> None:
    silent = RequestTimeout("no answer in time", address="127.0.0.1:10911")
    assert output.advice(silent) == ". See `tally ha status`, and try again."
    assert output.advice(silent, changes=True).startswith(". It may have been done all the same. See `tally ha status`")
    for field in "bookie", "ledger":  # of a read that failed at each replica it is the ledger
        assert "tally bookie list" in output.advice(RequestTimeout("no answer in time", **{field: 7}))


def test_no_advice_where_the_message_says_it() -> None:
    assert output.advice(UsageError("x")) == output.advice(TallyError("x")) == ""


def test_progress_is_for_a_watching_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("entries") as count:
        count(1)
    assert capsys.readouterr().err == ""


def test_who_owns_a_stream_is_told_with_a_time_that_can_be_read_and_what_to_do() -> None:
    error = StreamOwned(stream="s", owner="host:5", since_ms=1_792_000_000_050)
    assert "(stream=s owner=host:5 since=2026-10-14T17:46:40.050Z)" in output.text_of(error)
    said = output.advice(error)
    assert "until its lease ends" in said and "--takeover" in said and "the stream back" in said
    assert "the cursor back" in output.advice(StreamOwned(stream="s", cursor="c", owner="host:5"))
    broker = StreamOwned("a Pulsar broker may write it", stream="s", ledger=7)
    assert output.text_of(broker) == str(broker)
    assert output.advice(broker) == ". Here that is --takeover."


def test_a_request_that_a_broker_does_not_allow_is_told_where_keys_come_from() -> None:
    """Its queue stood there as Python shows it."""
    refused = BrokerError("the request is not signed", response_code=16, queue=MessageQueue("T", "b", 3))
    assert output.text_of(refused) == "the request is not signed (response_code=16 topic=T queue=b:3)"
    assert "TALLY_BROKER_CREDENTIALS" in output.advice(refused)
    assert output.advice(BrokerError("the disk is full", response_code=14)) == ""


def test_what_to_do_about_a_position_that_is_trimmed_or_never_was() -> None:
    assert output.advice(PositionTrimmed(stream="s", first=Position(7, 0))) == ". Begin with -o 7:0."
    assert "tally stream show" in output.advice(NoSuchPosition(stream="s"))


@pytest.mark.parametrize("cursor_keeps", [False, True])
def test_what_keeps_a_stream_from_a_broker_fits_the_cause(cursor_keeps: bool) -> None:
    said = output.advice(HandOverRefused(deletions=BrokerDeletions(topic_after_s=60, cursor_keeps=cursor_keeps)))
    assert ("--create NAME" in said) is cursor_keeps and "--force" in said
    assert "--create" not in output.advice(HandOverRefused("its entries are no messages"))
