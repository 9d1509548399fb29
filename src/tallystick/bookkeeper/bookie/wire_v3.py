"""A bookie's side of protocol version 3, requests and responses in protobuf: frames to the services' values and back.

As in version 2 (``wire_v2.py``) one call serves what one socket read brought: runs of plain adds and reads by columns,
everything else frame by frame. Entries go to the storage, and come from it, as stored frames.

A frame that does not begin as one of version 3 turns its connection to version 2, for good, as the original does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeVar, assert_never

from tallystick.bookkeeper.bookie.holdings import EntryListResponse, Holdings
from tallystick.bookkeeper.bookie.lac_service import (
    ExplicitLacRequest,
    LacService,
    LastConfirmed,
    LongPollRequest,
    LongPollResponse,
)
from tallystick.bookkeeper.bookie.long_polls import Requester
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.permissions import ALL, MAY_RECOVERY_ADD, Permission
from tallystick.bookkeeper.bookie.service import (
    NOW,
    AddEntryRequest,
    AddRunResponse,
    AfterLook,
    Later,
    ReadEntryRequest,
    Service,
    ServiceResponse,
)
from tallystick.bookkeeper.bookie.wires import (
    LENGTH_BYTES,
    RUN_BYTES,
    RUN_LEDGERS,
    V3_FIRST_BYTE,
    ServeResult,
    Wire,
    run_end,
    whole_body,
)
from tallystick.bookkeeper.bookie.written import WrittenLedgers
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire import v3_responses as responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import MASTER_KEY_BYTES
from tallystick.bookkeeper.wire.entry_list import encode_runs
from tallystick.bookkeeper.wire.v3_responses import encode_response
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.frames import ADD_PREFIX
from tallystick.codec.v3_adds import V3AddRun, ack_v3_adds, scan_v3_adds
from tallystick.codec.v3_reads import encode_v3_read_responses, scan_v3_read_requests
from tallystick.errors import LocalProtocolError, RemoteProtocolError

_SCAN_BYTES = 48 * 1024  # of reads looked at in one go: what is not answered now is looked at again
_READS = frozenset((v3.Operation.READ, v3.Operation.READ_LAC, v3.Operation.ENTRY_LIST))
_IDS = struct.Struct(">qq")
_FIRST = bytes([V3_FIRST_BYTE])
_NO_ADDS = scan_v3_adds(b"", 0, 0, 0)[0]
_OPERATION_AT = 9  # in a frame whose header begins with version and operation, as all clients write it

T = TypeVar("T")


def encode_entry_list(runs: Iterator[range], *, max_bytes: int) -> bytes | None:
    """Return the ids of a ledger's entries as a response has them, None if they do not fit into one."""
    try:
        return encode_runs(((run.start, run.stop - 1) for run in runs), max_bytes=max_bytes)
    except LocalProtocolError:
        return None


