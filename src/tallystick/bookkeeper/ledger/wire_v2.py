"""A client's side of the binary protocol, version 2: requests to frames, answers to what their owners hear.

Its responses carry no request's number, but for batches: ADD and READ are known by (opcode, ledger, entry), so that all
lanes of a ledger have one name. One call takes what came in a row: good responses of one ledger by columns, everything
else frame by frame.

A fencing read and a plain one of the same entry have responses of one name, too. A bookie responds to the plain one at
once and to the other when its fence is durable, so that the first response is nobody's proof of a fence (Q12): plain
reads are settled first, and the fencing one with the last response. Where the codes of these differ its own is unknown:
a "no" of before the fence says nothing (Q15).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.ledger.lanes import LaneName
from tallystick.bookkeeper.ledger.outgoing import OutgoingPiece
from tallystick.bookkeeper.ledger.outstanding import OutstandingCore, RequestKey
from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.ledger.wires import BatchRequest, BookieRequest, ReadRequest, ReportResponse
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.frames import PLAIN_ADD, Buffer, scan_acks
from tallystick.codec.reads import PLAIN_READ, encode_reads, scan_reads
from tallystick.errors import RemoteProtocolError

_HEAD = struct.Struct(">4xI4xq8x")  # of a response: header word and ledger; no shorter response belongs to a lane
ADD_HEAD_BYTES = 24  # of an ADD, without its length: its header and the master key
# Plain numbers: what names of thousands of ledgers hold is no object.
_ADD, _READ, _BATCH = int(v2.Op.ADD), int(v2.Op.READ), int(v2.Op.BATCH_READ)
_FENCING_READ = -_READ  # in names of requests alone
_FENCE, _HIGH_PRIORITY = int(v2.RequestFlag.FENCE), int(v2.RequestFlag.HIGH_PRIORITY)


@dataclass(slots=True)
class _Fences:
    """Fencing reads of an entry that have no response, and the codes of all responses about it since the first."""

    count: int = 0
    codes: set[Code] = field(default_factory=set)


class ClientWireV2:
    """A ``ClientWire``; see the module."""

    read_bytes = 256 * 1024

    def __init__(self, outstanding: OutstandingCore[Owner], report: ReportResponse) -> None:
        self._outstanding, self._report = outstanding, report
        self._batches = 0  # so far: they are numbered
        self._fences: dict[LedgerId, dict[EntryId, _Fences]] = {}

    # Requests

    def adds_name(self, ledger: LedgerId, number: int) -> LaneName:
        return _ADD, ledger

    def reads_name(self, ledger: LedgerId) -> LaneName:
        return _READ, ledger

    def adds(
        self, about: LaneName, entries: Sequence[EntryId], frames: Iterable[OutgoingPiece]
    ) -> Iterable[OutgoingPiece]:
        return frames

    def reads(self, about: LaneName, ledger: LedgerId, entries: Sequence[EntryId]) -> OutgoingPiece:
        return OutgoingPiece.of(encode_reads(ledger, entries))

    def request(self, request: BookieRequest) -> tuple[RequestKey, OutgoingPiece]:
        ledger, entry = request.ledger, request.entry
        if isinstance(request, ReadRequest):
            if request.master_key is not None:
                self._fences.setdefault(ledger, {}).setdefault(entry, _Fences()).count += 1
            op = _READ if request.master_key is None else _FENCING_READ
            return (op, ledger, entry), OutgoingPiece.of(_read(request))
        assert isinstance(request, BatchRequest), "version 2 has no such request"
        self._batches += 1
        batch = v2.BatchReadFrame(ledger, entry, self._batches, request.max_count, request.max_bytes)
        return (_BATCH, ledger, self._batches), OutgoingPiece.of(batch.encode())

    # Answers

    def run(self, buffer: bytearray, start: int, end: int) -> int:
        """Take responses as ``ClientWire`` says."""
        if end - start < _HEAD.size:
            return start
        word, ledger = _HEAD.unpack_from(buffer, start)
        if word == PLAIN_ADD and self._outstanding.has_lanes((_ADD, ledger)):
            entries, start = scan_acks(buffer, start, end, ledger)
            self._settle_run((_ADD, ledger), entries, ())
        elif word == PLAIN_READ and ledger not in self._fences and self._outstanding.has_lanes((_READ, ledger)):
            entries, data, start = scan_reads(buffer, start, end, ledger)
            self._settle_run((_READ, ledger), entries, data)
        return start

    def _settle_run(self, about: LaneName, entries: list[EntryId], data: Sequence[Buffer]) -> None:
        def report(owner: Owner, start: int, stop: int) -> None:
            self._report(owner, Code.OK, entries[start:stop], data[start:stop])

        at = 0
        while at < len(entries):
            at = self._outstanding.answered_run(about, entries, report, at)
            if at < len(entries):
                # Not of a lane: then somebody asked for this one alone, or nobody did.
                self._settle((*about, entries[at]), Code.OK, entries[at], data[at : at + 1])
                at += 1

    def take_response(self, body: Buffer) -> None:
        """Take responses as ``ClientWire`` says."""
        response = v2.decode_response(body)
        if isinstance(response, v2.Response):
            data = (response.entry_bytes,) if response.op != _ADD and response.code == Code.OK else ()
            fences = self._fences_of(response) if self._fences else None
            if fences is not None:
                fences.codes.add(response.code)
            lane = self._outstanding.answered_in_lane((response.op, response.ledger), response.entry)
            if lane is None and fences is not None:
                self._settle_read(fences, response, data)
            elif lane is None:
                self._settle((response.op, response.ledger, response.entry), response.code, response.entry, data)
            elif lane.owner is not None:
                self._report(lane.owner, response.code, [response.entry], data)
        elif isinstance(response, v2.BatchReadResponse):
            self._settle(
                (_BATCH, response.ledger, response.request_id), response.code, response.first, response.entries
            )
        else:
            raise RemoteProtocolError("an authentication message that nobody asked for")

    def _fences_of(self, response: v2.Response) -> _Fences | None:
        return self._fences.get(response.ledger, {}).get(response.entry) if response.op == _READ else None

    def _settle_read(self, fences: _Fences, response: v2.Response, data: Sequence[Buffer]) -> None:
        """Settle a plain read of the entry, or else a fencing one."""
        ledger, entry, code = response.ledger, response.entry, response.code
        if self._outstanding.has_request((_READ, ledger, entry)):
            return self._settle((_READ, ledger, entry), code, entry, data)
        fences.count -= 1
        if not fences.count:
            del self._fences[ledger][entry]
            if not self._fences[ledger]:
                del self._fences[ledger]
        if len(fences.codes) > 1:
            code, data = Code.AMBIGUOUS, ()
        self._settle((_FENCING_READ, ledger, entry), code, entry, data)

    def _settle(self, key: RequestKey, code: Code, entry: EntryId, data: Sequence[Buffer]) -> None:
        request = self._outstanding.answered(key)
        if request is None:
            raise RemoteProtocolError("an answer that nobody asked for", op=key[0], ledger=key[1], entry=key[2])
        if request.owner is not None:
            self._report(request.owner, code, [entry], data)


def _read(request: ReadRequest) -> bytes:
    if request.master_key is None and not request.high_priority:
        return encode_reads(request.ledger, (request.entry,))  # what asks how far a ledger goes asks often
    flags = (0 if request.master_key is None else _FENCE) | (_HIGH_PRIORITY if request.high_priority else 0)
    return v2.ReadFrame(request.ledger, request.entry, request.master_key, flags).encode()
