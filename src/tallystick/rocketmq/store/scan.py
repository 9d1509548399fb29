"""Reads the CommitLog's files record by record, for recovery and for the check of a store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.codec.records import SMALLEST, V1, V2, RecordRun, Stop, scan_records
from tallystick.rocketmq.store.files import FileQueue

_CHUNK_BYTES = 4 * 1024 * 1024
_MAGICS = tuple(struct.pack(">I", magic) for magic in (V1, V2))
_MAGIC_AT = 4


@dataclass(frozen=True)
class Chunk:
    """Records from ``offset`` on. ``run.stop`` is END, except in the last chunk before something that is no record."""

    offset: int
    run: RecordRun
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + self.run.end


def chunks(files: FileQueue, offset: int) -> Iterator[Chunk]:
    """Yields the records from ``offset`` over all files, with their CRCs checked. The last chunk tells where they end
    and why: END is the end of the last file, DAMAGED includes a record that claims to be longer than its file."""
    want = _CHUNK_BYTES
    while offset < files.limit:
        file_end = offset + files.file_bytes - offset % files.file_bytes
        data = files.read(offset, min(want, file_end - offset))
        run = scan_records(data, offset, verify=True)
        whole = len(data) == file_end - offset
        if run.stop is Stop.BLANK and _says(data, run.end) != file_end - offset - run.end:
            run.stop = Stop.DAMAGED
        if run.stop is Stop.PARTIAL and whole:
            run.stop = Stop.DAMAGED
        if run.stop is Stop.PARTIAL and not len(run):
            want *= 2
            continue
        want = _CHUNK_BYTES
        yield Chunk(offset, run, data)
        if run.stop in (Stop.DAMAGED, Stop.NOTHING):
            return
        offset = file_end if run.stop is Stop.BLANK else offset + run.end


def claimed_size(files: FileQueue, offset: int) -> int | None:
    """Returns the size that the record at ``offset`` claims; None if nothing there looks like one of this place."""
    head = files.read(offset, SMALLEST)
    if len(head) < SMALLEST or head[_MAGIC_AT : _MAGIC_AT + 4] not in _MAGICS:
        return None
    return _says(head, 0) if int.from_bytes(head[28:36], "big") == offset else None


def find_record(files: FileQueue, offset: int) -> int | None:
    """Returns the first whole record behind ``offset`` that has the right CRC and is in its place."""
    position = offset + 1
    while position < files.limit:
        file_end = position + files.file_bytes - position % files.file_bytes
        data = files.read(position, min(_CHUNK_BYTES, file_end - position))
        for at in _candidates(data):
            record_offset = position + at - _MAGIC_AT
            size = claimed_size(files, record_offset) if record_offset > offset else None
            if size is not None and len(scan_records(files.read(record_offset, size), record_offset, verify=True)):
                return record_offset
        # A magic number may lie over the border of two chunks.
        position = file_end if position + len(data) == file_end else position + len(data) - _MAGIC_AT
    return None


def _candidates(data: bytes) -> Iterator[int]:
    for magic in _MAGICS:
        at = -1
        while (at := data.find(magic, at + 1)) >= 0:
            yield at


def _says(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big")
