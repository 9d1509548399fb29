"""What a bookie answers (``BookieRequestProcessor`` and the ``…EntryProcessor`` classes of version 2).

One call serves what one socket read brought: runs of plain ADDs and READs by columns, everything else frame by frame.
An answer goes out at once, or only when what was staged so far is durable: ADDs that were stored, and every answer to a
read that fenced, "no such entry" included, since a "no" may end a recovery and must outlive a crash (Q11, Q15). The
original sends that "no" before its fence is synced.

Nothing here waits: the session sends, the committer tells when it is durable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.looks import NOT_WRITTEN, Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v2 import Flag
from tallystick.bookkeeper.wire.values import NO_ENTRY, LedgerId
from tallystick.codec.frames import AddRun, ack_adds, scan_adds, scan_read_requests
from tallystick.codec.uniform import scan_uniform_adds
from tallystick.errors import RemoteProtocolError, StorageError

ANSWER_BYTES = 1024 * 1024  # one call ends after about so many: the peer takes them before more are made
RUN_LEDGERS = 256  # that adds stored in one go are of: each is some work of its own, the first add of a new one most
SHORT_BYTES = 64 * 1024  # or after so many, and a batch has no more: but one entry always

_LENGTH_BYTES = 4
_READ_REQUEST_BYTES = 24
_SCAN_BYTES = 2048 * _READ_REQUEST_BYTES  # looked at in one go: what is not answered now is looked at again
_NO_AUTH = b"\x0a\x12AuthDisabledPlugin\x12\x00"  # AuthMessage {1: plugin name, 2: payload}
_ANSWER = struct.Struct(">IIiqq")
ADD_ANSWER_BYTES = _ANSWER.size
_ADD_WORD, _READ_WORD = v2.header(v2.Op.ADD), v2.header(v2.Op.READ)


class SpeaksV3(RemoteProtocolError):
    """The peer speaks protocol version 3, which this bookie does not."""


@dataclass(slots=True)
class Served:
    """What one call came to."""

    position: int  # the first byte that was not used
    need: int = 0  # bytes from there that make another call worthwhile; 0: call again once the answers are on their way
    at_once: list[bytes] = field(default_factory=list)
    when_durable: list[bytes] = field(default_factory=list)
    refused: RemoteProtocolError | None = None  # close the connection
    limit: int = ANSWER_BYTES  # of the answers; what is over it waits for another call
    short: bool = False  # a batch keeps within it, too
    size: int = 0  # of the answers
    durable_size: int = 0  # of those that wait for the disk
    reads: bool = False  # something was read
    read_is_next: bool = False  # it ended before a read, because none was allowed
    to_look: dict[int, list[bytes]] = field(default_factory=dict)  # requests that wait for a look at their ledger

    def answer(self, data: bytes, durable: bool = False) -> None:
        self.size += len(data)
        if durable:
            self.durable_size += len(data)
            self.when_durable.append(data)
        else:
            self.at_once.append(data)

    def wait(self, ledger: int, frame: bytes) -> None:
        """A request that is answered when its ledger was looked at."""
        self.to_look.setdefault(ledger, []).append(frame)


class Requests:
    """See the module. ``max_frame_bytes`` counts the length field; ``max_batch_bytes`` limits a batch read's answer.

    ``looks()``: whether first adds wait for a look at their ledger's metadata; ``look_at``: one that nobody waits for.
    """

    def __init__(
        self, storage: Storage, guard: DiskGuard, fences: Fences, counts: Counts, recent: RecentAdds, *,
        looks: Callable[[], bool], look_at: Callable[[LedgerId], None], max_frame_bytes: int, max_batch_bytes: int,
    ) -> None:  # fmt: skip
        self._storage, self._guard, self._fences, self._counts, self._recent = storage, guard, fences, counts, recent
        self._identities = storage.identities
        self._max_body, self._max_batch = max_frame_bytes - _LENGTH_BYTES, max_batch_bytes
        self.looks, self._look_at = looks, look_at

    def serve(
        self, data: bytes, *, reads: bool = True, short: bool = False, has_time: Callable[[], bool] = lambda: True
    ) -> Served:
        """Answer the whole frames of ``data`` while it ``has_time``; without ``reads`` those before the first that
        reads.

        ``short`` answers to reads leave the rest for further calls, and that of a batch for further requests.
        """
        served, end = Served(0, limit=SHORT_BYTES if short else ANSWER_BYTES, short=short), len(data)
        window = end  # so many bytes are looked at for a run
        while (start := served.position) < end and served.size < served.limit and (not start or has_time()):
            run, stop = self._scan(data, start, min(end, start + window))
            if len(run) > RUN_LEDGERS and len(set(run.ledgers)) > RUN_LEDGERS:
                window = run.bounds[RUN_LEDGERS] - start
                run, stop = self._scan(data, start, start + window)
            if run.ledgers:
                self._add_run(data, run, stop, served)
            elif not reads and _is_read(data, start, end):
                served.read_is_next = True
                break
            elif not (self._read_run(data, start, end, served) or self._one_frame(data, start, end, served)):
                break
        return served

    def _scan(self, data: bytes, start: int, end: int) -> tuple[AddRun, int]:
        return scan_uniform_adds(data, start, end, self._max_body) or scan_adds(data, start, end, self._max_body)

    def settle(self, frames: bytes, said: Verdict) -> Served:
        """Answer requests that waited for a look."""
        served = Served(0)
        self._settle(frames, said, served)
        return served

    def _settle(self, frames: bytes, said: Verdict, served: Served) -> None:
        position = 0
        while position < len(frames):
            run, stop = self._scan(frames, position, len(frames))
            refused = said is Verdict.UNKNOWN and any(map(self._is_refused, set(run.ledgers)))
            if run.ledgers and said in (Verdict.ADMIT, Verdict.UNKNOWN) and not refused:
                self._store_run(frames, run, stop, served)
            else:
                stop = position + _LENGTH_BYTES + int.from_bytes(frames[position : position + _LENGTH_BYTES], "big")
                request = v2.decode_request(memoryview(frames)[position + _LENGTH_BYTES : stop])
                assert not isinstance(request, v2.Auth), "it waits for nothing"
                self._settle_one(request, said, served)
            position = stop

    def _settle_one(self, request: v2.Add | v2.Read | v2.BatchRead, said: Verdict, served: Served) -> None:
        ordinary = isinstance(request, v2.Add) and not request.flags & Flag.RECOVERY_ADD
        exists = said in (Verdict.ADMIT, Verdict.REFUSE)
        if said is Verdict.AMISS or (said is Verdict.UNKNOWN and self._is_in_doubt(request)):
            self._refuse(request, Code.IO_ERROR, served)
        elif said in NOT_WRITTEN and ordinary:  # as if it were fenced here
            self._refuse(request, Code.FENCED, served)
        elif not exists and isinstance(request, v2.Add) and self._identities.is_one_too_many(request.ledger):
            self._refuse(request, Code.TOO_MANY_REQUESTS, served)
        else:
            self._serve_one(request, served, exists=exists)

    def _is_refused(self, ledger: LedgerId) -> bool:
        """Whether adds to it are, as nobody can look."""
        return self._identities.is_in_doubt(ledger) or self._identities.is_one_too_many(ledger)

    def _refuse(self, request: v2.Add | v2.Read | v2.BatchRead, code: Code, served: Served) -> None:
        if isinstance(request, v2.BatchRead):
            self._counts.batch_reads += 1
            self._counts.batch_reads_failed += 1
            served.answer(v2.encode_batch_answer(request, code, []))
            return
        if isinstance(request, v2.Add):
            self._counts.adds += 1
            self._counts.adds_failed += 1
        else:
            self._counts.reads += 1
            self._counts.reads_failed += 1
        served.answer(v2.encode_answer(request, code))

    def _add_run(self, data: bytes, run: AddRun, stop: int, served: Served) -> None:
        """Store a run, but for the adds that must wait for a look."""
        served.position = stop
        if 0 in run.entries or not self._identities.were_looked_at(set(run.ledgers)):
            self._add_some(data, run, stop, served)
        else:
            self._store_run(data, run, stop, served)

    def _add_some(self, data: bytes, run: AddRun, stop: int, served: Served) -> None:
        """The same, of a run with ledgers that nobody has looked at. Entry 0 of a new one does not wait."""
        needs_look, looks = self._identities.needs_look, self.looks()
        pairs = zip(run.ledgers, run.entries, strict=True)
        places = [place for place, (ledger, entry) in enumerate(pairs) if needs_look(ledger, entry)]
        if not looks:
            self._counts.adds_not_looked_at += len(places)
            places = [place for place in places if self._is_refused(run.ledgers[place])]
        if places:
            frames = [data[run.bounds[place] : run.bounds[place + 1]] for place in range(len(run))]
            for place in places:
                if looks or self._identities.is_one_too_many(run.ledgers[place]):
                    served.wait(run.ledgers[place], frames[place])
                else:
                    self._settle(frames[place], Verdict.UNKNOWN, served)
                frames[place] = b""
            self._settle(b"".join(frames), Verdict.ADMIT, served)
        else:
            self._store_run(data, run, stop, served)
        for ledger in dict.fromkeys(run.ledgers):
            self._look_behind(ledger)

    def _look_behind(self, ledger: LedgerId) -> None:
        """Which of the ledgers with this id it is, a bookie must know before another one can come."""
        if self._identities.needs_note(ledger) and self.looks():
            self._look_at(ledger)

    def _store_run(self, data: bytes, run: AddRun, stop: int, served: Served) -> None:
        start = run.bounds[0]
        self._counts.adds += len(run)
        if not self._guard.accepts(high_priority=False):
            codes = [Code.READ_ONLY] * len(run)
        else:
            if (stop - start) * 2 < len(
                data
            ):  # the storage keeps the buffer: do not make it keep other requests' bytes
                data = data[start:stop]
                run, _ = self._scan(data, 0, len(data))
            if self._recent.watched:
                for ledger, entry in zip(run.ledgers, run.entries, strict=True):
                    self._recent.adding(ledger, entry, self._storage.last_entry(ledger))
            codes = self._storage.add_run(data, run)
        if not any(codes):
            self._counts.add_bytes += stop - start
            served.answer(ack_adds(run), durable=True)
            return
        for at, (code, ledger, entry) in enumerate(zip(codes, run.ledgers, run.entries, strict=True)):
            served.answer(_ANSWER.pack(24, _ADD_WORD, v2.NUMBERS[code], ledger, entry), durable=code == Code.OK)
            if code == Code.OK:
                self._counts.add_bytes += run.bounds[at + 1] - run.bounds[at]
            else:
                self._counts.adds_failed += 1

    def _read_run(self, data: bytes, start: int, end: int, served: Served) -> bool:
        """Plain READs of consecutive entries: those that lie together in the storage leave it as finished frames."""
        runs, _ = scan_read_requests(data, start, min(end, start + _SCAN_BYTES))
        served.reads = served.reads or bool(runs)
        for ledger, first, count in runs:
            last = first + count
            while first < last:
                if served.size >= served.limit:
                    return True
                if first == NO_ENTRY:
                    self._answer(v2.Read(ledger, first), served)
                    served.position += _READ_REQUEST_BYTES
                    first += 1
                    continue
                frames, found = self._frames(ledger, first, last - first, served.limit - served.size)
                served.answer(frames)
                served.position += found * _READ_REQUEST_BYTES
                self._counts.reads += found
                self._counts.read_bytes += len(frames)
                first += found
        return bool(runs)

    def _frames(self, ledger: int, first: int, count: int, max_bytes: int) -> tuple[bytes, int]:
        if first >= 0:
            try:
                frames, found = self._storage.read_frames(ledger, first, count, max_bytes)
            except StorageError:
                found = 0  # the entry's own read says what is wrong with it
            if found:
                return frames, found
        code, entry = self._read(ledger, first)
        self._counts.reads_failed += code != Code.OK
        return _ANSWER.pack(24 + len(entry), _READ_WORD, v2.NUMBERS[code], ledger, first) + entry, 1

    def _one_frame(self, data: bytes, start: int, end: int, served: Served) -> bool:
        """One frame of any kind; False: it is not whole, or the connection must end."""
        if end - start < _LENGTH_BYTES:
            served.need = _LENGTH_BYTES
            return False
        size = int.from_bytes(data[start : start + _LENGTH_BYTES], "big")
        body = start + _LENGTH_BYTES
        try:
            self._check_head(size, data[body] if body < end else None)
            if end - body < size:
                served.need = _LENGTH_BYTES + size
                return False
            self._answer(v2.decode_request(memoryview(data)[body : body + size]), served)
        except RemoteProtocolError as refused:
            served.refused = refused
            return False
        served.position = body + size
        return True

    def _check_head(self, size: int, first: int | None) -> None:
        """Refuse as soon as the length or the first byte is there, before anything is buffered for it."""
        if size > self._max_body:  # a negative length is a huge one here
            raise RemoteProtocolError("a frame is longer than nettyMaxFrameSizeBytes allows", bytes=size)
        if first == v2.V3_FIRST_BYTE:
            raise SpeaksV3("this client speaks protocol version 3: set useV2WireProtocol=true in its configuration")

    def _answer(self, request: v2.Request, served: Served) -> None:
        if isinstance(request, v2.Auth):
            served.answer(v2.Auth(_NO_AUTH).encode())
        elif self._must_wait(request, len(served.to_look)):
            served.wait(request.ledger, request.encode())
        elif self._is_in_doubt(request):
            self._refuse(request, Code.IO_ERROR, served)
        else:
            self._serve_one(request, served)
            if isinstance(request, v2.Add):
                self._look_behind(request.ledger)

    def _must_wait(self, request: v2.Add | v2.Read | v2.BatchRead, waiting: int = 0) -> bool:
        """Whether a look comes before the answer; ``waiting`` others of this call wait for one."""
        if isinstance(request, v2.Add) and not request.flags & Flag.RECOVERY_ADD:
            if not self._identities.needs_look(request.ledger, request.entry):
                return False
            self._counts.adds_not_looked_at += not self.looks()
            return self.looks() or self._identities.is_one_too_many(request.ledger)
        fences = not isinstance(request, v2.Add) and request.master_key is not None
        if fences and self._fences.must_look(request.ledger, waiting):
            return True
        if isinstance(request, v2.Add) and self._identities.is_one_too_many(request.ledger):
            return True  # while nobody looks, too: who could make its ledger can be looked at
        return _is_of_the_ledger(request) and self._identities.needs_comparison(request.ledger) and self.looks()

    def _is_in_doubt(self, request: v2.Add | v2.Read | v2.BatchRead) -> bool:
        """Whether it may be about another ledger than the one that is or was stored here under its id, and nobody can
        look."""
        return _is_of_the_ledger(request) and self._identities.is_in_doubt(request.ledger)

    def _serve_one(self, request: v2.Add | v2.Read | v2.BatchRead, served: Served, *, exists: bool = False) -> None:
        """``exists``: a look has just found the ledger in the metadata."""
        if isinstance(request, v2.Add):
            self._store_one(request, served)
        elif isinstance(request, v2.Read):
            self._serve_read(request, served, exists)
        else:
            self._batch(request, served, exists)

    def _serve_read(self, request: v2.Read, served: Served, exists: bool) -> None:
        served.reads = True
        code, entry = self._open(request, request.entry, exists)
        if code == Code.OK:
            code, entry = self._read(request.ledger, request.entry)
        self._counts.reads += 1
        self._counts.reads_failed += code != Code.OK
        self._counts.read_bytes += len(entry)
        served.answer(v2.encode_answer(request, code, entry), durable=request.master_key is not None)

    def _store_one(self, request: v2.Add, served: Served) -> None:
        code = self._add(request)
        self._counts.adds += 1
        if code == Code.OK:
            self._counts.add_bytes += len(request.body)
        else:
            self._counts.adds_failed += 1
        served.answer(v2.encode_answer(request, code), durable=code == Code.OK)

    def _add(self, request: v2.Add) -> Code:
        if request.version > v2.VERSION:
            return Code.BAD_VERSION
        if not self._guard.accepts(high_priority=bool(request.flags & Flag.HIGH_PRIORITY)):
            return Code.READ_ONLY
        if self._recent.watched:
            self._recent.adding(request.ledger, request.entry, self._storage.last_entry(request.ledger))
        return self._storage.add(request)

    def _open(self, request: v2.Read | v2.BatchRead, entry: int, exists: bool) -> tuple[Code, bytes]:
        """Judge a read, and fence if it says so: before the entry is looked for, so that a "no" stays true."""
        if request.version > v2.VERSION:
            return Code.BAD_VERSION, b""
        if request.ledger < 0 or entry < -1:
            return Code.BAD_REQUEST, b""
        if request.master_key is not None:
            return self._fences.fence(request.ledger, request.master_key, exists=exists), b""
        return Code.OK, b""

    def _read(self, ledger: int, entry: int) -> tuple[Code, bytes]:
        try:
            return self._storage.read(ledger, entry)
        except StorageError:
            return Code.IO_ERROR, b""  # never a "no": the entry may be there (Q15)

    def _batch(self, request: v2.BatchRead, served: Served, exists: bool) -> None:
        served.reads = True
        entries: list[bytes] = []
        most = min(self._max_batch, served.limit) if served.short else self._max_batch
        code, _ = self._open(request, request.first, exists)
        if code == Code.OK:
            try:
                code, entries = self._storage.batch(
                    request.ledger, request.first, request.max_count, min(request.max_bytes, most)
                )
            except StorageError:
                code = Code.IO_ERROR
        self._counts.batch_reads += 1
        self._counts.batch_reads_failed += code != Code.OK
        self._counts.read_bytes += sum(map(len, entries))
        served.answer(v2.encode_batch_answer(request, code, entries), durable=request.master_key is not None)


def _is_of_the_ledger(request: v2.Add | v2.Read | v2.BatchRead) -> bool:
    """Whether it is more than a read of entries: it adds, fences, or asks how far the ledger goes."""
    if isinstance(request, v2.Add):
        return True
    first = request.entry if isinstance(request, v2.Read) else request.first
    return first == NO_ENTRY or request.master_key is not None


def is_read(frame: bytes) -> bool:
    """Whether a frame, or the first of several, of which at least the head is here is a read."""
    return _is_read(frame, 0, len(frame))


def _is_read(data: bytes, start: int, end: int) -> bool:
    """Whether a frame of which at least the head is here is a read."""
    if end - start < _LENGTH_BYTES + 4:
        return False
    version, op, _, lowest = data[start + _LENGTH_BYTES : start + _LENGTH_BYTES + 4]
    return (op if version else lowest) in (v2.Op.READ, v2.Op.BATCH_READ)
