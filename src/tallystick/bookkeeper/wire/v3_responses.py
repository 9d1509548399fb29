"""Responses in version 3 of a bookie's protocol, one by one; ``v3.py`` has the requests, and what both begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire import requests_pb2 as pb
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3 import (
    FIELDS,
    NO_AUTH_PLUGIN,
    NUMBERS,
    OPERATIONS,
    Header,
    Operation,
    frame_of,
    parsed,
    set_head,
)
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.frames import Buffer
from tallystick.errors import RemoteProtocolError

_CODES = {number: code for code, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class ReadResponse:
    """The response to a READ. ``max_lac``: the highest LAC that the bookie knows; ``lac_updated_ms`` since 1970."""

    request_id: int
    code: Code
    ledger: LedgerId
    entry: EntryId
    body: Buffer | None = field(default=None, repr=False)
    max_lac: EntryId | None = None
    lac_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AddResponse:
    """The response to an ADD."""

    request_id: int
    code: Code
    ledger: LedgerId
    entry: EntryId


@dataclass(frozen=True, slots=True)
class WriteLacResponse:
    """The response to a WRITE_LAC."""

    request_id: int
    code: Code
    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class ForceResponse:
    """The response to a FORCE_LEDGER."""

    request_id: int
    code: Code
    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class ReadLacResponse:
    """The response to a READ_LAC: a WRITE_LAC's body, and the highest entry as stored."""

    request_id: int
    code: Code
    ledger: LedgerId
    lac_body: bytes | None = field(default=None, repr=False)
    last_entry_body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class BookieInfoResponse:
    """The response to a GET_BOOKIE_INFO: bytes of the disks, those that were asked for."""

    request_id: int
    code: Code
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EntryListResponse:
    """The response to a GET_LIST_OF_ENTRIES_OF_LEDGER (``entry_list.py``)."""

    request_id: int
    code: Code
    ledger: LedgerId
    availability: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AuthResponse:
    """The response to an AUTH."""

    request_id: int
    code: Code
    plugin: bytes = NO_AUTH_PLUGIN
    payload: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class StartTlsResponse:
    """The response to a START_TLS, in plain bytes: what follows is encrypted, both ways."""

    request_id: int
    code: Code


@dataclass(frozen=True, slots=True)
class RefusedResponse:
    """A response with a status and nothing else: to what a bookie does not do, or does not do for this peer."""

    request_id: int
    operation: Operation
    code: Code


Response = (
    ReadResponse
    | AddResponse
    | WriteLacResponse
    | ForceResponse
    | ReadLacResponse
    | BookieInfoResponse
    | EntryListResponse
    | AuthResponse
    | StartTlsResponse
    | RefusedResponse
)
_RESULTS: Mapping[Callable[..., Response], tuple[Operation, tuple[str, ...]]] = {
    ReadResponse: (Operation.READ, ("ledger", "entry", "body", "max_lac", "lac_updated_ms")),
    AddResponse: (Operation.ADD, ("ledger", "entry")),
    WriteLacResponse: (Operation.WRITE_LAC, ("ledger",)),
    ForceResponse: (Operation.FORCE, ("ledger",)),
    ReadLacResponse: (Operation.READ_LAC, ("ledger", "lac_body", "last_entry_body")),
    BookieInfoResponse: (Operation.BOOKIE_INFO, ("total_bytes", "free_bytes")),
    EntryListResponse: (Operation.ENTRY_LIST, ("ledger", "availability")),
    AuthResponse: (Operation.AUTH, ("plugin", "payload")),
    StartTlsResponse: (Operation.START_TLS, ()),
}
_WITHOUT_STATUS = (Operation.AUTH, Operation.START_TLS)  # in the operation's own message
_BY_OPERATION = {operation: (kind, names) for kind, (operation, names) in _RESULTS.items()}


def encode_response(response: Response) -> bytes:
    """Return the frame of a response, its length in front."""
    message = pb.Response(status=NUMBERS[response.code])
    if isinstance(response, RefusedResponse):
        set_head(message, response.operation, Header(response.request_id))
        return frame_of(message)
    operation, names = _RESULTS[type(response)]
    set_head(message, operation, Header(response.request_id))
    result = getattr(message, FIELDS[operation])
    if operation in _WITHOUT_STATUS:
        result.SetInParent()
    else:
        result.status = message.status
    for name in names:
        if (value := getattr(response, name)) is not None:
            setattr(result, name, bytes(value) if isinstance(value, memoryview | bytearray) else value)
    return frame_of(message)


def decode_response(body: Buffer) -> Response:
    """Decode the body of a response (without its length).

    The inner status counts where the outer one is OK. A response without the message of its operation is a
    RefusedResponse. Raises RemoteProtocolError for what is no response, or one to an operation that nobody knows.
    """
    message = parsed(pb.Response(), body)
    number, request_id = message.header.operation, message.header.request_id
    operation = OPERATIONS.get(number)
    if operation is None:
        raise RemoteProtocolError("a response has an unknown operation", operation=number)
    code = _code(message.status)
    kind, names = _BY_OPERATION.get(operation, (RefusedResponse, ()))
    if kind is RefusedResponse or not message.HasField(FIELDS[operation]):
        # "Done" without what was done is no answer that anybody can use.
        return RefusedResponse(request_id, operation, Code.UNDEFINED if code == Code.OK else code)
    result = getattr(message, FIELDS[operation])
    if code == Code.OK and operation not in _WITHOUT_STATUS:
        code = _code(result.status)
    return kind(request_id, code, *(getattr(result, name) if result.HasField(name) else None for name in names))


def _code(number: int) -> Code:
    return _CODES.get(number, Code.UNDEFINED)
