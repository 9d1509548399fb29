"""Commands: the frames of the remoting port, requests and responses alike (``RemotingCommand``, ``NettyDecoder``).

::

    frame     length 4 | kind 1 header length 3 | header | body       length counts all that follows it
    header    kind 0: JSON: code, extFields, flag, language, opaque, remark, serializeTypeCurrentRPC, version
              kind 1: code 2 language 1 version 2 opaque 4 flag 4 | remark 4+n | fields 4+n of [name 2+n value 4+n]…

Values of ``extFields`` are strings. They stay undecoded until somebody asks: ``headers.py`` reads them straight into a
typed header. Whatever the kind of a request, its response has a JSON header, as the original's has.

What breaks the format raises RemoteProtocolError, and the connection is to be closed. The original lets a header be as
long as the frame; ours stops at MAX_HEADER_BYTES, which no client comes near (properties end at 32,767 bytes), and
sooner where each field costs steps of Python: at MAX_LOOSE_BYTES of JSON that is not strict, and at MAX_FIELDS there
and in kind 1.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from tallystick.codec.command_heads import encode_head
from tallystick.codec.requests import Forms, scan_requests
from tallystick.errors import LocalProtocolError, RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import VERSION, Flag, Int32, Language, Serialization

Buffer = bytes | bytearray | memoryview

MAX_FRAME_BYTES = 16 * 1024 * 1024  # the length field included
MAX_HEADER_BYTES = 1024 * 1024
MAX_LOOSE_BYTES = 64 * 1024
MAX_FIELDS = 1024  # the largest requests have some thirty

_FIELD_BYTES = 128  # that a field takes in memory, beside its characters
_CHARACTER_BYTES = 4  # if one of a text is beyond the first 65,536
_LARGE_HEADER_BYTES = 1024

# Plain numbers and names: an IntFlag, and an enum's attribute, are slow per command.
_RESPONSE, _ONE_WAY = int(Flag.RESPONSE), int(Flag.ONE_WAY)
_IN_BINARY = Serialization.BINARY
_HEAD = struct.Struct(">II")
_BINARY = struct.Struct(">hBhii")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


class TypedFields(msgspec.Struct, frozen=True):
    """Fields that were read into a typed header (``headers.py``), and are all that came."""

    def to_fields(self) -> dict[str, str]:
        """Return the fields as texts, by their names on the wire."""
        return {
            name: value if type(value) is str else text_of(value)
            for name, attribute in _names(type(self))
            if (value := getattr(self, attribute)) is not None
        }


def text_of(value: Any) -> str:
    """Return a field's value, a number or a switch, as it is on the wire."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value))  # int() because flags have texts of their own


@functools.cache
def _names(kind: Any) -> list[tuple[str, str]]:
    return list(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))


