from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tallystick import cli
from tallystick.admin.ledgers import LedgerStatus, Replica
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata, LedgerState
from tallystick.cli import ledgers, output
from tallystick.errors import Unauthorized

OPEN = LedgerMetadata(2, 2, 1, (Fragment(0, ("a", "b")),), password=b"secret", custom={"k": b"\xff"}, ctime_ms=0)
CLOSED = OPEN.with_fragment(3, ("a", "c")).closed(4, 99)


def test_only_a_closed_ledger_has_entries_and_bytes() -> None:
    assert ledgers.row(LedgerStatus(1, OPEN)) == {
        "ledger": 1,
        "state": "OPEN",
        "entries": None,
        "bytes": None,
        "E/Qw/Qa": "2/2/1",
        "digest": "crc32",
        "created": "1970-01-01T00:00:00Z",
    }
    row = ledgers.row(LedgerStatus(1, CLOSED))
    assert (row["entries"], row["bytes"]) == (5, 99)


def test_the_list_of_ledgers_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    closed = replace(CLOSED, last_entry=9_999_998, length=999_999_999, ctime_ms=1_800_000_000_000)
    found = [LedgerStatus(1_000_000, closed), LedgerStatus(1_000_001, replace(OPEN, state=LedgerState.IN_RECOVERY))]
    output.rows([ledgers.row(one) for one in found], json=False, empty="")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 80


def test_details_have_all_but_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    for json in (False, True):
        output.details(ledgers.details(1, CLOSED), json=json)
    text = capsys.readouterr().out
    assert "secret" not in text
    assert "fragments     from 0: a, b\n              from 3: a, c\n" in text
    assert '"fragments": [{"first": 0, "bookies": ["a", "b"]}, {"first": 3, "bookies": ["a", "c"]}]' in text


def test_a_time_that_is_no_date_is_shown_as_it_is() -> None:
    assert ledgers.details(1, LedgerMetadata(1, 1, 1, (Fragment(0, ("a",)),), ctime_ms=1 << 62))["created"] == (
        f"{1 << 62} ms"
    )


@pytest.mark.parametrize(("given", "deleted"), [(b"secret", True), (b"no", False), (b"", False)])
async def test_a_ledger_with_a_password_is_deleted_only_with_it(
    monkeypatch: pytest.MonkeyPatch, given: bytes, deleted: bool
) -> None:
    bk = FakeBookKeeper(OPEN)
    monkeypatch.setattr("tallystick.connect", lambda uri: bk)
    if deleted:
        await ledgers.delete("x", 7, given)
    else:
        with pytest.raises(Unauthorized, match="needs its password, and"):
            await ledgers.delete("x", 7, given)
    assert bk.deleted == ([7] if deleted else [])


def ask(monkeypatch: pytest.MonkeyPatch, answers: list[str | None]) -> list[str]:
    """The prompts of a terminal, and what is typed at each; None: Ctrl-D."""
    typed = iter(answers)
    asked: list[str] = []

    def prompt(text: str) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()  # it would keep Ctrl-C from ending the wait
        asked.append(text)
        if (answer := next(typed)) is None:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", prompt)
    monkeypatch.setattr("builtins.input", prompt)
    return asked


@pytest.mark.parametrize(
    ("answers", "code", "deleted"),
    [(["y", "secret"], 0, [7]), (["y", "no"], 1, []), (["n"], 2, []), ([None], 2, []), (["y", None], 2, [])],
)
def test_a_terminal_is_asked_before_a_ledger_goes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[str | None],
    code: int,
    deleted: list[int],
) -> None:
    bk = FakeBookKeeper(OPEN)
    monkeypatch.setattr("tallystick.connect", lambda uri: bk)
    monkeypatch.delenv("TALLY_PASSWORD", raising=False)
    asked = ask(monkeypatch, answers)
    assert cli.main(["ledger", "delete", "7", "--uri", "sqlite:///x"]) == code
    assert bk.deleted == deleted
    assert len(asked) == len(answers)
    assert "bug" not in capsys.readouterr().err


class FakeBookKeeper:
    """What deleting asks of a client."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self.metadata = metadata
        self.deleted: list[int] = []

    async def __aenter__(self) -> FakeBookKeeper:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def ledger_metadata(self, ledger: int) -> LedgerMetadata:
        return self.metadata

    async def delete_ledger(self, ledger: int) -> None:
        self.deleted.append(ledger)


def test_an_open_ledger_shows_how_far_its_bookies_have_come(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Replica("a", 7), Replica("b", None, "it is gone"), Replica("c", -1)]
    for json in (False, True):
        output.details(ledgers.details(1, OPEN, found), json=json)
    text, _, line = capsys.readouterr().out.rpartition("\n{")
    assert "replicas      a: last entry 7\n              b: missing, it is gone\n              c: no entry\n" in text
    assert "degraded      b" in text
    assert '"replicas": [{"bookie": "a", "last_entry": 7, "why": ""}, ' in line and '"degraded": "b"' in line
    assert ledgers.details(1, OPEN, [Replica("a", 7)])["degraded"] is None
