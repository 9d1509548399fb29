"""How results and failures are printed: text for people, one JSON object a line for programs."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json as json_format
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tallystick import errors
from tallystick.cli import times
from tallystick.runtime.events import Event

WIDE = 10_000  # a table that does not go to a terminal is never folded
MOST_LINES = 100  # of one field, for people
PROGRESS_S = 0.2
NO_PERMISSION = 16  # the answer of a broker to a request that is not signed, wrongly, or by one who may not send it

_ADVICE: dict[type[errors.TallyError], str] = {
    errors.RecoveryIncomplete: "See which bookies are down with `tally bookie list`, bring them back, and try again. "
    "Where none is, their logs and `tally bookie info` say why they refuse.",
    errors.LedgerFenced: "Another client recovers the ledger: go on in a new one.",
    errors.LedgerClosed: "Go on in a new ledger.",
    errors.NoSuchLedger: "See `tally ledger list`.",
    errors.Unauthorized: "Passwords come from --password-file or the variable TALLY_PASSWORD; what a user may do "
    "stands in the bookies' permissionsFile.",
    errors.BookieUnavailable: "See `tally bookie list`, and try again.",
    errors.BrokerUnavailable: "See `tally ha status`, and try again.",
    errors.MetadataUncertain: "See `tally ledger show` or `tally ledger list` for what was done, and try again.",
    errors.NoSuchTopic: "See `tally topic list`; make it with `tally topic create`.",
    errors.StreamFenced: "`tally stream show` says who has it now; what is in doubt, `tally stream read` shows.",
    errors.NoSuchStream: "See `tally stream list`; make it with `tally stream create`.",
    errors.NoSuchCursor: "See `tally stream cursors`; make it there with --create.",
    errors.StreamTerminated: "It has its end for good: go on in another stream.",
    errors.NoSuchPosition: "`tally stream show` has the first and the last one.",
    errors.EntryLost: "`tally cluster status` says who gave it up; `tally ledger show` which entries are left.",
    errors.CorruptEntry: "If the stream's entries are no messages give --raw; to leave out what cannot be read, "
    "--skip-corrupt.",
    errors.DigestMismatch: "Every replica that answered is damaged or not this ledger's.",
}


def advice(error: errors.TallyError, *, changes: bool = False) -> str:
    """What to do about it, as a sentence to put behind the message; empty where the message says it all.

    ``changes``: something was ordered that changes what is stored.
    """
    if isinstance(error, errors.RequestTimeout):
        where = "tally ha status" if error.fields.keys().isdisjoint({"bookie", "ledger"}) else "tally bookie list"
        return f"{'. It may have been done all the same' if changes else ''}. See `{where}`, and try again."
    if isinstance(error, errors.NotEnoughBookies):
        return f". {_more_bookies(error)}"
    if isinstance(error, errors.PositionTrimmed) and error.first is not None:
        return f". Begin with -o {error.first}."
    if isinstance(error, errors.HandOverRefused):
        return f". {_kept_from_a_broker(error)}"
    if isinstance(error, errors.StreamOwned):
        return f". {_owned(error)}"
    if isinstance(error, errors.BrokerError) and error.response_code == NO_PERMISSION:
        return ". Who asks says the file that TALLY_BROKER_CREDENTIALS names: accessKey= and secretKey=, a line each."
    for kind in type(error).__mro__:
        if kind in _ADVICE:
            return f". {_ADVICE[kind]}"
    return ""


def text_of(error: errors.TallyError) -> str:
    """The message and its fields; times and queues as people read them."""
    fields: dict[str, Any] = {}
    for key, value in error.fields.items():
        if key == "since_ms" and value is not None:
            fields["since"] = times.shown(value)
        elif hasattr(value, "queue_id"):  # a queue of a topic: as --queue takes it
            fields.update(topic=value.topic, queue=f"{value.broker}:{value.queue_id}")
        else:
            fields[key] = value
    parts = " ".join(f"{key}={value}" for key, value in fields.items())
    return f"{error.message} ({parts})" if parts else error.message


def _owned(error: errors.StreamOwned) -> str:
    if error.owner is None:  # perhaps a Pulsar broker, as the message says
        return "Here that is --takeover."
    what = "stream" if error.cursor is None else "cursor"
    return (
        f"End that process, or wait until it gives the {what} back; one that was killed keeps it until its lease ends, "
        "10 s by default. With --takeover it is fenced, and loses what it does not know to be stored."
    )


def _kept_from_a_broker(error: errors.HandOverRefused) -> str:
    if error.deletions is None or not error.deletions.cursor_keeps:
        return "--force hands it over all the same."
    return "`tally stream cursors STREAM --create NAME` makes such a cursor; --force hands it over all the same."


def _more_bookies(error: errors.NotEnoughBookies) -> str:
    smaller = ", or ask for a smaller --ensemble" if error.needed is not None and error.available else ""
    advice = f"See `tally bookie list` for bookies that are down: start them, or others{smaller}."
    if error.read_only:
        advice += (
            " Those that are read-only have a full disk, or are drained (`tally bookie info` says which): give them "
            "room, or undo that with `tally bookie drain --undo`."
        )
    if error.fields.get("answers"):
        advice += " Why a bookie refused, its log and `tally bookie info` say."
    return advice


def json_line(values: Mapping[str, Any]) -> None:
    """As UTF-8 text, or with escapes where that or the encoding of stdout cannot carry it: JSON either way."""
    line = json_format.dumps(values, default=_plain, ensure_ascii=False)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = json_format.dumps(values, default=_plain)
    print(line)


def quantity(number: int, one: str, more: str) -> str:
    """``1 entry``, ``2 entries``."""
    return f"{number} {one if number == 1 else more}"


def rows(table: Sequence[Mapping[str, Any]], *, json: bool, empty: str) -> None:
    """A table with the keys of the first row as its head."""
    if json:
        for row in table:
            json_line(row)
    elif not table:
        print(empty, file=sys.stderr)
    else:
        _table(table)


def clear() -> None:
    """Begin a new screen, where there is one; elsewhere an empty line parts what comes from what was."""
    print("\x1b[H\x1b[2J" if sys.stdout.isatty() else "", end="" if sys.stdout.isatty() else "\n")


def details(values: Mapping[str, Any], *, json: bool) -> None:
    """One thing, a line a field; for people not all lines of a field that has very many."""
    if json:
        json_line(values)
        return
    width = max(map(len, values))
    for key, value in values.items():
        lines = [_text(one) for one in value[:MOST_LINES]] if isinstance(value, list) else [_text(value)]
        print(f"{key:{width}}  {lines[0] if lines else '-'}")
        for line in lines[1:]:
            print(f"{'':{width}}  {line}")
        if isinstance(value, list) and len(value) > MOST_LINES:
            print(f"{'':{width}}  … and {len(value) - MOST_LINES} more: --json has all")


def event_line(event: Event, *, json: bool) -> None:
    """One protocol decision and its reason."""
    if json:
        json_line({"event": event.kind, **event.fields})
    else:
        print(event)


@contextlib.contextmanager
def progress(noun: str, *, is_shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Count on stderr while work goes on, where somebody may be watching; the caller gets ``count(how_many_more)``."""
    total, shown_at = 0, time.monotonic()
    watched = is_shown and sys.stderr.isatty()

    def count(more: int) -> None:
        nonlocal total, shown_at
        total += more
        if watched and time.monotonic() - shown_at >= PROGRESS_S:
            shown_at = time.monotonic()
            print(f"\r{total:,} {noun}", end="", file=sys.stderr, flush=True)

    try:
        yield count
    finally:
        if watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def payload_text(data: bytes) -> str:
    """For a terminal, which must not obey what somebody stored."""
    return line_text(data.decode(errors="backslashreplace"))