# What it holds never refers back to it, and a busy client or broker has thousands.
class Command(msgspec.Struct, gc=False):
    """A request or a response. ``parts`` follow ``body`` on the wire; a command that was read has none."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    # None leaves extFields out; Raw is JSON that nobody has asked for yet.
    ext: dict[str, str] | Raw | TypedFields | None = None
    body: Buffer = b""
    parts: Sequence[Buffer] = ()
    language: Language = Language.PYTHON
    version: int = VERSION
    serialization: Serialization = Serialization.JSON

    @property
    def fields(self) -> dict[str, str]:
        """The extFields by name; empty if the command has none. Raises RemoteProtocolError."""
        ext = self.ext
        if isinstance(ext, Raw):
            ext = self.ext = _read_fields(ext)
        elif isinstance(ext, TypedFields):
            ext = self.ext = ext.to_fields()
        return ext or {}

    def put_back(self, ext: dict[str, str] | Raw | TypedFields | None) -> None:
        """Take the fields as they came again, after a look at ``fields``: a typed header reads them faster. Fields from
        which it might read something else stay what was looked at."""
        if not isinstance(self.ext, _LooseFields):
            self.ext = ext

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & _ONE_WAY)

    def response(
        self,
        code: int,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        parts: Sequence[Buffer] = (),
    ) -> Command:
        return Command(code, self.opaque, _RESPONSE, remark, fields, body, parts)


def held_bytes(command: Command) -> int:
    """Returns about how many bytes of memory the content of a command takes that was read: a header may have as many
    as its sender likes."""
    size, ext = len(command.body) + _CHARACTER_BYTES * len(command.remark or ""), command.ext
    if isinstance(ext, Raw):
        return size + len(memoryview(ext))
    if isinstance(ext, TypedFields):
        ext = ext.to_fields()
    return size + sum(
        [_FIELD_BYTES + _CHARACTER_BYTES * (len(name) + len(value)) for name, value in (ext or {}).items()]
    )


def request(
    code: int,
    fields: dict[str, str] | Raw | None = None,
    body: Buffer = b"",
    *,
    one_way: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> Command:
    """Returns a request; its sender sets the opaque."""
    return Command(code, 0, _ONE_WAY if one_way else 0, None, fields, body, serialization=serialization)


# Encoding


def encode(command: Command) -> bytes:
    """Encode the whole frame. Raises LocalProtocolError if it is too long, or a number or text cannot be encoded."""
    return b"".join(_pieces(command))


def encode_many(commands: Iterable[Command]) -> bytes:
    return b"".join([piece for command in commands for piece in _pieces(command)])


def _pieces(command: Command) -> list[Buffer]:
    body, parts = command.body, command.parts
    behind = len(body)
    if parts:
        behind += sum(map(len, parts))
    if behind > MAX_FRAME_BYTES:
        raise LocalProtocolError("a command is too long for a frame", code=command.code, bytes=behind)
    ext = command.ext
    try:
        if command.serialization is _IN_BINARY:
            header = _encode_binary(command)
            head = _HEAD.pack(4 + len(header) + behind, 1 << 24 | len(header)) + header
        else:
            head = encode_head(
                command.code,
                ext.to_fields() if isinstance(ext, TypedFields) else ext,
                command.flag,
                command.language._value_,  # a plain attribute: ``value`` costs ten times as much
                command.opaque,
                command.remark,
                command.version,
                behind,
            )
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a text cannot be sent: {error}", code=command.code) from error
    size = len(head) + behind
    if size > MAX_FRAME_BYTES or len(head) > MAX_HEADER_BYTES + _HEAD.size:
        raise LocalProtocolError("a command is too long for a frame", code=command.code, bytes=size - 4)
    return [head, body, *parts] if parts else [head, body]


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode()
    try:
        fixed = _BINARY.pack(command.code, command.language.number, command.version, command.opaque, command.flag)
        pairs = [
            _SHORT.pack(len(name)) + name + _INT.pack(len(value)) + value
            for name, value in ((n.encode(), v.encode()) for n, v in command.fields.items())
        ]
    except struct.error as error:
        raise LocalProtocolError(f"a binary header cannot hold this: {error}", code=command.code) from error
    fields = b"".join(pairs)
    return b"".join((fixed, _INT.pack(len(remark)), remark, _INT.pack(len(fields)), fields))


# Decoding


_ABSENT = Raw()


class _Head(msgspec.Struct):
    """A JSON header as it is read. Members may come in any order; unknown ones are passed over."""

    code: Int32
    extFields: Raw = _ABSENT
    flag: Int32 = 0
    language: Language = Language.OTHER
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0


_decode_head = msgspec.json.Decoder(_Head, strict=False).decode


class FrameReader:
    """Cuts what one connection receives into commands. After an error it is of no use any more."""

    def __init__(self, forms: Forms[Command] | None = None) -> None:
        """``forms``: of the requests that come most, which get their typed header at once; None where none come."""
        self._forms = forms
        self._buffer = bytearray()  # received and not cut yet
        self._needed_bytes = 8  # so many bytes are needed before it makes sense to look again

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were received and are not cut yet."""
        return len(self._buffer)

    @property
    def ready(self) -> bool:
        """Whether there may be a whole frame."""
        return len(self._buffer) >= self._needed_bytes

    def put(self, data: Buffer) -> None:
        """Keep what was received; nothing refers to ``data`` afterwards."""
        self._buffer += data

    def take(self, data: Buffer = b"", *, most: int = sys.maxsize, most_bytes: int = sys.maxsize) -> list[Command]:
        """Keep ``data``, too. Returns the commands that are whole now, in order. Raises RemoteProtocolError.

        It returns at most ``most`` of them, and none behind the first ``most_bytes``: the others stay for the next
        call.
        """
        self._buffer += data
        if not self.ready:
            return []
        commands: list[Command] = []
        self._needed_bytes = 8
        with memoryview(self._buffer) as view:
            at, end = 0, len(view)
            while end - at >= 8 and at < most_bytes and len(commands) < most:
                if self._forms is not None:
                    requests, stop = scan_requests(view, at, end, most_bytes, most - len(commands), self._forms)
                    if requests:
                        commands, at = commands + requests if commands else requests, stop
                        continue
                command, stop = _cut(view, at, end)
                if command is None:
                    self._needed_bytes = stop - at
                    break
                commands.append(command)
                at = stop
        del self._buffer[:at]
        return commands


