"""RocketMQ's JSON: what fastjson writes and accepts, which is more than JSON.

Written: members in the order of their names, nulls left out, integer keys bare (``{0:5}``) unless the reader's version
wants them quoted, and objects as keys (``{{"queueId":0}:5}``). Configuration files and large tables are strict JSON.
Read: that, JSON, strings in single quotes, and trailing commas. A member that is null is one that is absent.

Texts come from strangers, so depth, size, and the number of values are bounded (a million, some 100 MB at worst; the
largest tables of real clusters have a tenth). What breaks the format or a bound raises RemoteProtocolError. A request
that is read in one turn of a loop has a bound of its own: ``SHORT_BYTES``, or less.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from json.encoder import encode_basestring
from typing import Any, TypeVar

import msgspec

from tallystick.errors import RemoteProtocolError

T = TypeVar("T")

MAX_BYTES = 16 * 1024 * 1024
MAX_VALUES = 1_000_000
MAX_LOOSE_VALUES = 250_000  # where each value costs a step of ours, some microseconds
SHORT_BYTES = 512 * 1024  # of a request: some ten milliseconds, whatever it says
LOOSE_SHORT_BYTES = 32 * 1024  # of one that is no strict JSON
MAX_LOOSE_SHORT = 5_000
MAX_DEPTH = 64
STEP_ITEMS = 200  # of a list or table, in one piece: about a millisecond
PIECE_VALUES = 1000  # of a configuration file, in one piece: lines, and what tables and lists in them have

# Reading


def read_as(data: bytes | memoryview | str, kind: type[T], *, bounded: bool = True, max_values: int | None = None) -> T:
    """Decode a text as a value of a type. Raises RemoteProtocolError.

    ``bounded=False`` is for what no stranger wrote: a file of our own, a master's table. It may have any size.
    ``max_values`` bounds a text that takes neither of the first two ways.

    Strict JSON takes the first way. The tables with integer keys take the second: put the keys into quotes. That cannot
    turn one text into another one: inside a string the new quote ends it, and a digit after a string is an error.
    """
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if bounded:
        check_bounds(raw, MAX_VALUES)
    decode = _decoder(kind)
    with suppress(*_NOT_STRICT):
        return decode(raw)
    with suppress(*_NOT_STRICT):
        return decode(_BARE_KEY.sub(rb'\1"\2"', raw))
    try:
        return msgspec.convert(read(raw, bounded=bounded, max_values=max_values), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"not what was expected: {error}") from error


def read_short(data: bytes | bytearray | memoryview, kind: type[T], *, most_bytes: int = SHORT_BYTES) -> T:
    """As ``read_as``, for a request that is read in one turn of a loop: at most so many bytes, and few of a text that
    is no strict JSON, as it costs a hundred times as much."""
    if len(data) > most_bytes:
        raise RemoteProtocolError(f"a text of this request has at most {most_bytes} bytes", bytes=len(data))
    raw = bytes(data)
    try:
        return _decoder(kind)(raw)
    except _NOT_STRICT as error:
        if len(raw) > LOOSE_SHORT_BYTES:
            remark = f"a text of a request that is no strict JSON has at most {LOOSE_SHORT_BYTES} bytes: {error}"
            raise RemoteProtocolError(remark, bytes=len(raw)) from error
    return read_as(raw, kind, max_values=MAX_LOOSE_SHORT)


def read_strict(data: bytes, kind: type[T]) -> T:
    """As ``read_as``, of strict JSON alone, but that integer keys may be bare: what original brokers write. What else
    they would read costs a hundred times as much."""
    decode = _decoder(kind)
    with suppress(*_NOT_STRICT):
        return decode(data)
    try:
        return decode(_BARE_KEY.sub(rb'\1"\2"', data))
    except _NOT_STRICT as error:
        raise RemoteProtocolError(f"a text is no strict JSON, or not what was expected: {error}") from error


_NOT_STRICT = msgspec.DecodeError, UnicodeDecodeError, RecursionError
_BARE_KEY = re.compile(rb"([{,]\s*+)(-?\d++)(?=\s*+:)")


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    any_kind: Any = kind
    decode: Callable[[bytes], T] = _cached_decoder(any_kind)
    return decode


@functools.cache
def _cached_decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, strict=False).decode


def read(data: bytes | str, *, bounded: bool = True, max_values: int | None = None) -> Any:
    """Decode a text as dicts, lists, strings, numbers, booleans. Raises RemoteProtocolError, also above ``max_values``.

    Keys are strings, bare numbers too; an object as key becomes a tuple of its (name, value) pairs.
    """
    raw = data.encode() if isinstance(data, str) else data
    if bounded:
        check_bounds(raw, MAX_LOOSE_VALUES)
    try:
        parser = _Parser(raw.decode(), max_values)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a text is not UTF-8: {error}") from error
    value = parser.value(parser.token(), 0)
    if parser.token():
        raise RemoteProtocolError("more than one value in a text", at=parser.at)
    return value


def check_bounds(raw: bytes, most: int) -> None:
    """Raises RemoteProtocolError for a text, or several, of too many bytes or of more than so many values."""
    if len(raw) > MAX_BYTES or count_values(raw) > most:
        raise RemoteProtocolError("a text is too large", bytes=len(raw))


def count_values(raw: bytes) -> int:
    """Returns how many values a text, or a piece of one, has at most: before each stands a comma, a colon or an opening
    bracket."""
    return sum(map(raw.count, (b",", b":", b"[", b"{")))


# Blanks, then one token: punctuation, a string, a number, a word, or the end.
_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:([{}\[\]:,])|("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')"""
    r"""|(-?\d{1,40}+(?:\.\d{1,40}+)?+(?:[eE][+-]?\d{1,4}+)?+)(?![\w.])|(true|false|null)\b|\Z)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = {"true": True, "false": False, "null": None}


class _Parser:
    """A recursive descent over one text; MAX_DEPTH bounds the recursion."""

    def __init__(self, text: str, max_values: int | None = None) -> None:
        self.text, self.at = text, 0
        self.values_left = sys.maxsize if max_values is None else max_values
        self.kind = 0  # of the last token: its group in _TOKEN, 0 at the end

    def token(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise RemoteProtocolError("a text is no JSON", at=self.at)
        self.at, self.kind = match.end(), match.lastindex or 0
        return match[self.kind] if self.kind else ""

    def value(self, token: str, depth: int) -> Any:
        self.values_left -= 1
        if self.values_left < 0:
            raise RemoteProtocolError("a text has too many values", at=self.at)
        if self.kind == 1 and token in "{[":
            if depth >= MAX_DEPTH:
                raise RemoteProtocolError("a text is nested too deeply", at=self.at)
            return self.members(depth + 1) if token == "{" else self.elements(depth + 1)
        if self.kind == 2:
            return self.string(token)
        if self.kind == 3:
            return self.number(token)
        if self.kind == 4:
            return _WORDS[token]
        raise RemoteProtocolError("a value is missing", at=self.at)

    def elements(self, depth: int) -> list[Any]:
        values: list[Any] = []
        while (token := self.token()) != "]" or self.kind != 1:
            values.append(self.value(token, depth))
            if self.separator("]"):
                break
        return values

    def members(self, depth: int) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        while (token := self.token()) != "}" or self.kind != 1:
            key = token if self.kind == 3 else self.value(token, depth)
            if isinstance(key, dict) and all(isinstance(part, str | int | float) for part in key.values()):
                key = tuple(key.items())
            elif not isinstance(key, str):
                raise RemoteProtocolError("no string, number or flat object as key", at=self.at)
            if self.token() != ":" or self.kind != 1:
                raise RemoteProtocolError("a colon is missing", at=self.at)
            value = self.value(self.token(), depth)
            if value is not None:
                table[key] = value
            if self.separator("}"):
                break
        return table

    def separator(self, closing: str) -> bool:
        """Take a comma (returns False) or the closing bracket (True)."""
        token = self.token()
        if self.kind != 1 or token not in ("," + closing):
            raise RemoteProtocolError("a comma or a bracket is missing", at=self.at)
        return token == closing

    def number(self, token: str) -> int | float:
        if token.lstrip("-").isdigit():
            return int(token)
        if math.isinf(number := float(token)):
            raise RemoteProtocolError("a number is out of range", at=self.at)
        return number

    def string(self, token: str) -> str:
        inner = token[1:-1]
        if "\\" not in inner:
            return inner
        try:
            text = _ESCAPE.sub(_unescape, inner)
            # Escaped surrogates come in pairs, and one alone is no character.
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except (KeyError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"a string with a bad escape: {error}", at=self.at) from error


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]]


# Writing


def write(value: Any, *, quoted: bool = False) -> bytes:
    """Encode a value as one line. ``quoted`` puts integer keys in quotes."""
    out: list[str] = []
    _write(value, out.append, '"' if quoted else "")
    return "".join(out).encode()


def write_pieces(value: Any, *, quoted: bool = False) -> Iterator[bytes]:
    """As ``write``, for a struct with lists or tables that may be long: a piece has ``STEP_ITEMS`` of one at most."""
    text, between = b"", b"{"
    kind: Any = type(value)
    for head, name in _members(kind):
        member = getattr(value, name)
        if member is None:
            continue
        text += between + head.encode()
        between = b","
        if isinstance(member, list | dict) and len(member) > STEP_ITEMS:
            yield text
            yield from _items(member, quoted)
            text = b""
        else:
            text += write(member, quoted=quoted)
    yield text + (b"}" if between == b"," else b"{}")


def _items(member: list[Any] | dict[Any, Any], quoted: bool) -> Iterator[bytes]:
    is_list = isinstance(member, list)
    items = list(member.items()) if isinstance(member, dict) else member
    between = b"[" if is_list else b"{"
    for start in range(0, len(items), STEP_ITEMS):
        some = items[start : start + STEP_ITEMS]
        text = write(some if is_list else dict(some), quoted=quoted)[1:-1]
        if text:  # else all of them are null, and left out
            yield between + text
            between = b","
    yield (b"" if between == b"," else between) + (b"]" if is_list else b"}")


def write_lines(value: Any) -> Iterator[bytes]:
    """Encode a struct as the text of a configuration file: strict JSON, a line for each entry of its tables.

    It comes in pieces of ``PIECE_VALUES`` (or one entry that has more), so that who writes large tables on a loop can
    stop in between. The keys of a table are those of the moment when its first piece is
    taken, an entry is that of the moment of its own piece; an entry that was removed by then is left out.
    """
    opening = b"{\n"
    kind: Any = type(value)
    for head, name in _members(kind):
        member = getattr(value, name)
        if member is None:
            continue
        if isinstance(member, dict):
            yield opening + head.encode() + b"{"
            yield from _lines(member)
            yield b"}"
        else:
            yield opening + head.encode() + write_strict(member)
        opening = b",\n"
    yield b"}\n" if opening == b",\n" else b"{}\n"


def _lines(table: dict[Any, Any]) -> Iterator[bytes]:
    keys, between = list(table), b"\n"  # not the entries: a list of a million takes longer than a turn of a loop
    some: list[bytes] = []
    size = 0
    for key in keys:
        if key not in table:
            continue
        value = table[key]
        some.append(b"%s:%s" % (_quoted(key), write_strict(value)))
        size += 1 + (len(value) if isinstance(value, Sized) else 0)
        if size >= PIECE_VALUES:
            yield between + b",\n".join(some)
            between, some, size = b",\n", [], 0
    if some:
        yield between + b",\n".join(some)
    if keys:
        yield b"\n"


def _quoted(key: Any) -> bytes:
    return write_strict(key if isinstance(key, str) else str(int(key)))


def write_strict(value: Any, *, by_name: bool = False) -> bytes:
    """Encode a value as strict JSON: all keys in quotes, nulls written, members in their struct's order or ``by_name``,
    views of tables as lists.

    It takes a thirtieth of the time of ``write``: for tables of many entries, whose readers take either.
    """
    return msgspec.json.encode(value, enc_hook=list, order="sorted" if by_name else None)


def _write(value: Any, put: Any, quote: str) -> None:
    if isinstance(value, str):
        put(encode_basestring(value))
    elif isinstance(value, bool):
        put("true" if value else "false")
    elif isinstance(value, int):
        put(str(int(value)))  # int() because flags and codes have texts of their own
    elif isinstance(value, float):
        put(repr(value))
    elif value is None:  # as a member it is left out, in a list it keeps its place
        put("null")
    elif isinstance(value, list | tuple):
        _write_all("[", [("", item) for item in value], "]", put, quote)
    elif isinstance(value, dict):
        members = [(_key(key, quote), item) for key, item in value.items() if item is not None]
        _write_all("{", members, "}", put, quote)
    else:
        kind: Any = type(value)
        members = [(head, item) for head, name in _members(kind) if (item := getattr(value, name)) is not None]
        _write_all("{", members, "}", put, quote)


def _write_all(opening: str, members: list[tuple[str, Any]], closing: str, put: Any, quote: str) -> None:
    put(opening)
    between = ""
    for head, item in members:
        if type(item) is int:  # most of what tables hold
            put(f"{between}{head}{item}")
        else:
            put(between + head)
            _write(item, put, quote)
        between = ","
    put(closing)


def _key(key: Any, quote: str) -> str:
    if isinstance(key, str):
        return encode_basestring(key) + ":"
    if isinstance(key, int):
        return f"{quote}{key}{quote}:"
    return write(dict(key) if isinstance(key, tuple) else key, quoted=bool(quote)).decode() + ":"


@functools.cache
def _members(kind: Any) -> list[tuple[str, str]]:
    """Of a struct: a member's name in quotes with its colon, and its attribute, in the order of the names."""
    pairs = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return [(f'"{name}":', attribute) for name, attribute in sorted(pairs)]
