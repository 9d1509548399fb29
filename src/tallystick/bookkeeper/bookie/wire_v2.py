"""A bookie's side of the binary protocol, version 2: frames to the service's values, its responses to frames.

One call serves what one socket read brought: runs of plain ADDs and READs by columns, everything else frame by frame.
A plain ADD is a stored frame as it came, so that a run of them goes to the storage as the piece of the buffer it is.

Nothing here waits: the session sends, the committer tells when it is durable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from tallystick.bookkeeper.bookie import service
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.permissions import ALL, MAY_RECOVERY_ADD, Permission
from tallystick.bookkeeper.bookie.service import NOW, AddRunResponse, AfterLook, Service
from tallystick.bookkeeper.bookie.wires import (
    LENGTH_BYTES,
    RUN_BYTES,
    RUN_LEDGERS,
    ServeResult,
    run_end,
    whole_body,
)
from tallystick.bookkeeper.bookie.written import WrittenLedgers
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.frames import AddRun, ack_adds, scan_adds, scan_read_requests
from tallystick.codec.uniform import scan_uniform_adds
from tallystick.errors import RemoteProtocolError

_READ_REQUEST_BYTES = 24
_SCAN_BYTES = 2048 * _READ_REQUEST_BYTES  # looked at in one go: what is not answered now is looked at again
_NO_AUTH = b"\x0a\x12AuthDisabledPlugin\x12\x00"  # AuthMessage {1: plugin name, 2: payload}
_ADD_RESPONSE = struct.Struct(">IIiqq")
_ADD_WORD = v2.header(v2.Op.ADD)
_READS = frozenset((int(v2.Op.READ), int(v2.Op.BATCH_READ)))
_NO_ADDS = scan_adds(b"", 0, 0, 0)[0]


class WireV2:
    """``max_frame_bytes`` counts the length field; ``max_batch_bytes`` limits a batch read's response."""

    def __init__(
        self,
        service: Service,
        *,
        max_frame_bytes: int,
        max_batch_bytes: int,
        permission: Permission = ALL,
        written: WrittenLedgers | None = None,
    ) -> None:
        """``written``: see ``WireV3``."""
        self._service, self._permission, self._written = service, permission, written
        self._max_body, self._max_batch = max_frame_bytes - LENGTH_BYTES, max_batch_bytes

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
            run, stop = self._scan(data, start, run_end(data, start, end, window))
            if len(run) > RUN_LEDGERS and len(set(run.ledgers)) > RUN_LEDGERS:
                window = run.bounds[RUN_LEDGERS] - start
                run, stop = self._scan(data, start, start + window)
            if run.ledgers:
                result.position = stop
                response = self._service.add_run(data, run, behind=result.waiting_ledgers)
                self._answer_run(data, run, response, result)
            elif not reads and self._is_read(data, start, end):
                result.read_is_next = True
                break
            elif not (self._read_run(data, start, end, result, has_time) or self._one_frame(data, start, end, result)):
                break
        return result

    def _scan(self, data: bytes, start: int, end: int) -> tuple[AddRun, int]:
        if Permission.APPEND not in self._permission:
            return _NO_ADDS, start
        return scan_uniform_adds(data, start, end, self._max_body) or scan_adds(data, start, end, self._max_body)

    def settle(
        self, frames: bytes, verdict: Verdict, *, short: bool = False, has_time: Callable[[], bool] = lambda: True
    ) -> ServeResult:
        """Settle as ``Wire`` says."""
        result = ServeResult.bounded(short=short)
        while (start := result.position) < len(frames) and not result.is_full and (not start or has_time()):
            run, stop = self._scan(frames, start, len(frames))
            if run.ledgers:
                self._answer_run(frames, run, self._service.add_run(frames, run, verdict), result)
            else:
                body = start + LENGTH_BYTES
                stop = body + int.from_bytes(frames[start:body], "big")
                self._answer(v2.decode_request(memoryview(frames)[body:stop]), result, verdict)
            result.position = stop
        return result

    def is_read(self, data: bytes) -> bool:
        """Return what ``Wire`` says."""
        return self._is_read(data, 0, len(data))

    def _is_read(self, data: bytes, start: int, end: int) -> bool:
        if end - start < LENGTH_BYTES + 4:
            return False
        version, op, _, lowest = data[start + LENGTH_BYTES : start + LENGTH_BYTES + 4]
        return (op if version else lowest) in _READS

    def _answer_run(self, data: bytes, run: AddRun, run_response: AddRunResponse, result: ServeResult) -> None:
        if self._written is not None:
            codes = zip(run.ledgers, run_response.codes, strict=True)
            self._written.add(run.ledgers if run_response.is_ok else [one for one, code in codes if code == Code.OK])
        if run_response.is_ok:
            result.add_response(ack_adds(run), run_response.commit)
            return
        waiting_places, bounds = set(run_response.waiting_places), run.bounds
        for at, (code, ledger, entry) in enumerate(zip(run_response.codes, run.ledgers, run.entries, strict=True)):
            if at in waiting_places:
                result.wait(ledger, data[bounds[at] : bounds[at + 1]])
            else:
                response = _ADD_RESPONSE.pack(v2.RESPONSE_BYTES, _ADD_WORD, v2.NUMBERS[code], ledger, entry)
                result.add_response(response, run_response.commit if code == Code.OK else NOW)

    def _read_run(self, data: bytes, start: int, end: int, result: ServeResult, has_time: Callable[[], bool]) -> bool:
        """Serve plain READs of ascending entries: those that lie together leave the storage as finished frames."""
        if Permission.READ not in self._permission:
            return False
        runs, _ = scan_read_requests(data, start, min(end, start + _SCAN_BYTES))
        result.reads = result.reads or bool(runs)
        for ledger, entries in runs:
            while entries:
                if result.size >= result.limit or (result.position > start and not has_time()):
                    return True
                frames, count_read = self._service.read_run(ledger, entries, result.limit - result.size)
                if count_read:
                    result.add_response(frames)
                else:
                    self._answer(v2.ReadFrame(ledger, entries[0]), result)
                    count_read = 1
                result.position += count_read * _READ_REQUEST_BYTES
                entries = entries[count_read:]
        return bool(runs)

    def _one_frame(self, data: bytes, start: int, end: int, result: ServeResult) -> bool:
        """Serve one frame of any kind. Returns False if it is not whole, or the connection must end."""
        try:
            body = whole_body(data, start, end, self._max_body, result)
            if body is None:
                return False
            self._answer(v2.decode_request(body), result)
        except RemoteProtocolError as error:
            result.refusal = error.with_traceback(None)  # which has all that came, until cycles are collected
            return False
        result.position = start + LENGTH_BYTES + len(body)
        return True

    def _answer(self, request: v2.Request, result: ServeResult, verdict: Verdict | None = None) -> None:
        """Serve one request; ``verdict``: of the look that it waited for."""
        if isinstance(request, v2.AuthFrame):
            result.add_response(v2.AuthFrame(_NO_AUTH).encode())
            return
        request_value = self._value(request, result)
        result.reads = result.reads or not isinstance(request_value, service.AddEntryRequest)
        if request.version > v2.VERSION:
            service_response: service.ServiceResponse | AfterLook = self._service.refuse(
                request_value, Code.BAD_VERSION
            )
        elif not _needed(request_value) & self._permission:
            service_response = self._service.refuse(request_value, Code.UNAUTHORIZED)
        elif isinstance(request_value, service.AddEntryRequest):
            service_response = self._service.add(request_value, verdict, behind=result.waiting_ledgers)
        else:
            service_response = self._service.read(request_value, verdict, waiting=len(result.to_look))
        if isinstance(service_response, AfterLook):
            result.wait(service_response.ledger, request.encode())
            return
        if (
            self._written is not None
            and service_response.code == Code.OK
            and _needed(request_value) == Permission.APPEND
        ):
            self._written.add((request_value.ledger,))
        if isinstance(request, v2.BatchReadFrame):
            result.add_response(
                v2.encode_batch_response(request, _code(service_response.code), service_response.entries),
                service_response.commit,
            )
        else:
            result.add_response(
                v2.encode_response(request, _code(service_response.code), b"".join(service_response.entries)),
                service_response.commit,
            )

    def _value(
        self, request: v2.AddFrame | v2.ReadFrame | v2.BatchReadFrame, result: ServeResult
    ) -> service.ServiceRequest:
        """Return the request as the service takes it."""
        if isinstance(request, v2.AddFrame):
            recovery, high = (
                bool(request.flags & RequestFlag.RECOVERY_ADD),
                bool(request.flags & RequestFlag.HIGH_PRIORITY),
            )
            return service.AddEntryRequest(
                request.ledger, request.entry, request.master_key, request.body, recovery, high
            )
        if isinstance(request, v2.ReadFrame):
            return service.ReadEntryRequest(request.ledger, request.entry, request.master_key)
        most = min(self._max_batch, result.limit) if result.short else self._max_batch
        size = min(request.max_bytes, most)
        return service.ReadBatchRequest(request.ledger, request.first, request.max_count, size, request.master_key)


def _code(code: Code) -> Code:
    """Return the code as a response has it: clients of Java do not know that of a ledger in limbo by version 2, and
    would close the connection. To all clients an I/O error is as unknown (Q15)."""
    return Code.IO_ERROR if code == Code.UNKNOWN_LEDGER_STATE else code


def _needed(request: service.ServiceRequest) -> Permission:
    """Return the permissions of which a request needs one."""
    if isinstance(request, service.AddEntryRequest):
        return MAY_RECOVERY_ADD if request.recovery else Permission.APPEND
    return Permission.READ if request.master_key is None else Permission.RECOVER
