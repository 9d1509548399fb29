"""The CommitLog: all messages of a broker, one record after another in files of one size (H11).

A record never spans two files: a file without room for the next one ends with a blank, and so ends the append. Appends
are one ``pwritev`` into a file made beforehand; reads are views of the mapped file. What was written in vain (a full
disk) is overwritten with zeros, so that nobody takes it for messages later. Source: ``CommitLog``, layout:
codec/records.py.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from tallystick.codec.checksum import crc32c
from tallystick.codec.records import BLANK, BLANK_BYTES, BORN_V6, SMALLEST, V1, V2, encode_blank
from tallystick.errors import DiskFull, OffsetMismatch, StorageError
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.synced import SyncedFile
from tallystick.runtime.disk import Buffer

_EMPTY = memoryview(b"")
_HEAD = struct.Struct(">II20xQ")  # of a record: its size, its magic, its physical offset
_STORED_AT, _V6_EXTRA = 56, 12
_CRC_BYTES = 1024 * 1024  # at once; the interpreter is free meanwhile


class CommitLog:
    """``end`` is after the last byte, ``flushed`` after the last synced one, ``start`` where it began, if mid-file.

    ``border`` is the last place known to be between two records: the bytes of another copy come in pieces.
    """

    def __init__(self, files: FileQueue, end: int, start: int, sidecar: SyncedFile) -> None:
        """All up to ``end`` is durable, and a record ends there. ``files`` are loaded."""
        self.files, self.end, self.flushed, self.start = files, end, end, start
        self.border, self._sidecar = end, sidecar
        self._preparing = threading.Lock()  # a log without a byte may begin elsewhere, and its reserve is none then
        self._syncing = threading.Lock()  # of the log and its sidecar: the end stays where it is meanwhile
        self.failed: StorageError | None = None  # of a write or a sync: nobody knows what is on the disk

    @property
    def first(self) -> int:
        return max(self.files.first, self.start)

    @property
    def room(self) -> int:
        """The bytes left in the file that has ``end``."""
        size = self.files.file_bytes
        return size - self.end % size

    def append(self, records: Sequence[Buffer], size: int) -> None:
        """Append records that fit, made for ``end``. Raises DiskFull, or StorageError when the log must stop."""
        self._write(records, size)
        self.border = self.end

    def _write(self, records: Sequence[Buffer], size: int) -> None:
        try:
            self.files.write(records, self.end)
        except DiskFull:
            self._blot(size)
            raise
        except StorageError as error:
            self.failed = error
            raise
        self.end += size

    def end_file(self) -> None:
        """Go on in the next file. Raises as ``append`` does; then nothing happened."""
        rest = self.room
        self._prepare(self.end + rest)
        self._write([encode_blank(rest)], BLANK_BYTES)
        self.end += rest - BLANK_BYTES
        self.border = self.end

    def append_raw(self, offset: int, data: Buffer) -> int:
        """Append bytes of another copy of this log, exactly at the end; an empty log begins anywhere. Returns the end.

        Raises OffsetMismatch, DiskFull, or StorageError when the log must stop; part of it may have been taken.
        """
        if offset != self.end and (self.files.files and self.end != self.first):
            raise OffsetMismatch("these bytes are not the next ones of the log", offset=offset, end=self.end)
        if offset != self.end:
            self._begin_at(offset)
        view = memoryview(data)
        while len(view):
            part = view[: self.room]
            self._write([part], len(part))
            view = view[len(part) :]
        return self.end

    def record_parsed(self, offset: int) -> None:
        """A record that was parsed ends at ``offset``."""
        self.border = max(self.border, offset)

    def _begin_at(self, offset: int) -> None:
        if offset < 0:
            raise OffsetMismatch("no log begins before its start", offset=offset)
        with self._preparing:
            if self.files.files:
                self.files.clear()
            self._sidecar.begin(offset)
            self.end = self.flushed = self.start = self.border = offset

    def _blot(self, size: int) -> None:
        """Write zeros over what a failed write may have left behind the end."""
        end = min(self.end + size, self.files.limit)
        if end <= self.end:
            return
        try:
            self.files.write([bytes(end - self.end)], self.end)
        except StorageError as error:
            self.failed = error  # unless it is all zeros, the next start may find messages nobody was promised

    def slice(self, offset: int, limit: int) -> memoryview:
        """Returns at most ``limit`` bytes from ``offset`` in one file; none at the end and outside the log."""
        file = self.files.find(offset) if self.start <= offset < self.end else None  # none has what is before ``first``
        if file is None or (view := file.view or self.files.view_of(file)) is None:
            return _EMPTY
        at, end, file_bytes = offset - file.start, self.end - file.start, self.files.file_bytes
        stop = at + limit
        if stop > end:
            stop = end
        return view[at : stop if stop < file_bytes else file_bytes]

    def record(self, offset: int, size: int = 0) -> memoryview | None:
        """Returns the record at ``offset``; None if there is none (or none of that ``size``, if given)."""
        record = self.slice(offset, size or SMALLEST)
        if len(record) < SMALLEST:
            return None
        record_size, magic, physical = _HEAD.unpack_from(record)
        if magic not in (V1, V2) or physical != offset or record_size < SMALLEST or size not in (0, record_size):
            return None
        if len(record) != record_size:
            record = self.slice(offset, record_size)
        return record if len(record) == record_size else None

    def is_partial(self, offset: int) -> bool:
        """Returns whether behind ``offset``, where a record ends, is a part of one or of a blank, or nothing."""
        rest, room = self.end - offset, self.files.file_bytes - offset % self.files.file_bytes
        if rest < BLANK_BYTES:
            return True
        head = self.slice(offset, BLANK_BYTES)
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        return magic in (V1, V2, BLANK) and rest < size <= room

    def stored_ms(self, offset: int, size: int = 0) -> int:
        """Returns the store time of the record at ``offset``; -1 if there is none."""
        record = self.record(offset, size)
        if record is None:
            return -1
        at = _STORED_AT + (_V6_EXTRA if int.from_bytes(record[36:40], "big") & BORN_V6 else 0)
        return int.from_bytes(record[at : at + 8], "big", signed=True)

    def flush(self) -> int:
        """Sync what is written now. Returns the new ``flushed``; a failure leaves it where it was.

        Raises StorageError: the log must stop, a later sync that succeeds would prove nothing.
        """
        with self._syncing:
            return self._flush()

    def _flush(self) -> int:
        border, end = self.border, self.end  # in this order: no border that is read is behind an end read later
        if self.failed:
            raise StorageError("the store stopped after a disk error; find its reason and start again")
        if end > self.flushed:
            try:
                crc = self._crc(self.flushed, end)
                self._sidecar.sync(end, border, crc, lambda: self.files.sync(self.flushed, end))
            except StorageError as error:
                self.failed = error
                raise
            self.flushed = end
        return self.flushed

    def cut(self, end: int) -> None:
        """Durably forget the part of a record that is behind ``end``, the end of one; all before it is synced. On any
        thread, while nobody appends or reads there. Raises StorageError: the log must stop.
        """
        with self._syncing:
            size = self.end - end
            self.end = self.flushed = self.border = end
            try:
                self._sidecar.cut(end)  # first: a crash between the two must not find damage
                self.files.write([bytes(size)], end)
                self.files.sync(end, end + size)
            except StorageError as error:
                self.failed = error
                raise

    def _crc(self, start: int, end: int) -> int:
        crc = 0
        while start < end:
            piece = self.slice(start, min(_CRC_BYTES, end - start))
            if not piece:
                raise StorageError("the log is not there up to its end", offset=start, end=end)
            crc = crc32c(piece, crc)
            start += len(piece)
        return crc

    def prepare_next(self) -> None:
        """Make the file after this one. Raises DiskFull."""
        with self._preparing:
            self._prepare(self.end)
            self._prepare(self.end + self.room)

    def _prepare(self, offset: int) -> None:
        try:
            self.files.prepare(offset)
        except DiskFull:
            raise
        except StorageError as error:
            self.failed = error
            raise