class WireV3:
    """``v2`` is for connections that turn to version 2; ``max_frame_bytes`` counts the length field."""

    def __init__(
        self,
        service: Service,
        lacs: LacService,
        holdings: Holdings,
        v2: Wire,
        *,
        max_frame_bytes: int,
        permission: Permission = ALL,
        written: WrittenLedgers | None = None,
    ) -> None:
        """``written``: of an identity that may write explicit LACs of its own ledgers alone."""
        self._service, self._lacs, self._holdings, self._v2 = service, lacs, holdings, v2
        self._permission, self._written = permission, written
        self._max_body = max_frame_bytes - LENGTH_BYTES

    def serve(
        self,
        data: bytes,
        *,
        reads: bool = True,
        short: bool = False,
        has_time: Callable[[], bool] = lambda: True,
        behind: AbstractSet[LedgerId] = frozenset(),
    ) -> ServeResult:
        """Serve as ``Wire`` says."""
        result, end = ServeResult.bounded(short=short, behind=behind), len(data)
        window = RUN_BYTES  # so many bytes are looked at for a run
        while (start := result.position) < end and not result.is_full and (not start or has_time()):
            adds, stop = self._scan(data, start, run_end(data, start, end, window))
            if len(adds.run) > RUN_LEDGERS and len(set(adds.run.ledgers)) > RUN_LEDGERS:
                window = _after(data, start, RUN_LEDGERS) - start
                adds, stop = self._scan(data, start, start + window)
            if adds.txn_ids:
                result.position = stop
                response = self._service.add_run(adds.stored, adds.run, behind=result.waiting_ledgers)
                self._answer_run(adds, response, result)
            elif not reads and self._is_read(data, start, end):
                result.read_is_next = True
                break
            elif not (
                self._read_run(data, start, end, result, has_time)
                or self._one_frame(data, start, end, result, reads=reads)
            ):
                break
        return result

    def settle(
        self, frames: bytes, verdict: Verdict, *, short: bool = False, has_time: Callable[[], bool] = lambda: True
    ) -> ServeResult:
        """Settle as ``Wire`` says."""
        result = ServeResult.bounded(short=short)
        while (start := result.position) < len(frames) and not result.is_full and (not start or has_time()):
            adds, stop = self._scan(frames, start, len(frames))
            if adds.txn_ids:
                self._answer_run(adds, self._service.add_run(adds.stored, adds.run, verdict), result)
            else:
                stop = _after(frames, start, 1)
                self._answer(v3.decode_request(memoryview(frames)[start + LENGTH_BYTES : stop]), result, verdict)
            result.position = stop
        return result

    def is_read(self, data: bytes) -> bool:
        """Return what ``Wire`` says."""
        return self._is_read(data, 0, len(data))

    def _scan(self, data: bytes, start: int, end: int) -> tuple[V3AddRun, int]:
        if Permission.APPEND not in self._permission:
            return _NO_ADDS, start
        return scan_v3_adds(data, start, end, self._max_body)

    def _is_read(self, data: bytes, start: int, end: int) -> bool:
        """Guess by the header as all clients write it. One that is written otherwise is known when it is decoded."""
        return end - start > _OPERATION_AT and data[start + _OPERATION_AT] in _READS

    # Runs.

    def _answer_run(self, adds: V3AddRun, run_response: AddRunResponse, result: ServeResult) -> None:
        run = adds.run
        if self._written is not None:
            codes = zip(run.ledgers, run_response.codes, strict=True)
            self._written.add(run.ledgers if run_response.is_ok else [one for one, code in codes if code == Code.OK])
        if run_response.is_ok:
            acks = ack_v3_adds(adds.txn_ids, run.ledgers, run.entries)
            result.add_response(acks, run_response.commit, deferred=adds.deferred)
            return
        waiting_places, bounds = set(run_response.waiting_places), run.bounds
        for at, (txn_id, code) in enumerate(zip(adds.txn_ids, run_response.codes, strict=True)):
            ledger, entry = run.ledgers[at], run.entries[at]
            if at in waiting_places:
                body = adds.stored[bounds[at] + ADD_PREFIX : bounds[at + 1]]
                header, deferred = v3.Header(txn_id), adds.deferred
                request = v3.AddRequest(header, ledger, entry, run.keys[at], body, deferred_sync=deferred)
                result.wait(ledger, v3.encode_request(request))
            else:
                response = responses.AddResponse(txn_id, code, ledger, entry)
                commit = run_response.commit if code == Code.OK else NOW
                result.add_response(encode_response(response), commit, deferred=adds.deferred)

    def _read_run(self, data: bytes, start: int, end: int, result: ServeResult, has_time: Callable[[], bool]) -> bool:
        """Serve plain reads of ascending entries: those that lie together leave the storage together."""
        if Permission.READ not in self._permission:
            return False
        txn_ids, runs, stop = scan_v3_read_requests(data, start, min(end, start + _SCAN_BYTES))
        result.reads = result.reads or bool(runs)
        at = 0  # of the next one in ``txn_ids``
        for ledger, entries in runs:
            lac = self._lacs.told_with(ledger)
            while entries:
                if result.size >= result.limit or (at and not has_time()):
                    result.position = _after(data, start, at)
                    return True
                frames, count_read = self._service.read_run(ledger, entries, result.limit - result.size)
                if count_read:
                    result.add_response(encode_v3_read_responses(txn_ids[at : at + count_read], frames, lac))
                else:
                    self._answer(v3.ReadRequest(v3.Header(txn_ids[at]), ledger, entries[0]), result)
                    count_read = 1
                at += count_read
                entries = entries[count_read:]
        result.position = stop
        return bool(runs)

    # One frame.

    def _one_frame(self, data: bytes, start: int, end: int, result: ServeResult, *, reads: bool) -> bool:
        """Serve one frame of any kind. Returns False if it is not whole, if it is a read and none is allowed, or if
        another wire goes on, or nobody."""
        try:
            body = whole_body(data, start, end, self._max_body, result)
            if body is None:
                return False
            if body[:1] != _FIRST:
                result.next_wire = self._v2
                return False
            request = v3.decode_request(body)
            if not reads and isinstance(request, v3.ReadRequest | v3.ReadLacRequest | v3.EntryListRequest):
                result.read_is_next = True
                return False
            self._answer(request, result)
        except RemoteProtocolError as error:
            result.refusal = error.with_traceback(None)  # which has all that came, until cycles are collected
            return False
        result.position = start + LENGTH_BYTES + len(body)
        return True

    def _answer(self, request: v3.Request, result: ServeResult, verdict: Verdict | None = None) -> None:
        """Serve one request; ``verdict``: of the look that it waited for."""
        number = request.header.request_id
        if not (_needed(request) & self._permission and self._is_own(request)):
            operation = request.operation if isinstance(request, v3.UnknownRequest) else request.OPERATION
            refused = responses.RefusedResponse(number, operation, Code.UNAUTHORIZED)
            result.add_response(encode_response(refused))
            return
        match request:
            case v3.AuthRequest():
                result.add_response(encode_response(responses.AuthResponse(number, Code.OK)))
            case v3.StartTlsRequest():
                refused = responses.RefusedResponse(number, v3.Operation.START_TLS, Code.BAD_REQUEST)
                result.add_response(encode_response(refused))
            case v3.UnknownRequest():
                refused = responses.RefusedResponse(number, request.operation, Code.BAD_REQUEST)
                result.add_response(encode_response(refused))
            case v3.AddRequest():
                self._add(request, result, verdict)
            case v3.ReadRequest():
                result.reads = True
                if request.fence or request.previous_lac is None:
                    self._read(request, result, verdict)
                else:
                    self._poll(request, request.previous_lac, result, verdict)
            case v3.WriteLacRequest():
                self._write_lac(request, result, verdict)
            case v3.ReadLacRequest():
                result.reads = True
                self._read_lac(request, result, verdict)
            case v3.ForceRequest():
                self._force(request, result)
            case v3.EntryListRequest():
                result.reads = True
                self._list(request, result, verdict)
            case v3.BookieInfoRequest():
                self._info(request, result)
            case _:
                assert_never(request)

    def _is_own(self, request: v3.Request) -> bool:
        """Return whether a request may be about this ledger: an explicit LAC of another's needs *recover*."""
        return self._written is None or not isinstance(request, v3.WriteLacRequest) or request.ledger in self._written

    def _add(self, request: v3.AddRequest, result: ServeResult, verdict: Verdict | None) -> None:
        add = AddEntryRequest(
            request.ledger, request.entry, request.master_key, request.body, request.recovery,
            request.header.priority > 0, request.deferred_sync,
        )  # fmt: skip
        if request.header.version != v3.VERSION:
            response: ServiceResponse | AfterLook = self._service.refuse(add, Code.BAD_VERSION)
        elif len(request.body) >= _IDS.size and _IDS.unpack_from(request.body) != (request.ledger, request.entry):
            # What is acknowledged must be there by the ids of the request.
            response = self._service.refuse(add, Code.BAD_REQUEST)
        elif not _is_key(request.master_key):
            response = self._service.refuse(add, Code.UNAUTHORIZED)
        else:
            response = self._service.add(add, verdict, behind=result.waiting_ledgers)
        if isinstance(response, AfterLook):
            result.wait(response.ledger, v3.encode_request(request))
            return
        if self._written is not None and response.code == Code.OK and not request.recovery:
            self._written.add((request.ledger,))
        encoded = encode_response(
            responses.AddResponse(request.header.request_id, response.code, request.ledger, request.entry)
        )
        result.add_response(encoded, response.commit, deferred=response.deferred)

    def _read(self, request: v3.ReadRequest, result: ServeResult, verdict: Verdict | None) -> None:
        key = (request.master_key or b"") if request.fence else None
        read = ReadEntryRequest(request.ledger, request.entry, key)
        if request.header.version != v3.VERSION:
            response: ServiceResponse | AfterLook = self._service.refuse(read, Code.BAD_VERSION)
        elif key is not None and not _is_key(key):
            response = self._service.refuse(read, Code.UNAUTHORIZED)
        else:
            response = self._service.read(read, verdict, waiting=len(result.to_look))
        if isinstance(response, AfterLook):
            result.wait(response.ledger, v3.encode_request(request))
            return
        body, lac = None, None
        if response.code == Code.OK:
            (body,) = response.entries
            lac = None if request.fence else self._lacs.told_with(request.ledger)
        encoded = encode_response(
            responses.ReadResponse(request.header.request_id, response.code, request.ledger, request.entry, body, lac)
        )
        result.add_response(encoded, response.commit)

    def _poll(self, request: v3.ReadRequest, past: EntryId, result: ServeResult, verdict: Verdict | None) -> None:
        if request.header.version != v3.VERSION or request.entry != NO_ENTRY:
            code = Code.BAD_REQUEST if request.header.version == v3.VERSION else Code.BAD_VERSION
            response: LongPollResponse | AfterLook | Later[LongPollResponse] = LongPollResponse(code)
        else:
            response = self._lacs.poll(LongPollRequest(request.ledger, past, request.timeout_ms or 0), verdict)
        # A poll that waits keeps these, and not the request.
        number, ledger, requested_entry = request.header.request_id, request.ledger, request.entry

        def encoded(response: LongPollResponse) -> bytes:
            body = response.body or None
            entry = requested_entry if body is None else response.entry
            return encode_response(responses.ReadResponse(number, response.code, ledger, entry, body, response.lac))

        _take(request, response, encoded, result)

    def _write_lac(self, request: v3.WriteLacRequest, result: ServeResult, verdict: Verdict | None) -> None:
        if request.header.version != v3.VERSION:
            response: ServiceResponse | AfterLook = ServiceResponse(Code.BAD_VERSION)
        elif not _is_key(request.master_key):
            response = ServiceResponse(Code.UNAUTHORIZED)
        else:
            write = ExplicitLacRequest(request.ledger, request.lac, request.master_key, request.body)
            response = self._lacs.write_lac(write, verdict)
        if isinstance(response, AfterLook):
            result.wait(response.ledger, v3.encode_request(request))
        else:
            encoded = encode_response(
                responses.WriteLacResponse(request.header.request_id, response.code, request.ledger)
            )
            result.add_response(encoded, response.commit)

    def _read_lac(self, request: v3.ReadLacRequest, result: ServeResult, verdict: Verdict | None) -> None:
        ledger = request.ledger
        if request.header.version != v3.VERSION:
            response: LastConfirmed | AfterLook = LastConfirmed(Code.BAD_VERSION)
        else:
            response = self._lacs.last_confirmed(ledger, verdict)

        def encoded(response: LastConfirmed) -> bytes:
            bodies = response.lac_body, response.last_entry
            return encode_response(responses.ReadLacResponse(request.header.request_id, response.code, ledger, *bodies))

        _take(request, response, encoded, result)

    def _force(self, request: v3.ForceRequest, result: ServeResult) -> None:
        is_spoken = request.header.version == v3.VERSION
        response = self._holdings.force(request.ledger) if is_spoken else ServiceResponse(Code.BAD_VERSION)
        encoded = encode_response(responses.ForceResponse(request.header.request_id, response.code, request.ledger))
        result.add_response(encoded, response.commit)

    def _list(self, request: v3.EntryListRequest, result: ServeResult, verdict: Verdict | None) -> None:
        ledger = request.ledger
        if request.header.version != v3.VERSION:
            response: EntryListResponse | AfterLook | Later[EntryListResponse] = EntryListResponse(Code.BAD_VERSION)
        else:
            response = self._holdings.entries(ledger, verdict)

        def encoded(response: EntryListResponse) -> bytes:
            ids = response.ids if response.code == Code.OK else None
            return encode_response(responses.EntryListResponse(request.header.request_id, response.code, ledger, ids))

        _take(request, response, encoded, result)

    def _info(self, request: v3.BookieInfoRequest, result: ServeResult) -> None:
        if request.header.version != v3.VERSION:
            result.add_response(
                encode_response(responses.BookieInfoResponse(request.header.request_id, Code.BAD_VERSION))
            )
            return
        space = self._holdings.space()
        total = space.total if request.requested & v3.TOTAL_BYTES else None
        free = space.free if request.requested & v3.FREE_BYTES else None
        result.add_response(
            encode_response(responses.BookieInfoResponse(request.header.request_id, Code.OK, total, free))
        )


