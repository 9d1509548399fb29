r"""How messages of a stream are printed: in a format of the user's, as kcat has it, as JSON, or the payload alone.

::

    %s  payload                       %S  its bytes, -1 for none
    %k  key                           %K  its bytes, -1 for none
    %o  position, ledger:entry        %t  name of the stream
    %T  publish time, ms since 1970   %d  the same as 2026-03-01T12:00:00.000Z
    %e  event time in ms, -1 for none
    %p  producer                      %q  its sequence number, -1 for none
    %h  properties, name=value,…      %%  a percent sign
    \n \r \t \\ \xHH                  control characters
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable

from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.cli import output, times
from tallystick.errors import UsageError

Show = Callable[[StreamMessage], None]
Part = Callable[[StreamMessage], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)


def key_bytes(message: StreamMessage) -> bytes | None:
    return message.key.encode() if isinstance(message.key, str) else message.key


def _number(number: int | None) -> bytes:
    return b"%d" % (-1 if number is None else number)


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _properties(message: StreamMessage) -> bytes:
    return ",".join(f"{name}={value}" for name, value in message.properties.items()).encode()


_FIELDS: dict[str, Part] = {
    "s": lambda message: message.data,
    "S": lambda message: _size(None if message.is_null else message.data),
    "k": lambda message: key_bytes(message) or b"",
    "K": lambda message: _size(key_bytes(message)),
    "o": lambda message: str(message.position).encode(),
    "T": lambda message: _number(message.publish_time),
    "d": lambda message: b"" if message.publish_time is None else times.shown(message.publish_time).encode(),
    "e": lambda message: _number(message.event_time),
    "p": lambda message: (message.producer or "").encode(),
    "q": lambda message: _number(message.sequence),
    "h": _properties,
}


def unescape(written: str, option: str) -> bytes:
    """Returns a text whose backslashes are carried out. Raises UsageError for others than those of the module."""
    parts, at = list[bytes](), 0
    for escape in _ESCAPE.finditer(written):
        letter = escape[1]
        if letter not in _ESCAPES and len(letter) != 3:
            raise UsageError(f"{option} knows \\n, \\r, \\t, \\\\ and \\xHH after a backslash", given=written)
        parts.append(written[at : escape.start()].encode("utf-8", "surrogateescape"))
        parts.append(_ESCAPES[letter] if letter in _ESCAPES else bytes([int(letter[1:], 16)]))
        at = escape.end()
    return b"".join([*parts, written[at:].encode("utf-8", "surrogateescape")])


def compile_format(written: str, stream: str) -> list[bytes | Part]:
    """Returns the parts of a format. Raises UsageError for what it does not know."""
    if not written:
        raise UsageError("-f is empty: nothing would be printed")
    fields = {**_FIELDS, "t": lambda message: stream.encode()}
    parts: list[bytes | Part] = []
    for index, part in enumerate(re.split(r"(%.?)", written, flags=re.DOTALL)):
        if index % 2 == 0:
            parts.append(unescape(part, "-f"))
        elif part == "%%":
            parts.append(b"%")
        elif part == "%":
            raise UsageError("-f ends with a single %: write %% for a percent sign", given=written)
        elif part[1] in fields:
            parts.append(fields[part[1]])
        else:
            raise UsageError(
                f"-f does not know {part}; it knows {' '.join(f'%{one}' for one in fields)}", given=written
            )
    return [part for part in parts if part]


def format_printer(written: str, stream: str) -> Show:
    """Prints messages in a format of the user's, without line breaks of its own. On a terminal what others stored has
    no control characters. Raises UsageError."""
    parts, raw, to_terminal = compile_format(written, stream), sys.stdout.buffer, sys.stdout.isatty()

    def show(message: StreamMessage) -> None:
        for part in parts:
            if isinstance(part, bytes):
                raw.write(part)
            else:
                value = part(message)
                raw.write(output.payload_text(value).encode() if to_terminal else value)

    return show


def json_printer(stream: str, *, hex_: bool) -> Show:
    """Prints a message as a JSON object a line."""
    return lambda message: output.json_line(_row(stream, message, hex_=hex_))


def _row(stream: str, message: StreamMessage, *, hex_: bool) -> dict[str, object]:
    row: dict[str, object] = {"stream": stream, "position": str(message.position)}
    if message.publish_time is not None:  # else it is raw
        row |= {
            "publish_time": message.publish_time,
            "event_time": message.event_time,
            "producer": message.producer,
            "sequence": message.sequence,
            "properties": dict(message.properties),
        }
        if isinstance(message.key, bytes):
            row["key_base64"] = base64.b64encode(message.key).decode()
        else:
            row["key"] = message.key
    return row | ({"data": None} if message.is_null else output.payload_json(message.data, hex_=hex_))


def payload_printer(*, ids: bool, hex_: bool, delimiter: bytes | None) -> Show:
    """Prints payloads, a line each; in front of them the position, and the key, where that is wanted."""
    show, to_terminal = output.payload_printer(hex_=hex_), sys.stdout.isatty()
    between = b"" if delimiter is None else delimiter

    def prefix(message: StreamMessage) -> str:
        written = f"{message.position}\t" if ids else ""
        if delimiter is not None:
            key = (key_bytes(message) or b"") + between
            written += output.payload_text(key) if to_terminal else key.decode("utf-8", "surrogateescape")
        return written

    return lambda message: show(prefix(message), message.data)


def printer(stream: str, format_: str | None, key_delimiter: str | None, *, ids: bool, hex_: bool, json: bool) -> Show:
    """How messages go to stdout. Raises UsageError for options of which one would do nothing."""
    if format_ is not None and (json or ids or hex_ or key_delimiter is not None):
        raise UsageError("-f says all that is printed: leave out --json, --ids, --hex and -K")
    if json and (ids or key_delimiter is not None):
        raise UsageError("with --json each message has its position and key: leave out --ids and -K")
    if key_delimiter == "":
        raise UsageError("-K needs a text between key and payload, which cannot be empty")
    if format_ is not None:
        return format_printer(format_, stream)
    if json:
        return json_printer(stream, hex_=hex_)
    return payload_printer(
        ids=ids, hex_=hex_, delimiter=None if key_delimiter is None else unescape(key_delimiter, "-K")
    )
