"""``tally-synced``: up to where the log is durable, and what the newest sync was to make durable. Ours alone.

Two slots in blocks of their own are written in turn, so one of them is whole at any time::

    magic "TALLYST2" 8 | number 8 | synced 8 | tail 8 | end 8 | CRC32C of the log from synced to end 8 |
    dispatched 8 | border 8 | start 8 | file bytes 8 | CRC32C of all that 4               at 4096 and at 8192
    magic "TLYQ" 4 | CRC32C of the first batch of tally-queues 4 | its durable bytes 8 | CRC32C of that 4, right behind

Each sync of the log has a record here. The two become durable together, and nobody is told of the sync before both are;
the next record is not written before that. So what lies below ``synced`` of the newest record was durable whatever
happened since: damage there is no torn tail (R5), and that good records follow it, or none, proves nothing. Only the
newest sync can have been interrupted: its part of the log has the CRC, or it is a torn tail. The bookie's journal has
the same rule.

A version before had one record a second, at 0 and at 512, without the part from ``synced`` to ``end``.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from tallystick.codec.checksum import crc32c
from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Disk, read_file

SIDECAR = "tally-synced"
_SLOTS = (BLOCK_BYTES, 2 * BLOCK_BYTES)
_FILE_BYTES = 3 * BLOCK_BYTES
_MAGIC = b"TALLYST2"
_RECORD = struct.Struct(">8s9q")
_CRC = struct.Struct(">I")
_QUEUES_MAGIC, _QUEUES = b"TLYQ", struct.Struct(">4sIq")
_RECORD_BYTES = _RECORD.size + _CRC.size
_OLD_MAGIC = b"TALLYST1"
_OLD_RECORD = struct.Struct(">8s6q")
_OLD_SLOTS = (0, 512)


@dataclass(frozen=True)
class SyncRecord:
    """Physical offsets. All but ``start`` grow."""

    number: int = 0
    synced: int = 0  # the log is durable up to here: the sync returned
    tail: int = 0  # the last record below ``synced`` ends here; a slave's may be copied and synced in pieces
    end: int = 0  # a sync up to here was begun, and perhaps it did not return; ``synced`` where there is none
    crc: int = 0  # CRC32C of the log's bytes from ``synced`` to ``end``
    dispatched: int = 0  # queues and index are durable up to here: the end of a record
    border: int = 0  # a record begins here, some way before both: where the check after a start begins
    start: int = 0  # where the log began, if in the middle of a file
    file_bytes: int = 0
    queues: tuple[int, int] = (0, 0)  # of ``tally-queues``: which one, and how many of its bytes are durable

    def settle_at(self, synced: int, tail: int) -> SyncRecord:
        """With all durable up to ``synced``, and nothing in doubt."""
        return replace(self, synced=synced, tail=tail, end=synced, crc=0)


class SyncedFile:
    """``value`` is None when this store never was ours.

    Any thread may call. A slot is written while the other one is durable, so whoever writes keeps others waiting until
    it has synced.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        path = os.path.join(directory, SIDECAR)
        self._file = disk.open(path, create=True, direct=True, durable=True)
        self._beside = disk.beside("tally-synced")
        self._writing = threading.Lock()
        data = self._file.read(_FILE_BYTES, 0)
        self.value, self._old = _newest(data)
        self._newest_record: SyncRecord | None = None  # the newest record as it is in its slot
        if len(data) < _FILE_BYTES:  # real blocks: what makes a file grow costs more, and may find the disk full
            self._file.write([data.ljust(_FILE_BYTES, b"\0")], 0)

    def write(self, value: SyncRecord) -> None:
        """Replace the older record; durable when it returns."""
        with self._writing:
            self._write_slot(value)
            self._forget_old()

    def sync(self, end: int, tail: int, crc: int, sync_log: Callable[[], None]) -> None:
        """``sync_log()`` makes the log durable up to ``end``; it and its record are when this returns.

        Raises StorageError: nobody knows what is on the disk, and the log must stop.
        """
        with self._writing:
            record = replace(self._value(), end=end, crc=crc)
            try:
                self._beside.both(lambda: self._write_slot(record), sync_log)
            except DiskFull as error:  # which one tries again
                raise StorageError("a sync failed: nobody knows what is on the disk", **error.fields) from error
            self.value = self._value().settle_at(end, tail)

    def begin(self, offset: int) -> None:
        """A log without a byte goes on at this place. Durable when it returns."""
        self.write(replace(self._value(), dispatched=offset, border=offset, start=offset).settle_at(offset, offset))

    def cut(self, end: int) -> None:
        """The log ends here, at the end of a record, and what was durable behind it is none of it. Durable when it
        returns."""
        with self._writing:
            self._write_slot(self._value().settle_at(end, end))

    def note(self, dispatched: int, border: int, queues: tuple[int, int] | None = None) -> None:
        """What queues and index have; it also ends the doubt about the newest sync. Durable when it returns.

        ``queues``: how much of ``tally-queues`` is durable; see ``QueueStateFile.durable``.
        """
        with self._writing:
            value = self._value()
            self._write_slot(replace(value, dispatched=dispatched, border=border, queues=queues or value.queues))

    def note_queues(self, queues: tuple[int, int]) -> None:
        """That alone, when it changed. Durable when it returns."""
        with self._writing:
            if self._value().queues != queues:
                self._write_slot(replace(self._value(), queues=queues))

    def settle(self) -> None:
        """End the doubt about the newest sync, where there is one. Durable when it returns."""
        if self.in_doubt:
            value = self._value()
            self.note(value.dispatched, value.border)

    @property
    def in_doubt(self) -> bool:
        """Whether the file does not yet say that the newest sync returned."""
        return self.value != self._newest_record

    def close(self) -> None:
        self._beside.close()
        self._file.close()

    def _value(self) -> SyncRecord:
        assert self.value is not None, "recovery writes the first record"
        return self.value

    def _write_slot(self, value: SyncRecord) -> None:
        number = self.value.number + 1 if self.value else 1
        record = replace(value, number=number)
        self._file.write([_encode(record)], _SLOTS[number % len(_SLOTS)])
        self.value = self._newest_record = record  # not before: a write that failed is tried again in the same slot

    def _forget_old(self) -> None:
        """A record of the version before must not be found again, should both slots be damaged one day."""
        if self._old:
            self._file.write([bytes(BLOCK_BYTES)], 0)
            self._old = False


