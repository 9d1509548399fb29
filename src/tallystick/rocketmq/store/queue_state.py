"""``tally-queues``: what queues and index are made of, so that a start reads none of them and sees what is lost.

A file of batches, one a checkpoint, each with what changed since the one before; the first has everything::

    magic "TLYQ" 4 | payload size 4 | CRC32C of the payload 4 | payload: a ``Batch`` as MessagePack arrays

A batch is written when all that it names is durable. Behind the last whole one may be a torn one, which never counted.
One that is not whole below the size that ``tally-synced`` notes, or with whole ones behind it, is damage: the queues
are read then, and what the others say of deletions counts.
When the changes outgrow what they change the file is replaced by one with a single batch. The original takes no notice.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from tallystick.codec.checksum import crc32c
from tallystick.rocketmq.store.sink_table import Key, SinkBatch
from tallystick.runtime.disk import Disk, File, read_file

QUEUE_STATE = "tally-queues"
_MAGIC = b"TLYQ"
_FRAME = struct.Struct(">4sII")
_LEAST_BYTES = 1024 * 1024  # of changes before the file is replaced
_GROWTH = 4  # and so many times the size of everything

Queue = tuple[str, int]


class QueueRow(msgspec.Struct, array_like=True, frozen=True):
    """The state of one queue; all but ``last_physical`` and ``born`` are queue offsets."""

    topic: str
    queue_id: int
    first: int  # of the oldest message kept
    end: int  # the next message gets this one
    filled: int  # units are in the files up to here; what is missing up to ``end`` are fillers
    start: int  # where the first file begins; -1 without files
    last_physical: int = -1  # of the last message
    born: int = 0  # records before this physical offset belong to a deleted topic of that name; 0: unknown

    @property
    def key(self) -> Queue:
        return self.topic, self.queue_id


class IndexRow(msgspec.Struct, array_like=True, frozen=True):
    """The state of one index file: its name and its header."""

    name: str
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    count: int


class Hole(msgspec.Struct, array_like=True, frozen=True):
    """Lost units that are to be made again: of a queue those from ``next`` up to ``stop``."""

    topic: str
    queue_id: int
    next: int
    stop: int


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """The changes since the batch before; a field that is None did not change."""

    whole: bool  # the first of a file: what was before does not count
    epoch: str  # see ``Disk.epoch``
    file_units: int  # of each queue file
    dispatched: int  # records before this physical offset are in queues and index
    log_first: int  # ``first`` of each queue was found when the log began here
    begin_offset: (
        int  # a slave's log was begun here, behind messages that it never had; 0: nothing is missing before it
    )
    queues: list[QueueRow] = []
    removed_queues: list[Queue] = []  # queues that are no more
    deletions: dict[str, int] | None = None  # by topic: records before this physical offset have no queue any more
    ends: list[tuple[str, int, int]] | None = None  # of a slave: where the queues of its master end
    ends_at: int = -1  # and of which physical offset that was true; -1: it was never told
    index: list[IndexRow] | None = None  # None: no index is kept
    removed_index_files: list[str] = []
    holes: list[Hole] = []
    index_holes: list[str] = []  # names of files that are built again
    rebuild_offset: int = 0  # holes are filled from the records before this physical offset
    number: int = 0  # of a whole batch: no two files begin with the same bytes
    new_deletions: dict[str, int] = {}  # as ``deletions``, beside those that were
    forgotten_up_to: int = 0  # deletions up to this physical offset may be missing
    # A slave's master said last that its log begins here; None: it never said. The version before noted whether it has
    # older messages: read as offsets, these are as good until the master says more.
    master_first: int | bool | None = None
    deletions_told_by: str = ""  # of a slave: the process of the master that told of those behind the log's end
    drop_from: int = -1  # files of the log from here up to ``log_first`` are being deleted; -1: none are
    sinks: list[SinkBatch] = []  # how far sinks have come whose messages are stored once
    removed_sinks: list[Key] = []
    sinks_end: int = -1  # records before this physical offset are in ``sinks``; -1: of a version that had none


@dataclass
class QueueState:
    """The state after all batches of a file."""

    epoch: str = ""
    file_units: int = 0
    dispatched: int = 0
    log_first: int = 0
    begin_offset: int = 0
    queues: dict[Queue, QueueRow] = field(default_factory=dict)
    deletions: dict[str, int] = field(default_factory=dict)
    ends: dict[Queue, int] = field(default_factory=dict)
    ends_at: int = -1
    index: dict[str, IndexRow] | None = None
    holes: list[Hole] = field(default_factory=list)
    index_holes: list[str] = field(default_factory=list)
    rebuild_offset: int = 0
    number: int = 0
    forgotten_up_to: int = 0
    master_first: int | None = None
    deletions_told_by: str = ""
    drop_from: int = -1
    sinks: dict[Key, SinkBatch] = field(default_factory=dict)
    sinks_end: int = -1

    @property
    def ends_known(self) -> bool:
        """Whether a slave's queues could go on where its master's ended: all records of them are here, or the master
        told it."""
        return not self.begin_offset or self.ends_at >= self.begin_offset

    def take(self, batch: Batch) -> None:
        """Apply the next batch."""
        if batch.whole:
            self.queues, self.deletions, self.ends, self.index, self.sinks = {}, {}, {}, None, {}
            self.number = max(self.number, batch.number)
        self.epoch, self.file_units, self.dispatched = batch.epoch, batch.file_units, batch.dispatched
        self.log_first, self.begin_offset, self.ends_at = batch.log_first, batch.begin_offset, batch.ends_at
        self.index_holes, self.rebuild_offset, self.forgotten_up_to = (
            batch.index_holes,
            batch.rebuild_offset,
            batch.forgotten_up_to,
        )
        self.master_first, self.deletions_told_by = batch.master_first, batch.deletions_told_by
        self.drop_from, self.sinks_end = batch.drop_from, batch.sinks_end
        removed_sinks = set(batch.removed_sinks)
        self.sinks = {key: row for key, row in self.sinks.items() if key not in removed_sinks}
        self.sinks |= {row.key: row for row in batch.sinks}
        self.forget(batch.removed_queues)
        self.queues.update({row.key: row for row in batch.queues})
        self.holes = [hole for hole in batch.holes if self._has(hole)]
        if batch.deletions is not None:
            self.deletions = dict(batch.deletions)
        for topic, offset in batch.new_deletions.items():
            self.deletions[topic] = max(offset, self.deletions.get(topic, 0))
        if batch.ends is not None:
            self.ends = {(topic, queue_id): end for topic, queue_id, end in batch.ends}
        if batch.index is None:
            self.index = None
        else:
            index_rows = {
                name: row for name, row in (self.index or {}).items() if name not in batch.removed_index_files
            }
            self.index = index_rows | {row.name: row for row in batch.index}

    def forget(self, queues: Iterable[Queue]) -> None:
        """Forget these queues and their holes."""
        for topic, queue_id in queues:
            self.queues.pop((topic, queue_id), None)
        self.holes = [hole for hole in self.holes if self._has(hole)]

    def _has(self, hole: Hole) -> bool:
        """Not of a queue that went, nor of one of its name that was made anew."""
        row = self.queues.get((hole.topic, hole.queue_id))
        return row is not None and hole.stop <= row.filled

    def change(self, **fields: object) -> Batch:
        """Returns a batch that changes only ``fields``."""
        nothing = Batch(
            False,
            self.epoch,
            self.file_units,
            self.dispatched,
            self.log_first,
            self.begin_offset,
            ends_at=self.ends_at,
            index=None if self.index is None else [],
            holes=self.holes,
            index_holes=self.index_holes,
            rebuild_offset=self.rebuild_offset,
            forgotten_up_to=self.forgotten_up_to,
            master_first=self.master_first,
            deletions_told_by=self.deletions_told_by,
            drop_from=self.drop_from,
            sinks_end=self.sinks_end,
        )
        return msgspec.structs.replace(nothing, **fields)

    def whole(self) -> Batch:
        """Returns one batch that has the whole state."""
        return Batch(
            True,
            self.epoch,
            self.file_units,
            self.dispatched,
            self.log_first,
            self.begin_offset,
            list(self.queues.values()),
            [],
            self.deletions,
            [(*queue, end) for queue, end in self.ends.items()],
            self.ends_at,
            None if self.index is None else list(self.index.values()),
            [],
            self.holes,
            self.index_holes,
            self.rebuild_offset,
            self.number,
            forgotten_up_to=self.forgotten_up_to,
            master_first=self.master_first,
            deletions_told_by=self.deletions_told_by,
            drop_from=self.drop_from,
            sinks=list(self.sinks.values()),
            sinks_end=self.sinks_end,
        )


class QueueStateFile:
    """The file. ``state`` is None before the first batch. One thread at a time."""

    def __init__(self, disk: Disk, directory: str, noted_durable: tuple[int, int] = (0, 0)) -> None:
        """``noted_durable``: what ``durable`` was when somebody noted it last."""
        self._disk, self._path = disk, os.path.join(directory, QUEUE_STATE)
        self.durable = (0, 0)  # the CRC of the first batch, and how many bytes are durable
        self.damage: str | None = None  # what ``state`` may lack
        self._file: File | None = None
        self._size = self._whole_bytes = 0
        self._certain = True
        self._encoder, self.state = msgspec.msgpack.Encoder(), QueueState() if disk.exists(self._path) else None
        if self.state is not None:
            self._load(self.state, noted_durable)
        elif noted_durable != (0, 0):
            self.damage = "the file is missing"

    def _load(self, state: QueueState, noted_durable: tuple[int, int]) -> None:
        self._file = self._disk.open(self._path)
        data = memoryview(self._file.read(self._file.size(), 0))
        decoder = msgspec.msgpack.Decoder(Batch)
        for payload in _frames(data):
            batch = decoder.decode(payload)
            self._size += _FRAME.size + len(payload)
            if batch.whole:
                self._whole_bytes = self._size
            state.take(batch)
        self.durable = _first_crc(data), self._size
        behind = _frames_behind(data, self._size) if self._size < len(data) else []
        if behind or not self._size or (noted_durable[0] == self.durable[0] and self._size < noted_durable[1]):
            self.damage = f"a batch is not whole, at {self._size} of {len(data)} bytes, {noted_durable[1]} were durable"
            for payload in behind:
                state.take(decoder.decode(payload))
            self.close()  # the next batch has everything, in a new file
        elif self._size < len(data):
            self._file.truncate(self._size)
        if not self._size and not behind:
            self.state = None

    def append(self, batch: Batch) -> None:
        """Append a batch. It is durable when this returns. Raises StorageError; after DiskFull it may be appended
        again."""
        if self.state is None:
            self.state = QueueState()
        elif batch == self.state.change() and self._certain:
            return
        self.state.take(batch)
        whole = self._file is None or batch.whole or not self._certain
        self._certain = False  # until it is durable; else the next one has everything
        self._write(batch, whole=whole)
        self._certain = True

    def _write(self, batch: Batch, *, whole: bool) -> None:
        assert self.state is not None
        if self._file is None or whole or self._size > max(_LEAST_BYTES, _GROWTH * self._whole_bytes):
            self.state.number += 1
            self._replace(self._encoder.encode(self.state.whole()))
            return
        payload = self._encoder.encode(batch)
        self._file.write([_frame(payload), payload], self._size)
        self._file.sync()
        self._size += _FRAME.size + len(payload)
        self.durable = self.durable[0], self._size

    def _replace(self, payload: bytes) -> None:
        temporary = self._path + ".new"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write([_frame(payload), payload], 0)
            file.sync()
            self._disk.rename(temporary, self._path)
            self._disk.sync_dir(os.path.dirname(self._path))
        except BaseException:  # a full disk is tried again each second
            file.close()
            raise
        self.close()
        self._file, self._size = file, _FRAME.size + len(payload)
        self._whole_bytes = self._size
        self.durable = crc32c(payload), self._size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def read_queue_state(disk: Disk, directory: str) -> QueueState:
    """Returns the state for readers that change nothing; an empty one if there is no file."""
    path, state = os.path.join(directory, QUEUE_STATE), QueueState()
    if disk.exists(path):
        decoder = msgspec.msgpack.Decoder(Batch)
        for payload in _frames(memoryview(read_file(disk, path))):
            state.take(decoder.decode(payload))
    return state


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(_MAGIC, len(payload), crc32c(payload))


def _first_crc(data: memoryview) -> int:
    return int(_FRAME.unpack_from(data)[2]) if len(data) >= _FRAME.size else 0


def _frames_behind(data: memoryview, at: int) -> list[memoryview]:
    """Returns the payloads of whole batches behind a damaged one."""
    payloads, whole = [], bytes(data)
    while (at := whole.find(_MAGIC, at + 1)) >= 0:
        for payload in _frames(data[at:]):
            payloads.append(payload)
            at += _FRAME.size + len(payload)
    return payloads


def _frames(data: memoryview) -> list[memoryview]:
    """Returns the payloads of the whole batches; what follows the last of them never counted."""
    payloads, at = [], 0
    while at + _FRAME.size <= len(data):
        magic, size, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + size]
        if magic != _MAGIC or len(payload) < size or crc32c(payload) != crc:
            break
        payloads.append(payload)
        at += _FRAME.size + size
    return payloads