def _needed(request: v3.Request) -> Permission:
    """Return the permissions of which a request needs one; who has any may ask for what is nothing but talk."""
    match request:
        case v3.AddRequest():
            return MAY_RECOVERY_ADD if request.recovery else Permission.APPEND
        case v3.ReadRequest():
            return Permission.RECOVER if request.fence else Permission.READ
        case v3.WriteLacRequest() | v3.ForceRequest():
            return Permission.APPEND
        case v3.BookieInfoRequest() if request.requested & v3.ADMINISTRATOR:
            return Permission.ADMIN
        case v3.ReadLacRequest() | v3.EntryListRequest() | v3.BookieInfoRequest():
            return Permission.READ
        case _:
            return ALL


def _is_key(key: bytes) -> bool:
    """Return whether this can be a ledger's master key. What cannot waits for nothing, and takes no memory."""
    return len(key) == MASTER_KEY_BYTES


def _take(
    request: v3.ReadRequest | v3.ReadLacRequest | v3.EntryListRequest,
    response: T | AfterLook | Later[T],
    encoded: Callable[[T], bytes],
    result: ServeResult,
) -> None:
    """Have a response sent: now, or when it comes, or ask for it again, after a look."""
    if isinstance(response, AfterLook):
        result.wait(response.ledger, v3.encode_request(request))
    elif isinstance(response, Later):
        begin = response.begin

        def begin_encoded(owner: Requester, deliver: Callable[[bytes], None]) -> None:
            begin(owner, lambda response: deliver(encoded(response)))

        result.later.append(begin_encoded)
    else:
        result.add_response(encoded(response))


def _after(data: bytes, start: int, count: int) -> int:
    """Return where so many whole frames end."""
    for _ in range(count):
        start += LENGTH_BYTES + int.from_bytes(data[start : start + LENGTH_BYTES], "big")
    return start
