"""Version 3 of a bookie's protocol: a protobuf message in each frame (``BookkeeperProtocol.proto`` of the original).

    length 4 | Request  { header { version, operation, request id, priority }, the operation's own message }
    length 4 | Response { header, status, the operation's own message, which has the status again }

A response bears the id of its request, so that responses come in any order. These are the messages one by one; runs of
plain ADDs and READs go by columns (``codec/v3_adds.py``, ``v3_reads.py``), for which this is the reference.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

from google.protobuf.message import DecodeError

from tallystick.bookkeeper.wire import requests_pb2 as pb
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.frames import Buffer
from tallystick.errors import RemoteProtocolError

VERSION = 3
HIGH_PRIORITY = 100  # what the original's client sends; a bookie takes any but 0 for it
NO_AUTH_PLUGIN = b"AuthDisabledPlugin"
TOTAL_BYTES, FREE_BYTES = 0x1, 0x2  # what a BookieInfoRequest asks for
ADMINISTRATOR = 1 << 20  # of ours: asked by who must be one
DEFERRED_SYNC = 0x1  # in an ADD's write flags

MAX_HEADER_BYTES = 64  # of a peer that nobody knows; all clients' have half of that
_HEADER_TAG = 0x0A
_VERSIONS = range(1, 4)
_FENCE, _PIGGYBACK = 1, 2
_RECOVERY = 1


class Operation(enum.IntEnum):
    """The operations; RANGE_READ, RANGE_ADD and BATCH_READ are numbers without a message."""

    READ = 1
    ADD = 2
    RANGE_READ = 3
    RANGE_ADD = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    BOOKIE_INFO = 8
    START_TLS = 9
    FORCE = 10
    ENTRY_LIST = 11
    BATCH_READ = 12


OPERATIONS = {int(operation): operation for operation in Operation}
NUMBERS: Mapping[Code, int] = MappingProxyType(
    {
        Code.OK: 0,
        Code.NO_LEDGER: 402,
        Code.NO_ENTRY: 403,
        Code.BAD_REQUEST: 404,
        Code.IO_ERROR: 501,
        Code.UNAUTHORIZED: 502,
        Code.BAD_VERSION: 503,
        Code.FENCED: 504,
        Code.READ_ONLY: 505,
        Code.TOO_MANY_REQUESTS: 506,
        Code.UNKNOWN_LEDGER_STATE: 507,
    }
)


@dataclass(frozen=True, slots=True)
class Header:
    """What all requests begin with; a response has the same one, with the newest version and no priority."""

    request_id: int
    priority: int = 0
    version: int = VERSION


# Requests


@dataclass(frozen=True, slots=True)
class AddRequest:
    """ADD of an entry, ``body`` with its header and digest."""

    OPERATION: ClassVar = Operation.ADD
    header: Header
    ledger: LedgerId
    entry: EntryId
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)
    recovery: bool = False  # it passes a fence (Q14)
    deferred_sync: bool = False  # acknowledged before it is durable

    def _fill(self, request: Any) -> None:
        add = request.add
        add.ledger, add.entry, add.master_key, add.body = self.ledger, self.entry, self.master_key, self.body
        if self.deferred_sync:
            add.write_flags = DEFERRED_SYNC
        if self.recovery:
            add.flag = _RECOVERY


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """READ of an entry, -1 for the highest stored. ``fence``: first, with the master key, which no other read needs.

    With a ``previous_lac``, and not fencing, it is a long poll: the response comes when the ledger's LAC is beyond
    that, or after ``timeout_ms``.
    """

    OPERATION: ClassVar = Operation.READ
    header: Header
    ledger: LedgerId
    entry: EntryId
    master_key: bytes | None = field(default=None, repr=False)
    fence: bool = False
    previous_lac: EntryId | None = None
    timeout_ms: int | None = None

    @property
    def is_long_poll(self) -> bool:
        """Whether it waits for the LAC."""
        return self.previous_lac is not None and not self.fence

    def _fill(self, request: Any) -> None:
        read = request.read
        read.ledger, read.entry = self.ledger, self.entry
        for name in ("master_key", "previous_lac", "timeout_ms"):
            if (value := getattr(self, name)) is not None:
                setattr(read, name, value)
        if self.fence or self.is_long_poll:
            read.flag = _FENCE if self.fence else _PIGGYBACK


@dataclass(frozen=True, slots=True)
class WriteLacRequest:
    """WRITE_LAC: ``body`` is ledger, LAC and their digest."""

    OPERATION: ClassVar = Operation.WRITE_LAC
    header: Header
    ledger: LedgerId
    lac: EntryId
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)

    def _fill(self, request: Any) -> None:
        write = request.write_lac
        write.ledger, write.lac, write.master_key, write.body = self.ledger, self.lac, self.master_key, self.body


@dataclass(frozen=True, slots=True)
class ReadLacRequest:
    """READ_LAC: the LAC that a writer has sent by itself, and the highest entry stored."""

    OPERATION: ClassVar = Operation.READ_LAC
    header: Header
    ledger: LedgerId

    def _fill(self, request: Any) -> None:
        request.read_lac.ledger = self.ledger


@dataclass(frozen=True, slots=True)
class ForceRequest:
    """FORCE_LEDGER: make durable what was added."""

    OPERATION: ClassVar = Operation.FORCE
    header: Header
    ledger: LedgerId

    def _fill(self, request: Any) -> None:
        request.force.ledger = self.ledger


@dataclass(frozen=True, slots=True)
class EntryListRequest:
    """GET_LIST_OF_ENTRIES_OF_LEDGER: which entries are stored (``entry_list.py``)."""

    OPERATION: ClassVar = Operation.ENTRY_LIST
    header: Header
    ledger: LedgerId

    def _fill(self, request: Any) -> None:
        request.entry_list.ledger = self.ledger


@dataclass(frozen=True, slots=True)
class BookieInfoRequest:
    """GET_BOOKIE_INFO. ``requested`` is a sum of TOTAL_BYTES and FREE_BYTES; with ADMINISTRATOR a bookie of ours
    refuses it to a peer without that permission, and an original passes over it."""

    OPERATION: ClassVar = Operation.BOOKIE_INFO
    header: Header
    requested: int = TOTAL_BYTES | FREE_BYTES

    def _fill(self, request: Any) -> None:
        request.bookie_info.requested = self.requested


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """AUTH with a message of a plugin."""

    OPERATION: ClassVar = Operation.AUTH
    header: Header
    plugin: bytes
    payload: bytes = field(repr=False)

    def _fill(self, request: Any) -> None:
        request.auth.plugin, request.auth.payload = self.plugin, self.payload


@dataclass(frozen=True, slots=True)
class StartTlsRequest:
    """START_TLS: what follows is to be encrypted."""

    OPERATION: ClassVar = Operation.START_TLS
    header: Header

    def _fill(self, request: Any) -> None:
        request.start_tls.SetInParent()


@dataclass(frozen=True, slots=True)
class UnknownRequest:
    """A request with an operation that has no message."""

    header: Header
    operation: Operation


Request = (
    AddRequest
    | ReadRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceRequest
    | EntryListRequest
    | BookieInfoRequest
    | AuthRequest
    | StartTlsRequest
    | UnknownRequest
)


class _Encodable(Protocol):
    OPERATION: ClassVar[Operation]

    @property
    def header(self) -> Header: ...

    def _fill(self, request: Any) -> None: ...


def encode_request(request: _Encodable) -> bytes:
    """Return the frame of a request, its length in front."""
    message = pb.Request()
    set_head(message, request.OPERATION, request.header)
    request._fill(message)
    return frame_of(message)


def decode_request(body: Buffer) -> Request:
    """Decode the body of a request (without its length).

    Raises RemoteProtocolError where the original closes the connection: no request, an operation or a version that is
    not in its enumerations, a request without the message of its operation. Ids and versions are not judged here.
    """
    message = parsed(pb.Request(), body)
    number = message.header.operation
    operation = OPERATIONS.get(number)
    if operation is None or message.header.version not in _VERSIONS:
        raise RemoteProtocolError("a request has an unknown operation or version", operation=number)
    header = Header(message.header.request_id, message.header.priority, message.header.version)
    if operation in (Operation.RANGE_READ, Operation.RANGE_ADD, Operation.BATCH_READ):
        return UnknownRequest(header, operation)
    name = FIELDS[operation]
    if not message.HasField(name) and operation not in (Operation.BOOKIE_INFO, Operation.START_TLS):
        raise RemoteProtocolError("a request lacks the message of its operation", operation=operation.name)
    return _DECODERS[operation](header, getattr(message, name))


def decode_head(body: Buffer) -> tuple[int, Header]:
    """Decode the number of the operation and the header of a request, and nothing else of it.

    It is for a peer that nobody knows yet. Raises RemoteProtocolError for what does not begin with a header.
    """
    view, head = memoryview(body), pb.Header()
    size = view[1] if len(view) > 1 and view[0] == _HEADER_TAG else MAX_HEADER_BYTES + 1
    try:
        head.ParseFromString(bytes(view[2 : 2 + size]) if size <= MAX_HEADER_BYTES else b"")
        if not head.IsInitialized():
            raise RemoteProtocolError("a request does not begin with a header", bytes=len(view))
    except DecodeError as error:
        raise RemoteProtocolError("the header of a request is damaged", bytes=len(view)) from error
    return head.operation, Header(head.request_id, head.priority, head.version)


def _decode_add(header: Header, add: Any) -> Request:
    deferred = bool(add.write_flags & DEFERRED_SYNC)
    return AddRequest(header, add.ledger, add.entry, add.master_key, add.body, add.flag == _RECOVERY, deferred)


def _decode_read(header: Header, read: Any) -> Request:
    """Only a fence is judged by its key: of others none is kept, however long the read waits."""
    fence = read.flag == _FENCE
    key = read.master_key if fence and read.HasField("master_key") else None
    previous, timeout = (
        getattr(read, name) if read.HasField(name) else None for name in ("previous_lac", "timeout_ms")
    )
    return ReadRequest(header, read.ledger, read.entry, key, fence, previous, timeout)


FIELDS = {
    Operation.READ: "read",
    Operation.ADD: "add",
    Operation.AUTH: "auth",
    Operation.WRITE_LAC: "write_lac",
    Operation.READ_LAC: "read_lac",
    Operation.BOOKIE_INFO: "bookie_info",
    Operation.START_TLS: "start_tls",
    Operation.FORCE: "force",
    Operation.ENTRY_LIST: "entry_list",
}
_DECODERS: Mapping[Operation, Callable[[Header, Any], Request]] = {
    Operation.READ: _decode_read,
    Operation.ADD: _decode_add,
    Operation.AUTH: lambda header, auth: AuthRequest(header, auth.plugin, auth.payload),
    Operation.WRITE_LAC: lambda header, write: WriteLacRequest(
        header, write.ledger, write.lac, write.master_key, write.body
    ),
    Operation.READ_LAC: lambda header, read: ReadLacRequest(header, read.ledger),
    Operation.BOOKIE_INFO: lambda header, info: BookieInfoRequest(header, info.requested),
    Operation.START_TLS: lambda header, _: StartTlsRequest(header),
    Operation.FORCE: lambda header, force: ForceRequest(header, force.ledger),
    Operation.ENTRY_LIST: lambda header, listed: EntryListRequest(header, listed.ledger),
}


M = TypeVar("M", pb.Request, pb.Response)


def parsed(message: M, body: Buffer) -> M:
    """Parse a whole message. Raises RemoteProtocolError for what is none."""
    try:
        message.ParseFromString(bytes(body))
    except DecodeError as error:
        raise RemoteProtocolError("a frame is no message of version 3", bytes=len(body)) from error
    if not message.IsInitialized():
        raise RemoteProtocolError("a message of version 3 lacks a required field", bytes=len(body))
    return message


def set_head(message: pb.Request | pb.Response, operation: Operation, header: Header) -> None:
    """Set the header of a message."""
    head = message.header
    head.version, head.operation, head.request_id = header.version, operation, header.request_id
    if header.priority:
        head.priority = header.priority


def frame_of(message: pb.Request | pb.Response) -> bytes:
    """Return the frame of a message, its length in front."""
    body = message.SerializeToString()
    return len(body).to_bytes(4, "big") + body