def _cut(view: memoryview, at: int, end: int) -> tuple[Command | None, int]:
    """Returns the command at a place, None if it is not whole, and where it stops."""
    size, mark = _HEAD.unpack_from(view, at)
    header_size = mark & 0xFFFFFF
    if not 4 <= size <= MAX_FRAME_BYTES - 4:
        raise RemoteProtocolError("a frame of impossible length", bytes=size)
    if header_size > min(size - 4, MAX_HEADER_BYTES):
        raise RemoteProtocolError("a header of impossible length", bytes=header_size, frame_bytes=size)
    stop = at + 4 + size
    if stop > end:
        return None, stop
    body = at + 8 + header_size
    content = view[body:stop].tobytes() if body < stop else b""
    return _decode(mark >> 24, view[at + 8 : body].tobytes(), content), stop


def _decode(kind: int, header: bytes, body: bytes) -> Command:
    if kind == 0:
        try:
            head = _decode_head(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            head = _decode_loosely(header)
        ext = None if head.extFields is _ABSENT else head.extFields
        if isinstance(ext, Raw) and len(header) > _LARGE_HEADER_BYTES:
            ext = ext.copy()  # else it holds all of the header, whatever that has beside it
        return Command(head.code, head.opaque, head.flag, head.remark, ext, body, (), head.language, head.version)
    if kind == Serialization.BINARY:
        try:
            return _decode_binary(header, body)
        except (struct.error, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"a binary header is broken: {error}") from error
    raise RemoteProtocolError("an unknown kind of header", kind=kind)


def _decode_loosely(header: bytes) -> _Head:
    """Decode a header in the dialect, which is no strict JSON."""
    members = _read_loosely(header)
    try:
        if isinstance(members.get("language"), int):
            members["language"] = Language.of_number(members["language"]).value
        return _decode_head(msgspec.json.encode(members))
    except (msgspec.DecodeError, TypeError, AttributeError) as error:
        raise RemoteProtocolError(f"a header is not one: {error}") from error


def _read_loosely(text: bytes) -> Any:
    if len(text) > MAX_LOOSE_BYTES:
        raise RemoteProtocolError(
            f"a header that is not strict JSON of strings has at most {MAX_LOOSE_BYTES} bytes", bytes=len(text)
        )
    return dialect.read(text, max_values=2 * MAX_FIELDS)  # a name and a value


def _decode_binary(header: bytes, body: bytes) -> Command:
    code, language, version, opaque, flag = _BINARY.unpack_from(header)
    at = _BINARY.size
    remark, at = _text(header, at, _INT)
    (size,) = _INT.unpack_from(header, at)
    at += 4
    end = at + max(size, 0)  # the original takes no fields for a negative size
    if end > len(header):
        raise RemoteProtocolError("fields of a binary header that end outside of it", bytes=size)
    fields: dict[str, str] = {}
    count = 0
    while at < end:
        count += 1
        if count > MAX_FIELDS:
            raise RemoteProtocolError(f"a binary header has at most {MAX_FIELDS} fields")
        name, at = _text(header, at, _SHORT)
        value, at = _text(header, at, _INT)
        if value:  # the original reads an empty one as null, which is the same as none
            fields[name] = value
    ext = fields if size > 0 else None
    return Command(
        code, opaque, flag, remark or None, ext, body, (), Language.of_number(language), version, Serialization.BINARY
    )


def _text(header: bytes, at: int, length: struct.Struct) -> tuple[str, int]:
    (size,) = length.unpack_from(header, at)
    at += length.size
    if not 0 <= size <= len(header) - at:
        raise RemoteProtocolError("a text of a binary header that ends outside of it", bytes=size)
    return header[at : at + size].decode(), at + size


_decode_fields = msgspec.json.Decoder(dict[str, str]).decode


class _LooseFields(dict[str, str]):
    """Fields of a text that is no strict JSON of strings: of a member that comes twice a typed header may read another
    one."""


def _read_fields(raw: Raw) -> dict[str, str]:
    try:
        return _decode_fields(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = _read_loosely(bytes(raw))
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise RemoteProtocolError("the extFields are no object")
    return _LooseFields(
        (str(name), value if isinstance(value, str) else dialect.write(value).decode())
        for name, value in members.items()
    )
