from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from support.certificates import secret_file
from tallystick.errors import UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.selection import IdSpan, Selection

URI = "sqlite:///tmp/cluster.db"


def parse(environment: dict[str, str] | None = None, **given: str) -> LedgerOptions:
    return LedgerOptions.parse({"uri": URI, **given}, environment or {})


def test_only_the_uri_is_needed() -> None:
    options = parse()
    assert options.uri == URI
    assert options.selection == Selection()
    assert options.columns == ("ledger", "entry", "lac", "length", "payload")
    assert options.limits == Limits(128 * 1024 * 1024, 1)
    assert options.password_of(1) == b""


def test_names_come_in_any_case() -> None:
    options = parse(FIRSTENTRY="3", lastentry="9", maxbytesperpartition="64M", MinPartitions="4", Ledgers="1-2")
    assert options.selection.entries == IdSpan(3, 9)
    assert options.selection.ledgers == (IdSpan(1, 2),)
    assert options.limits == Limits(64 << 20, 4)


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"unknown option: ledger \(did you mean ledgers\?\); known: .*ledgers"):
        parse(ledger="1")


def test_a_missing_uri_is_that_of_the_environment_or_of_the_running_development_cluster(tmp_path: Path) -> None:
    empty = {"TALLY_DEV_DIR": str(tmp_path)}
    with pytest.raises(UsageError, match="the option uri"):
        LedgerOptions.parse({}, empty)
    assert LedgerOptions.parse({}, {"TALLY_URI": URI}).uri == URI


def test_a_path_names_the_ledgers_or_the_cluster() -> None:
    assert parse(path="3-4").selection.ledgers == (IdSpan(3, 4),)
    assert LedgerOptions.parse({"path": URI, "ledgers": "7"}, {}).uri == URI
    with pytest.raises(UsageError, match="say the same thing"):
        parse(path="3", ledgers="3")
    with pytest.raises(UsageError, match="say the same thing"):
        parse(path=URI)


def test_memory_is_seen_by_one_process_only() -> None:
    with pytest.raises(UsageError, match="one process"):
        LedgerOptions.parse({"uri": "memory://a"}, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("firstEntry", "-1"),
        ("lastEntry", "x"),
        ("minPartitions", "0"),
        ("maxBytesPerPartition", "0"),
        ("maxBytesPerPartition", "1t"),
        ("columns", "ledger,value"),
        ("columns", ""),
        ("columns", "entry,entry"),
        ("ledgers", "x"),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError):
        LedgerOptions.parse({"uri": URI, name: text}, {})


def test_the_projection_keeps_its_order() -> None:
    assert parse(columns=" Payload, entry").columns == ("payload", "entry")


def test_passwords_come_from_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_PASSWORD", "env")
    assert parse({"TALLY_PASSWORD": "env"}).password_of(1) == b"env"
    options = parse({"TALLY_PASSWORD": "env"}, password="one", passwords='{"7": "seven"}')
    assert (options.password_of(1), options.password_of(7)) == (b"one", b"seven")


def test_no_password_is_shown() -> None:
    assert "hidden" not in repr(parse(password="hidden", passwords='{"7": "hidden"}'))


@pytest.mark.parametrize(
    "text",
    ["hidden", '["hidden"]', '{"x": "hidden"}', '{"1": 5, "2": "hidden"}', '{"\u0667": "hidden"}', '{"07": "hidden"}'],
)
def test_passwords_that_cannot_be_read_are_not_shown_either(text: str) -> None:
    with pytest.raises(UsageError, match="JSON object") as failed:
        parse(passwords=text)
    assert "hidden" not in str(failed.value) and failed.value.__cause__ is None


def test_a_password_in_a_file_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "password", "hidden\r\n")
    options = parse(passwordFile=path, passwords='{"7": "seven"}')
    assert (options.password_of(1), options.password_of(7)) == (b"hidden", b"seven")
    assert b"hidden" not in pickle.dumps(options)
    with pytest.raises(UsageError, match="give one"):
        parse(passwordFile=path, password="other")


@pytest.mark.parametrize(
    ("text", "mode", "why"), [("", 0o600, "empty"), ("\n", 0o600, "empty"), ("x", 0o644, "everybody")]
)
def test_a_file_that_keeps_no_secret_is_refused(tmp_path: Path, text: str, mode: int, why: str) -> None:
    options = parse(passwordFile=secret_file(tmp_path / "password", text, mode))
    with pytest.raises(UsageError, match=why):
        options.password_of(1)
    with pytest.raises(UsageError, match="No such"):
        parse(passwordFile=str(tmp_path / "nowhere")).password_of(1)


def test_a_password_in_plain_text_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    parse(passwordFile="/etc/password").warn()
    assert not capsys.readouterr().err
    parse(password="hidden").warn()
    parse(passwords='{"7": "hidden"}').warn()
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and all("passwordFile" in line and "hidden" not in line for line in warnings)
