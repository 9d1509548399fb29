"""The binary protocol, version 2 (``BookieProtocol``, ``BookieProtoEncoding``): one frame, one value.

::

    frame     length 4 | body                                      length counts the body only
    body      header 4 | …                                         header = version 8 bits | opcode 8 | flags 16
    ADD       header | master key 20 | entry                       entry: see digest.py
    READ      header | ledger 8 | entry 8 [| master key 20]        entry -1: the last one stored; key only when fencing
    BATCH     header | ledger 8 | first 8 | request id 8 | max count 4 | max bytes 8 [| master key 20]
    AUTH      header | AuthMessage (protobuf)
    responses header | code 4 | ledger 8 | entry 8 [| entry bytes]
              header | code 4 | ledger 8 | first 8 | request id 8 [| length 4 entry]…          of BATCH
              header | AuthMessage                                                             of AUTH

Runs of ADDs and of their responses have faster ways through ``tallystick.codec``; this module is the reference.
A frame that breaks the format raises RemoteProtocolError: the original closes the connection, and so do we.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import MASTER_KEY_BYTES
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.reads import even_entries
from tallystick.errors import RemoteProtocolError

Buffer = bytes | bytearray | memoryview

VERSION = 2


class Op(enum.IntEnum):
    ADD = 1
    READ = 2
    AUTH = 3
    BATCH_READ = 7


class RequestFlag(enum.IntFlag):
    NONE = 0
    FENCE = 0x1
    RECOVERY_ADD = 0x2
    HIGH_PRIORITY = 0x4


NUMBERS = {  # of the codes, in responses
    Code.OK: 0,
    Code.NO_LEDGER: 1,
    Code.NO_ENTRY: 2,
    Code.BAD_REQUEST: 100,
    Code.IO_ERROR: 101,
    Code.UNAUTHORIZED: 102,
    Code.BAD_VERSION: 103,
    Code.FENCED: 104,
    Code.READ_ONLY: 105,
    Code.TOO_MANY_REQUESTS: 106,
    Code.UNKNOWN_LEDGER_STATE: 107,
}
_CODES = {number: code for code, number in NUMBERS.items()}

_LENGTH_HEADER = struct.Struct(">II")
_READ = struct.Struct(">qq")
_BATCH = struct.Struct(">qqqiq")
_RESPONSE = struct.Struct(">iqq")
_RESPONSE_FRAME = struct.Struct(">IIiqq")
_BATCH_RESPONSE = struct.Struct(">iqqq")
RESPONSE_BYTES = 24
BATCH_RESPONSE_BYTES = 32


def header(op: int, flags: int = 0, version: int = VERSION) -> int:
    """Return the first four bytes of a body. Version 0 has the opcode alone."""
    return version << 24 | op << 16 | flags if version else op


@dataclass(frozen=True)
class AddFrame:
    ledger: LedgerId
    entry: EntryId
    master_key: bytes
    body: Buffer  # the whole entry, header and digest included
    flags: int = 0
    version: int = VERSION

    def encode(self) -> bytes:
        body = b"".join((header(Op.ADD, self.flags, self.version).to_bytes(4, "big"), self.master_key, self.body))
        return len(body).to_bytes(4, "big") + body


@dataclass(frozen=True)
class ReadFrame:
    ledger: LedgerId
    entry: EntryId
    master_key: bytes | None = None
    flags: int = 0
    version: int = VERSION

    def encode(self) -> bytes:
        tail = self.master_key or b""
        head = _LENGTH_HEADER.pack(20 + len(tail), header(Op.READ, self.flags, self.version))
        return head + _READ.pack(self.ledger, self.entry) + tail


@dataclass(frozen=True)
class BatchReadFrame:
    ledger: LedgerId
    first: EntryId
    request_id: int
    max_count: int  # 0 or less: as many as fit
    max_bytes: int
    master_key: bytes | None = None
    flags: int = 0
    version: int = VERSION

    def encode(self) -> bytes:
        tail = self.master_key or b""
        body = _BATCH.pack(self.ledger, self.first, self.request_id, self.max_count, self.max_bytes) + tail
        return _LENGTH_HEADER.pack(4 + len(body), header(Op.BATCH_READ, self.flags, self.version)) + body


@dataclass(frozen=True)
class AuthFrame:
    message: bytes
    version: int = VERSION

    def encode(self) -> bytes:
        return _LENGTH_HEADER.pack(4 + len(self.message), header(Op.AUTH, 0, self.version)) + self.message


Request = AddFrame | ReadFrame | BatchReadFrame | AuthFrame


def decode_request(body: Buffer) -> Request:
    """Decode the body of a request (without its length).

    Raises RemoteProtocolError where the original closes the connection.
    The version is not judged here: any above 2 is answered with BAD_VERSION.
    """
    view = memoryview(body)
    if len(view) < 4:
        raise RemoteProtocolError("a frame is shorter than its header", bytes=len(view))
    word = int.from_bytes(view[:4], "big")
    version, op, flags = (word >> 24, word >> 16 & 0xFF, word & 0xFFFF) if word >> 24 else (0, word & 0xFF, 0)
    try:
        if op == Op.ADD:
            return _decode_add(view, flags, version)
        if op == Op.READ:
            ledger, entry = _READ.unpack_from(view, 4)
            return ReadFrame(ledger, entry, _key(view, 20, flags, version), flags, version)
        if op == Op.BATCH_READ:
            ledger, first, request_id, count, size = _BATCH.unpack_from(view, 4)
            return BatchReadFrame(
                ledger, first, request_id, count, size, _key(view, 40, flags, version), flags, version
            )
    except struct.error as error:
        raise RemoteProtocolError("a frame is shorter than its request", op=op, bytes=len(view)) from error
    if op == Op.AUTH:
        return AuthFrame(bytes(view[4:]), version)
    raise RemoteProtocolError("this opcode has no version 2 form", op=op)


def _decode_add(view: memoryview, flags: int, version: int) -> AddFrame:
    start = 4 + MASTER_KEY_BYTES
    ledger, entry = _READ.unpack_from(view, start)
    return AddFrame(ledger, entry, bytes(view[4:start]), view[start:], flags, version)


def _key(view: memoryview, start: int, flags: int, version: int) -> bytes | None:
    if not (flags & RequestFlag.FENCE and version >= 2):
        return None
    key = bytes(view[start : start + MASTER_KEY_BYTES])
    if len(key) < MASTER_KEY_BYTES:
        raise RemoteProtocolError("a fencing request has no master key", bytes=len(view))
    return key


def encode_response(request: AddFrame | ReadFrame, code: Code, entry: Buffer = b"") -> bytes:
    """Return the response frame to an ADD or a READ; ``entry`` are the stored bytes."""
    op = Op.ADD if isinstance(request, AddFrame) else Op.READ
    word = header(op, 0, request.version)
    size, number = RESPONSE_BYTES + len(entry), NUMBERS[code]
    return _RESPONSE_FRAME.pack(size, word, number, request.ledger, request.entry) + bytes(entry)


def encode_batch_response(request: BatchReadFrame, code: Code, entries: Sequence[Buffer] = ()) -> bytes:
    """Return the response frame to a BATCH_READ."""
    sizes = list(map(len, entries))
    size = 4 + _BATCH_RESPONSE.size + 4 * len(sizes) + sum(sizes)
    head = _LENGTH_HEADER.pack(size, header(Op.BATCH_READ, 0, request.version))
    response = _BATCH_RESPONSE.pack(NUMBERS[code], request.ledger, request.first, request.request_id)
    encoded = {size: size.to_bytes(4, "big") for size in set(sizes)}  # most entries are as long as others
    if len(encoded) == 1:  # nearly always, and then the length stands between all parts
        return encoded[sizes[0]].join((head + response, *entries))
    lengths = map(encoded.__getitem__, sizes)
    return b"".join((head, response, *chain.from_iterable(zip(lengths, entries, strict=True))))


@dataclass(frozen=True)
class Response:
    """The response to an ADD (``entry_bytes`` is empty then) or a READ."""

    op: int
    code: Code
    ledger: LedgerId
    entry: EntryId
    entry_bytes: memoryview


@dataclass(frozen=True)
class BatchReadResponse:
    code: Code
    ledger: LedgerId
    first: EntryId
    request_id: int
    entries: Sequence[memoryview]


@dataclass(frozen=True)
class AuthResponse:
    message: bytes


def decode_response(body: Buffer) -> Response | BatchReadResponse | AuthResponse:
    """Decode the body of a response (without its length). Raises RemoteProtocolError."""
    view = memoryview(body)
    if len(view) < 4:
        raise RemoteProtocolError("a response is shorter than its header", bytes=len(view))
    op = view[1]
    try:
        if op in (Op.ADD, Op.READ):
            number, ledger, entry = _RESPONSE.unpack_from(view, 4)
            return Response(op, _code(number), ledger, entry, view[RESPONSE_BYTES:])
        if op == Op.BATCH_READ:
            number, ledger, first, request_id = _BATCH_RESPONSE.unpack_from(view, 4)
            return BatchReadResponse(_code(number), ledger, first, request_id, _split(view[BATCH_RESPONSE_BYTES:]))
    except struct.error as error:
        raise RemoteProtocolError("a response is shorter than its form", op=op, bytes=len(view)) from error
    if op == Op.AUTH:
        return AuthResponse(bytes(view[4:]))
    raise RemoteProtocolError("a response has an unknown opcode", op=op)


def _code(number: int) -> Code:
    return _CODES.get(number, Code.UNDEFINED)


def _split(view: memoryview) -> Sequence[memoryview]:
    if (even := even_entries(view)) is not None:
        return even
    entries, position = [], 0
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4 + size
        if position > len(view):
            raise RemoteProtocolError("a batch read's response ends inside an entry", bytes=len(view))
        entries.append(view[position - size : position])
    return tuple(entries)
