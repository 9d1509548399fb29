"""A client's side of the binary protocol, version 3: requests to frames, responses to what their owners hear.

A response bears the id of its request, and that has who asked for it::

    number of the lane, or of the lone request 44 | number of the request 20 bits

So no response is ever taken for one to another lane, or to a fencing read (contrast ``wire_v2.py``); within a lane the
entry tells which request it answers.

Every good response to a read tells the highest LAC that the bookie knows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

from tallystick.bookkeeper.ledger.lanes import LaneName
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece, SharedPieces, cut
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore, RequestKey
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.wires import (
    MOST_AT_ONCE,
    SPACE,
    BatchRequest,
    BookieRequest,
    EntryListRequest,
    ForceRequest,
    LongPollRequest,
    ReadLacRequest,
    ReadRequest,
    ReportResponse,
    SpaceRequest,
    WriteLacRequest,
    pack_lac,
)
from tallystick.bookkeeper.wire import v3, v3_responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3 import DEFERRED_SYNC, HIGH_PRIORITY, Header, Operation
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import DEFERRED_FLAG, RECOVERY_FLAGS, Buffer
from tallystick.codec.v3_adds import encode_v3_adds, most_head_bytes, scan_v3_acks
from tallystick.codec.v3_reads import encode_v3_reads, scan_v3_reads
from tallystick.errors import RemoteProtocolError

NoteLac = Callable[[LedgerId, EntryId, int], None]

# Of an ADD, at most: what is not its body, without its length.
ADD_HEAD_BYTES = most_head_bytes(priority=HIGH_PRIORITY, write_flags=DEFERRED_SYNC)
_ADD, _READ = int(Operation.ADD), int(Operation.READ)
_OPERATION_AT = 9  # in a response: behind its length, and the header's tag, length and version
_HEAD_BYTES = _OPERATION_AT + 1
_FLAGS_AT = struct.Struct(">6xH")  # of an ADD of version 2
_REQUEST_BITS = MOST_AT_ONCE.bit_length() - 1  # then their numbers begin anew
_POLL = -_READ  # in names of requests alone: the response to a long poll has the LAC in front


class ClientWireV3:
    """A ``ClientWire``; see the module. ``lanes`` numbers lanes and lone requests, for all connections of a client;
    ``note_lac`` hears of each LAC that a bookie knows, and from which lane."""

    read_bytes = 32 * 1024  # each response costs many times what one of version 2 does

    def __init__(
        self, outstanding: OutstandingCore[Owner], report: ReportResponse, lanes: Iterator[int], note_lac: NoteLac
    ) -> None:
        self._outstanding, self._report, self._lanes, self._note_lac = outstanding, report, lanes, note_lac
        self._requests = 0  # so far, in lanes

    # Requests

    def adds_name(self, ledger: LedgerId, number: int) -> LaneName:
        return _ADD, number

    def reads_name(self, ledger: LedgerId) -> LaneName:
        return _READ, next(self._lanes)

    def adds(
        self, about: LaneName, entries: Sequence[EntryId], frames: Iterable[OutgoingPiece]
    ) -> Iterable[OutgoingPiece]:
        assert len(entries) <= MOST_AT_ONCE, "more requests at once than have numbers"
        # The entry numbers the request, so that requests to several bookies are the same bytes.
        number = entries[0] % MOST_AT_ONCE
        first_id = about[1] << _REQUEST_BITS | (number if number + len(entries) <= MOST_AT_ONCE else 0)
        if not isinstance(frames, SharedPieces):
            return self._encode_adds(first_id, entries, frames)
        if frames.encoded is None or frames.encoded[0] != first_id:
            frames.encoded = first_id, self._encode_adds(first_id, entries, frames)
        return frames.encoded[1]

    @staticmethod
    def _encode_adds(first_id: int, entries: Sequence[EntryId], frames: Iterable[OutgoingPiece]) -> list[OutgoingPiece]:
        parts = [part for piece in frames for part in piece.parts]
        (flags,) = _FLAGS_AT.unpack_from(parts[0])
        recovery = flags & RECOVERY_FLAGS == RECOVERY_FLAGS
        encoded = encode_v3_adds(
            first_id,
            entries,
            parts,
            priority=HIGH_PRIORITY if recovery else 0,
            write_flags=DEFERRED_SYNC if flags & DEFERRED_FLAG else 0,
            recovery=recovery,
        )
        return cut(encoded)

    def reads(self, about: LaneName, ledger: LedgerId, entries: Sequence[EntryId]) -> OutgoingPiece:
        return OutgoingPiece.of(encode_v3_reads(self._first_id(about, len(entries)), ledger, entries))

    def _first_id(self, about: LaneName, count: int) -> int:
        """Return the id of the next of ``count`` requests, which those of the others follow."""
        assert count <= MOST_AT_ONCE, "more requests at once than have numbers"
        if self._requests + count > MOST_AT_ONCE:
            self._requests = 0
        self._requests += count
        return about[1] << _REQUEST_BITS | self._requests - count

    def request(self, request: BookieRequest) -> tuple[RequestKey, OutgoingPiece]:
        request_id = next(self._lanes) << _REQUEST_BITS
        operation, frame = _encode(request, request_id)
        return _key(operation, request_id), OutgoingPiece.of(frame)

    # Responses

    def run(self, buffer: bytearray, start: int, end: int) -> int:
        """Take responses as ``ClientWire`` says."""
        if end - start < _HEAD_BYTES:
            return start
        operation = buffer[start + _OPERATION_AT]
        if operation == _ADD:
            ids, _, entries, stop = scan_v3_acks(buffer, start, end)
            count = self._settle_runs(_ADD, ids, entries, ())
            return stop if count == len(ids) else _place_behind(buffer, start, count)
        if operation == _READ:
            ids, entries, data, max_lac, stop = scan_v3_reads(buffer, start, end)
            count = self._settle_runs(_READ, ids, entries, data)
            if count < len(ids):
                self._take_mixed(buffer, start, ids, entries, data, count)
            elif ids and max_lac > NO_ENTRY and _lanes_differ(ids) is None:
                # One lane is about one ledger.
                self._note_lac(int.from_bytes(data[0][:8], "big"), max_lac, ids[0] >> _REQUEST_BITS)
            return stop
        return start

    def _take_mixed(
        self, buffer: bytearray, start: int, ids: list[int], entries: list[EntryId], data: list[bytes], count: int
    ) -> None:
        """Take those behind the first ``count`` of a scan, among which are responses to lone requests: an append is
        told to all who follow, hundreds in one read, so that none is scanned twice."""
        at, place = 0, start
        while True:
            at, place = at + count, _place_behind(buffer, place, count)
            if at == len(ids):
                return
            behind = _place_behind(buffer, place, 1)
            self.take_response(bytes(memoryview(buffer)[place + 4 : behind]))
            at, place = at + 1, behind
            count = self._settle_runs(_READ, ids, entries, data, at) if at < len(ids) else 0

    def _settle_runs(
        self, operation: int, ids: list[int], entries: list[EntryId], data: Sequence[Buffer], first: int = 0
    ) -> int:
        """Settle responses from ``first`` up to the first that belongs to no lane. Returns how many."""
        at = first
        while at < len(ids):
            about = operation, ids[at] >> _REQUEST_BITS
            if not self._outstanding.has_lanes(about):
                break
            stop = _lanes_differ(ids, at) or len(ids)
            self._settle_run(about, entries[at:stop], data[at:stop])
            at = stop
        return at - first

    def _settle_run(self, about: LaneName, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        def report(owner: Owner, start: int, stop: int) -> None:
            self._report(owner, Code.OK, entries[start:stop], data[start:stop])

        stop = self._outstanding.answered_run(about, entries, report)
        if stop < len(entries):
            raise _unasked(about[1] << _REQUEST_BITS, entries[stop])

    def take_response(self, body: Buffer) -> None:
        """Take responses as ``ClientWire`` says."""
        response = v3_responses.decode_response(body)
        if isinstance(response, v3_responses.AddResponse):
            self._settle_entry(_ADD, response, ())
        elif isinstance(response, v3_responses.ReadResponse):
            self._take_read(response)
        elif isinstance(response, v3_responses.RefusedResponse):
            polled = self._is_poll(response.request_id)
            self._settle(_POLL if polled else response.operation, response.request_id, response.code, ())
        elif isinstance(response, v3_responses.AuthResponse | v3_responses.StartTlsResponse):
            raise RemoteProtocolError("a message of a handshake that nobody asked for")
        else:
            operation, data = _parts_of(response)
            code = response.code
            self._settle(operation, response.request_id, code, data if code == Code.OK else ())

    def _take_read(self, response: v3_responses.ReadResponse) -> None:
        data: Sequence[Buffer] = ()
        lac = NO_ENTRY if response.max_lac is None else response.max_lac
        if response.code == Code.OK:
            if lac > NO_ENTRY:
                self._note_lac(response.ledger, lac, response.request_id >> _REQUEST_BITS)
            data = () if response.body is None else (response.body,)
        if self._is_poll(response.request_id):
            self._settle(_POLL, response.request_id, response.code, (pack_lac(lac), *data))
        elif response.code == Code.OK and not data:
            raise RemoteProtocolError("an answer to a read has no entry", request=response.request_id)
        else:
            self._settle_entry(_READ, response, data)

    def _settle_entry(
        self,
        operation: int,
        response: v3_responses.AddResponse | v3_responses.ReadResponse,
        data: Sequence[Buffer],
    ) -> None:
        about = operation, response.request_id >> _REQUEST_BITS
        lane = self._outstanding.answered_in_lane(about, response.entry)
        if lane is None:
            self._settle(operation, response.request_id, response.code, data)
        elif lane.owner is not None:
            self._report(lane.owner, response.code, [response.entry], data)

    def _settle(self, operation: int, request_id: int, code: Code, data: Sequence[Buffer]) -> None:
        request = self._outstanding.answered(_key(operation, request_id))
        if request is None:
            raise _unasked(request_id, NO_ENTRY)
        if request.owner is not None:
            self._report(request.owner, code, [request.entry], data)

    def _is_poll(self, request_id: int) -> bool:
        return self._outstanding.has_request(_key(_POLL, request_id))


def _key(operation: int, request_id: int) -> RequestKey:
    return operation, request_id >> _REQUEST_BITS, 0


def _lanes_differ(ids: Sequence[int], start: int = 0) -> int | None:
    """Return the index of the first id from ``start`` on that is of another lane than the one there, None without."""
    lane = ids[start] >> _REQUEST_BITS
    if start == 0 and min(ids) >> _REQUEST_BITS == lane == max(ids) >> _REQUEST_BITS:
        return None  # as nearly all are
    return next((at for at in range(start, len(ids)) if ids[at] >> _REQUEST_BITS != lane), None)


def _place_behind(buffer: bytearray, start: int, count: int) -> int:
    """Return the place behind ``count`` whole frames."""
    for _ in range(count):
        start += 4 + int.from_bytes(buffer[start : start + 4], "big")
    return start


def _encode(request: BookieRequest, request_id: int) -> tuple[int, bytes]:
    """Return the operation by which a lone request is named, and its frame."""
    header = Header(request_id)
    message: v3.ReadRequest | v3.WriteLacRequest | v3.ReadLacRequest | v3.ForceRequest | v3.EntryListRequest
    match request:
        case ReadRequest(ledger, entry, key, high):
            if high:
                header = Header(request_id, HIGH_PRIORITY)
            message = v3.ReadRequest(header, ledger, entry, key, fence=key is not None)
        case LongPollRequest(ledger, previous_lac, timeout_ms):
            message = v3.ReadRequest(header, ledger, NO_ENTRY, previous_lac=previous_lac, timeout_ms=timeout_ms)
            return _POLL, v3.encode_request(message)
        case WriteLacRequest(ledger, lac, key, body):
            message = v3.WriteLacRequest(header, ledger, lac, key, body)
        case ReadLacRequest(ledger):
            message = v3.ReadLacRequest(header, ledger)
        case ForceRequest(ledger):
            message = v3.ForceRequest(header, ledger)
        case EntryListRequest(ledger):
            message = v3.EntryListRequest(header, ledger)
        case SpaceRequest():
            extra = v3.ADMINISTRATOR if request.as_administrator else 0
            info = v3.BookieInfoRequest(header, v3.TOTAL_BYTES | v3.FREE_BYTES | extra)
            return int(info.OPERATION), v3.encode_request(info)
        case BatchRequest():
            raise AssertionError("version 3 has no batch reads")
        case _:
            assert_never(request)
    return int(message.OPERATION), v3.encode_request(message)


def _parts_of(
    response: v3_responses.WriteLacResponse
    | v3_responses.ForceResponse
    | v3_responses.ReadLacResponse
    | v3_responses.BookieInfoResponse
    | v3_responses.EntryListResponse,
) -> tuple[int, Sequence[Buffer]]:
    """Return the operation, and the parts that the owner of the request gets."""
    match response:
        case v3_responses.WriteLacResponse():
            return int(Operation.WRITE_LAC), ()
        case v3_responses.ForceResponse():
            return int(Operation.FORCE), ()
        case v3_responses.ReadLacResponse():
            return int(Operation.READ_LAC), (response.lac_body or b"", response.last_entry_body or b"")
        case v3_responses.BookieInfoResponse():
            space = SPACE.pack(response.total_bytes or 0, response.free_bytes or 0)
            return int(Operation.BOOKIE_INFO), (space,)
        case v3_responses.EntryListResponse():
            return int(Operation.ENTRY_LIST), (response.availability or b"",)
        case _:
            assert_never(response)


def _unasked(request_id: int, entry: EntryId) -> RemoteProtocolError:
    return RemoteProtocolError("an answer that nobody asked for", request=request_id, entry=entry)
