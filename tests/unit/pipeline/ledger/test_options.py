from __future__ import annotations

from pathlib import Path

import pytest

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


def test_passwords_come_from_the_option_or_the_environment() -> None:
    assert parse({"TALLY_PASSWORD": "env"}).password_of(1) == b"env"
    options = parse({"TALLY_PASSWORD": "env"}, password="one", passwords='{"7": "seven"}')
    assert (options.password_of(1), options.password_of(7)) == (b"one", b"seven")


def test_no_password_is_shown() -> None:
    assert "hidden" not in repr(parse(password="hidden", passwords='{"7": "hidden"}'))


@pytest.mark.parametrize("text", ["hidden", '["hidden"]', '{"x": "hidden"}', '{"1": 5, "2": "hidden"}'])
def test_passwords_that_cannot_be_read_are_not_shown_either(text: str) -> None:
    with pytest.raises(UsageError, match="JSON object") as failed:
        parse(passwords=text)
    assert "hidden" not in str(failed.value) and failed.value.__cause__ is None
