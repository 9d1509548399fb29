"""The flows behind `tally ledger`, on a client that only remembers what it was told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

import tallystick
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.cli import entries
from tallystick.cli.entries import Ending
from tallystick.cli.options import Shape
from tallystick.errors import LedgerFenced, NotEnoughBookies, TallyError, UsageError


class Writer:
    max_payload_bytes = 1000
    id = 5

    def __init__(self, failure: Exception | None = None, close_failure: Exception | None = None) -> None:
        self.failure, self.close_failure = failure, close_failure
        self.appended: list[bytes] = []
        self.forced = 0
        self.closed = False

    @property
    def lac(self) -> int:
        return len(self.appended) - 1

    @property
    def length(self) -> int:
        return sum(map(len, self.appended))

    async def append_batch(self, payloads: list[bytes]) -> range:
        if self.failure:
            raise self.failure
        first = len(self.appended)
        self.appended += payloads
        return range(first, len(self.appended))

    async def force(self) -> int:
        self.forced = len(self.appended)
        return self.forced - 1

    async def close(self) -> None:
        self.closed = True
        if self.close_failure:
            raise self.close_failure


class Reader:
    last_entry, length, is_closed = 2, 3, True

    async def read(self, first: int, last: int) -> AsyncIterator[Entry]:
        for number in range(first, last + 1):
            yield Entry(number, b"%d" % number, 5, number + 1, number - 1)

    async def follow(self, first: int) -> AsyncIterator[Entry]:
        async for entry in self.read(first, self.last_entry):
            yield entry


class Client:
    def __init__(self) -> None:
        self.writer, self.reader = Writer(), Reader()
        self.asked: list[object] = []

    async def create_ledger(self, **given: object) -> Writer:
        self.asked.append(given)
        return self.writer

    async def open_ledger(self, ledger: int, **given: object) -> Reader:
        self.asked.append((ledger, given))
        return self.reader

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(tallystick, "connect", lambda uri, events: client)
    return client


async def append(
    payloads: list[str],
    *,
    keep_open: bool = False,
    deferred: bool = False,
    quiet: bool = False,
    json: bool = False,
    shape: Shape | None = None,
) -> None:
    ending = Ending(keep_open, deferred, quiet, json)
    await entries.append("memory://x", shape or Shape(), b"", payloads, ending, explain=False)


async def test_append_prints_positions_and_closes(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    await append(["a", "é"])
    printed = capsys.readouterr()
    assert client.writer.appended == [b"a", "é".encode()]
    assert (printed.out, printed.err) == ("5:0\n5:1\n", "ledger 5 closed: 2 entries, 3 bytes\n")
    assert client.writer.closed


async def test_deferred_entries_are_told_when_they_were_forced(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await append(["a", "b"], deferred=True)
    assert client.writer.forced == 2 and client.writer.closed
    assert capsys.readouterr().out == "5:0\n5:1\n"
    assert isinstance(client.asked[0], dict) and client.asked[0]["deferred_sync"] is True


async def test_a_failed_force_prints_no_entry(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def force(writer: Writer) -> int:
        raise NotEnoughBookies()

    monkeypatch.setattr(Writer, "force", force)
    with pytest.raises(NotEnoughBookies):
        await append(["a"], deferred=True)
    assert capsys.readouterr().out == ""


async def test_arguments_that_are_not_text_keep_their_bytes(client: Client) -> None:
    await append(["\udcff"])
    assert client.writer.appended == [b"\xff"]


async def test_keep_open_closes_nothing(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    await append(["a"], keep_open=True, quiet=True)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "ledger 5 left open: 1 entry, 1 byte\n")
    assert not client.writer.closed


async def test_a_failed_append_closes_and_tells_of_the_first_failure(client: Client) -> None:
    client.writer = Writer(NotEnoughBookies(), LedgerFenced())
    with pytest.raises(NotEnoughBookies):
        await append(["a"])
    assert client.writer.closed


async def test_an_interrupted_append_closes_at_what_was_confirmed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def source(fd: int, max_bytes: int) -> AsyncIterator[list[bytes]]:
        yield [b"a"]
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(entries, "lines", source)
    monkeypatch.setattr(sys.stdin, "fileno", lambda: 0, raising=False)
    task = asyncio.ensure_future(append([]))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.writer.appended == [b"a"] and client.writer.closed


async def test_a_first_line_that_is_too_long_is_no_wrong_usage(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit code says that nothing was done, and a ledger is made by then."""

    async def source(fd: int, max_bytes: int) -> AsyncIterator[list[bytes]]:
        raise UsageError("the first line is too long", max_bytes=max_bytes)
        yield []

    monkeypatch.setattr(entries, "lines", source)
    monkeypatch.setattr(sys.stdin, "fileno", lambda: 0, raising=False)
    with pytest.raises(TallyError, match="the first line is too long") as raised:
        await append([])
    assert not isinstance(raised.value, UsageError) and client.writer.closed