def read_synced(disk: Disk, directory: str) -> SyncRecord | None:
    """Returns the newest record, for readers that change nothing."""
    path = os.path.join(directory, SIDECAR)
    return _newest(read_file(disk, path))[0] if disk.exists(path) else None


def _newest(data: bytes) -> tuple[SyncRecord | None, bool]:
    """Returns the record with the highest number, and whether it is of the version before."""
    records = [record for at in _SLOTS if (record := _decode(data[at : at + BLOCK_BYTES])) is not None]
    if records:
        return max(records, key=lambda record: record.number), False
    old = [record for at in _OLD_SLOTS if (record := _decode_old(data[at : at + _OLD_RECORD.size + _CRC.size]))]
    return max(old, key=lambda record: record.number, default=None), bool(old)


def _encode(record: SyncRecord) -> bytes:
    packed = _RECORD.pack(
        _MAGIC,
        record.number,
        record.synced,
        record.tail,
        record.end,
        record.crc,
        record.dispatched,
        record.border,
        record.start,
        record.file_bytes,
    )
    queues = _QUEUES.pack(_QUEUES_MAGIC, *record.queues)
    return (packed + _CRC.pack(crc32c(packed)) + queues + _CRC.pack(crc32c(queues))).ljust(BLOCK_BYTES, b"\0")


def _decode(data: bytes) -> SyncRecord | None:
    if len(data) < _RECORD_BYTES or _CRC.unpack_from(data, _RECORD.size)[0] != crc32c(data[: _RECORD.size]):
        return None
    magic, *numbers = _RECORD.unpack_from(data)
    return replace(SyncRecord(*numbers), queues=_decode_queues(data[_RECORD_BYTES:])) if magic == _MAGIC else None


def _decode_queues(data: bytes) -> tuple[int, int]:
    """A version before had none."""
    if len(data) < _QUEUES.size + _CRC.size or _CRC.unpack_from(data, _QUEUES.size)[0] != crc32c(data[: _QUEUES.size]):
        return 0, 0
    magic, crc, durable = _QUEUES.unpack_from(data)
    return (crc, durable) if magic == _QUEUES_MAGIC else (0, 0)


def _decode_old(data: bytes) -> SyncRecord | None:
    size = _OLD_RECORD.size
    if len(data) < size + _CRC.size or _CRC.unpack_from(data, size)[0] != crc32c(data[:size]):
        return None
    magic, number, synced, dispatched, border, start, file_bytes = _OLD_RECORD.unpack_from(data)
    if magic != _OLD_MAGIC:
        return None
    return SyncRecord(number, synced, border, synced, 0, dispatched, border, start, file_bytes)