def line_text(text: str) -> str:
    """The same of text, which stays one line."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\t" else _escaped(sign) for sign in text)


def shortened(text: str) -> str:
    """The same without the middle of each very long word: a file pasted as a name would hide what is said of it."""
    return re.sub(r"\S{600,}", lambda word: f"{word[0][:200]}… ({len(word[0]):,} signs) …{word[0][-100:]}", text)


def _escaped(sign: str) -> str:
    return f"\\x{ord(sign):02x}" if ord(sign) < 256 else f"\\u{ord(sign):04x}"


def payload_printer(*, hex_: bool) -> Callable[[str, bytes], None]:
    """How a prefix and a payload go to stdout. Through a pipe the bytes go as they are; a terminal gets no control
    characters."""
    to_terminal, raw = sys.stdout.isatty(), sys.stdout.buffer

    def show(prefix: str, data: bytes) -> None:
        if hex_:
            print(prefix + data.hex())
        elif to_terminal:
            print(prefix + payload_text(data))
        else:
            raw.write(b"%b%b\n" % (prefix.encode("utf-8", "surrogateescape"), data))

    return show


def payload_json(data: bytes, *, hex_: bool = False) -> dict[str, str]:
    """``data`` where the bytes are text, else ``data_base64``; ``data_hex`` where that was asked for."""
    if hex_:
        return {"data_hex": data.hex()}
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def _table(table_rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = "NO_COLOR" in os.environ and os.environ["NO_COLOR"] != ""  # nothing is bold then either
    console = Console(
        width=None if sys.stdout.isatty() else WIDE, highlight=False, color_system=None if plain else "auto"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, value in table_rows[0].items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(key, justify="right" if number else "left", overflow="fold")
    for row in table_rows:
        table.add_row(*(Text(_text(value)) for value in row.values()))
    if console.measure(table, options=console.options.update(width=WIDE)).maximum > console.width:
        _blocks(table_rows)
        return
    # Printed by us: the library would end the process by itself when our reader is gone.
    with console.capture() as printed:
        console.print(table)
    print(printed.get(), end="")


def _blocks(table_rows: Sequence[Mapping[str, Any]]) -> None:
    """A table that is wider than the screen: its rows one below the other, an empty line between two."""
    for number, row in enumerate(table_rows):
        if number:
            print()
        details(row, json=False)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{_text(key)}={_text(one)}" for key, one in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "-"
    return payload_text(bytes(value)) if isinstance(value, bytes | memoryview) else line_text(str(value))


def _plain(value: Any) -> Any:
    """What JSON cannot hold."""
    if isinstance(value, bytes | memoryview):
        return payload_text(bytes(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)