async def test_the_shape_of_a_new_ledger_reaches_the_client(client: Client) -> None:
    shape = Shape(5, 4, 3, "hmac", 9, ("k=v=w", "empty="), accept_silent_bookies=True)
    assert await entries.create("memory://x", shape, b"secret") == 5
    assert client.asked == [
        {
            "ensemble": 5,
            "write_quorum": 4,
            "ack_quorum": 3,
            "digest": "hmac",
            "password": b"secret",
            "custom_metadata": {"k": b"v=w", "empty": b""},
            "ledger_id": 9,
            "accept_silent_bookies": True,
            "deferred_sync": False,
        }
    ]


@pytest.mark.parametrize("pair", ["novalue", "=v", ""])
async def test_custom_metadata_needs_a_name_and_a_value(client: Client, pair: str) -> None:
    with pytest.raises(UsageError, match="--custom needs name=value"):
        await entries.create("memory://x", Shape(custom=(pair,)), b"")


async def test_read_never_asks_for_recovery_and_ends_at_the_last_entry(client: Client) -> None:
    seen: list[Entry] = []
    await entries.read("memory://x", 5, b"p", 1, None, seen.append, explain=False)
    assert [entry.id for entry in seen] == [1, 2]
    assert client.asked == [(5, {"password": b"p"})]


def unexpected(entry: Entry) -> None:
    pytest.fail(f"printed: {entry}")


async def test_reading_beyond_the_end_says_where_it_is(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    await entries.read("memory://x", 5, b"", 3, None, unexpected, explain=False)
    assert capsys.readouterr().err == "ledger 5 has 3 entries to read\n"


async def test_of_an_open_ledger_it_says_that_more_may_come(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "last_entry", -1)
    monkeypatch.setattr(Reader, "is_closed", False)
    await entries.read("memory://x", 5, b"", 0, None, unexpected, explain=False)
    assert capsys.readouterr().err == (
        "ledger 5 has 0 entries to read so far: it is open, and no more are known to be confirmed\n"
    )


@pytest.mark.parametrize(("last", "first", "expected"), [(2, None, 0), (14, None, 5), (14, 2, 2)])
async def test_tail_begins_with_the_last_ten(
    client: Client, monkeypatch: pytest.MonkeyPatch, last: int, first: int | None, expected: int
) -> None:
    monkeypatch.setattr(Reader, "last_entry", last)
    seen: list[Entry] = []
    await entries.tail("memory://x", 5, b"", first, seen.append, explain=False)
    assert seen[0].id == expected
    assert client.asked == [(5, {"password": b""})]


async def test_tail_from_beyond_the_end_of_a_closed_ledger_says_where_that_is(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await entries.tail("memory://x", 5, b"", 77, unexpected, explain=False)
    assert capsys.readouterr().err == "ledger 5 is closed, and has 3 entries\n"


async def test_only_recover_asks_for_recovery(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    await entries.recover("memory://x", 5, b"p", explain=True, json=False)
    assert client.asked == [(5, {"password": b"p", "recover": True})]
    assert capsys.readouterr().out == "ledger 5 is closed: 3 entries, 3 bytes\n"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ({}, b"\x1b\xff\n"),
        ({"ids": True}, b"5:7\t\x1b\xff\n"),
        ({"hex_": True}, b"1bff\n"),
        ({"ids": True, "hex_": True}, b"5:7\t1bff\n"),
        ({"json": True}, b'{"ledger": 5, "entry": 7, "data_base64": "G/8="}\n'),
        ({"json": True, "hex_": True}, b'{"ledger": 5, "entry": 7, "data_hex": "1bff"}\n'),
    ],
)
def test_how_an_entry_is_printed(
    capfdbinary: pytest.CaptureFixture[bytes], options: dict[str, bool], printed: bytes
) -> None:
    show = entries.printer(**{"ids": False, "hex_": False, "json": False, **options})
    show(Entry(7, b"\x1b\xff", 5, 2, 6))
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == printed


def test_a_terminal_gets_no_control_characters(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    entries.printer(ids=False, hex_=False, json=False)(Entry(7, b"\x1b[2J", 5, 2, 6))
    assert capfd.readouterr().out == "\\x1b[2J\n"
