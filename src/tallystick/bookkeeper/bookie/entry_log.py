"""Entry logs: entries sorted by (ledger, entry), stored frames for readers (``memtable.py``), written at a checkpoint.

A run of entries that a client reads one after another is one piece of the file, sent as it is. ``<id>.log``::

    magic "TALLYLG1" 8 | log id 8 | zeros 16 | stored frames … | zeros to a multiple of 4096
    frame      length 4 | header 4 | code 0 4 | ledger 8 | entry 8 | entry bytes            big-endian

Frames are grouped into chunks of about 32 KiB (never cutting a frame): one checksum, one read, one place in the cache.
``<id>.index``, little-endian, read whole at start::

    magic "TALLYIX1" 8 | log id 8 | log bytes 8 | entries 8 | chunks 4 | pieces 4 | ledgers 4
    each chunk's offset 8, then each chunk's CRC32C 4
    each piece: ledger 8 | page number 8 | first slot 4 | slots 4
    each ledger: ledger 8 | bytes 8
    each piece's locations, 8 each                 see index.py
    CRC32C of all before 4

A chunk that does not match its checksum is an I/O error for each entry in it, never "no such entry" (Q15).
"""

from __future__ import annotations

import contextlib
import os
import string
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, Disk, File, read_file

_LOG_MAGIC = b"TALLYLG1"
_INDEX_MAGIC = b"TALLYIX1"
_LOG_HEADER = struct.Struct(">8sQ16x")
_INDEX_HEADER = struct.Struct("<8sQQQIII")
_PAGE = struct.Struct("<qqII")
_SIZE = struct.Struct("<qQ")
_IDENTITY = struct.Struct(">qq")
_FLUSH_BYTES = 1024 * 1024


def log_path(directory: str, log_id: int) -> str:
    return os.path.join(directory, f"{log_id:010x}.log")


def index_path(directory: str, log_id: int) -> str:
    return os.path.join(directory, f"{log_id:010x}.index")


def log_of(name: str) -> int | None:
    """The log that a file of this name belongs to; None if it is not named so."""
    stem, _, ending = name.partition(".")
    return int(stem, 16) if ending in ("log", "index") and set(stem) <= set(string.hexdigits) else None


def remove_log(disk: Disk, directory: str, log_id: int) -> None:
    """Delete a log's files."""
    for path in (index_path(directory, log_id), log_path(directory, log_id)):
        if disk.exists(path):
            disk.unlink(path)


@dataclass(frozen=True)
class Piece:
    """Locations of one ledger's entries that share a page."""

    ledger: LedgerId
    page: int
    slot: int  # of the first location
    locations: array[int]


@dataclass(frozen=True)
class EntryLog:
    """What is known of one log without opening it."""

    id: int
    size: int  # of the file, in bytes
    entries: int
    chunks: array[int]  # offset of each chunk
    checksums: array[int]
    by_ledger: Mapping[LedgerId, int] = field(repr=False)  # bytes

    def chunk_of(self, offset: int) -> int:
        return bisect_right(self.chunks, offset) - 1

    def chunk_end(self, chunk: int) -> int:
        return self.chunks[chunk + 1] if chunk + 1 < len(self.chunks) else self.size

    def read_chunk(self, file: File, chunk: int) -> bytes:
        """Raises CorruptRecord."""
        start = self.chunks[chunk]
        data = file.read(self.chunk_end(chunk) - start, start)
        if len(data) != self.chunk_end(chunk) - start or crc32c(data) != self.checksums[chunk]:
            raise CorruptRecord("a part of an entry log is damaged", log=self.id, offset=start)
        return data


class LogWriter:
    """Write one log: ``add`` ledger by ledger in ascending order, then ``finish``; ``abandon`` after a failure."""

    def __init__(self, disk: Disk, directory: str, log_id: int, chunk_bytes: int) -> None:
        self._disk, self._directory, self._id, self._chunk_bytes = disk, directory, log_id, chunk_bytes
        self._file = disk.open(log_path(directory, log_id), create=True, direct=True)
        self._end = _LOG_HEADER.size  # where the next frame goes
        self._written = 0
        self._waiting: list[Buffer] = [_LOG_HEADER.pack(_LOG_MAGIC, log_id)]
        self._chunk: list[Buffer] = []
        self._chunk_size = 0
        self._chunks, self._checksums = array("Q"), array("I")
        self._entries = 0
        self._sizes: dict[LedgerId, int] = {}
        self.pieces: list[Piece] = []

    def add(self, ledger: LedgerId, entries: array[int], starts: array[int], frames: bytes) -> None:
        """Stored frames of ascending entries; ``starts`` are their offsets in ``frames``."""
        base = (self._id << index.OFFSET_BITS) + self._end
        locations = array("Q", [base + start for start in starts])
        self.pieces += [Piece(ledger, *page) for page in index.split(entries, locations)]
        self._sizes[ledger] = self._sizes.get(ledger, 0) + len(frames)
        self._entries += len(entries)
        view, position = memoryview(frames), 0
        while position < len(frames):
            at = bisect_left(starts, position + self._chunk_bytes - self._chunk_size)
            stop = starts[at] if at < len(starts) else len(frames)
            if not self._chunk:
                self._chunks.append(self._end)
            self._chunk.append(view[position:stop])
            self._chunk_size += stop - position
            self._end += stop - position
            position = stop
            if self._chunk_size >= self._chunk_bytes:
                self._seal()

    def _seal(self) -> None:
        checksum = 0
        for part in self._chunk:
            checksum = crc32c(part, checksum)
        self._checksums.append(checksum)
        self._waiting += self._chunk
        self._chunk, self._chunk_size = [], 0
        if self._end - self._written >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write what makes whole blocks."""
        rest, kept = (self._end - self._written) % BLOCK_BYTES, list[Buffer]()
        while rest:
            part = memoryview(self._waiting.pop())
            cut = max(0, len(part) - rest)
            rest -= len(part) - cut
            kept.insert(0, part[cut:])
            if cut:
                self._waiting.append(part[:cut])
        self._written += self._file.write(self._waiting, self._written)
        self._waiting = kept

    def finish(self) -> EntryLog:
        """Durable under its name when this returns."""
        if self._chunk:
            self._seal()
        size = self._end
        padding = bytes(-size % BLOCK_BYTES)
        self._waiting.append(padding)
        self._end += len(padding)
        self._flush()
        self._file.sync()
        self._file.close()
        log = EntryLog(self._id, size, self._entries, self._chunks, self._checksums, self._sizes)
        file = self._disk.open(index_path(self._directory, self._id), create=True)
        try:
            file.write([_encode_index(log, self.pieces)], 0)
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self._directory)
        return log

    def abandon(self) -> None:
        """Give the space back; a restart would delete the files as well."""
        with contextlib.suppress(StorageError):
            self._file.close()
            remove_log(self._disk, self._directory, self._id)


def _encode_index(log: EntryLog, pieces: list[Piece]) -> bytes:
    counts = len(log.chunks), len(pieces), len(log.by_ledger)
    body = b"".join(
        (
            _INDEX_HEADER.pack(_INDEX_MAGIC, log.id, log.size, log.entries, *counts),
            _little(log.chunks),
            _little(log.checksums),
            *(_PAGE.pack(piece.ledger, piece.page, piece.slot, len(piece.locations)) for piece in pieces),
            *(_SIZE.pack(ledger, size) for ledger, size in log.by_ledger.items()),
            *(_little(piece.locations) for piece in pieces),
        )
    )
    return body + crc32c(body).to_bytes(4, "little")


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = values[:]
    swapped.byteswap()
    return swapped.tobytes()


def _from_little(kind: str, data: memoryview) -> array[int]:
    values = array(kind, bytes(data))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def load_index(disk: Disk, directory: str, log_id: int) -> tuple[EntryLog, list[Piece]]:
    """Raises CorruptRecord."""
    path = index_path(directory, log_id)
    if not disk.exists(path):
        raise CorruptRecord("an index file is missing", path=path)
    data = read_file(disk, path)
    body = memoryview(data)[:-4]
    if len(data) < _INDEX_HEADER.size + 4 or crc32c(body) != int.from_bytes(data[-4:], "little"):
        raise CorruptRecord("an index file is damaged", path=path)
    magic, found, size, entries, chunks, pages, ledgers = _INDEX_HEADER.unpack_from(body)
    if magic != _INDEX_MAGIC or found != log_id:
        raise CorruptRecord("this is not the index of this entry log", path=path)
    bounds = [_INDEX_HEADER.size]
    for length in (8 * chunks, 4 * chunks, _PAGE.size * pages, _SIZE.size * ledgers):
        bounds.append(bounds[-1] + length)
    offsets, sums, heads, sizes = (body[start:stop] for start, stop in pairwise(bounds))
    log = EntryLog(
        log_id, size, entries, _from_little("Q", offsets), _from_little("I", sums), dict(_SIZE.iter_unpack(sizes))
    )
    return log, list(_pieces(heads, body[bounds[-1] :]))


def _pieces(heads: memoryview, locations: memoryview) -> Iterator[Piece]:
    position = 0
    for ledger, page, slot, count in _PAGE.iter_unpack(heads):
        yield Piece(ledger, page, slot, _from_little("Q", locations[position : position + 8 * count]))
        position += 8 * count


class EntryLogs:
    """The logs that count, their open files, and the chunks read last."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings) -> None:
        self._disk, self._directory, self._settings = disk, directory, settings
        self.logs: dict[int, EntryLog] = {}
        self._files: OrderedDict[int, File] = OrderedDict()
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._cached_bytes = 0

    def load(self, log_id: int) -> list[Piece]:
        """Know a log that was written before; where its entries are. Raises CorruptRecord."""
        log, pieces = load_index(self._disk, self._directory, log_id)
        path = log_path(self._directory, log_id)
        if not self._disk.exists(path):
            raise CorruptRecord("an entry log is missing", path=path)
        self.logs[log_id] = log
        if self._file(log_id).size() < log.size:
            raise CorruptRecord("an entry log is shorter than its index says", path=path)
        return pieces

    def entry(self, location: index.Location, ledger: LedgerId, entry: EntryId) -> bytes:
        """The entry bytes at a location. Raises StorageError, CorruptRecord when something else is there."""
        chunk, start = self._locate(location)
        stop = start + 4 + int.from_bytes(chunk[start : start + 4], "big")
        if chunk[start + 12 : start + 28] != _IDENTITY.pack(ledger, entry) or stop > len(chunk):
            raise CorruptRecord("an entry log has another entry than its index says", ledger=ledger, entry=entry)
        return chunk[start + 28 : stop]

    def frames(
        self, pages: index.Pages, ledger: LedgerId, first: EntryId, count: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """Stored frames of ``first`` and of entries after it that fit: all of its chunk, if they are as long.

        Raises StorageError.
        """
        location = index.get(pages, first)
        chunk, start = self._locate(location)
        size = 4 + int.from_bytes(chunk[start : start + 4], "big")
        count = min(count, 1 + (len(chunk) - start) // size)
        found = index.neighbours(pages, first, count, location - start + min(len(chunk), start + max_bytes))
        if found == 0 or chunk[start + 12 : start + 28] != _IDENTITY.pack(ledger, first):
            return b"", 0
        last = index.get(pages, first + found - 1) - location + start
        stop = last + 4 + int.from_bytes(chunk[last : last + 4], "big")
        if stop > start + max_bytes and found > 1:
            stop, found = last, found - 1
        return chunk[start:stop], found

    def _locate(self, location: index.Location) -> tuple[bytes, int]:
        """The chunk that holds a location, checked, and the place in it."""
        log = self.logs[location >> index.OFFSET_BITS]
        offset = location & index.OFFSET_MASK
        number = log.chunk_of(offset)
        key = (log.id, number)
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = self._chunks[key] = log.read_chunk(self._file(log.id), number)
            self._cached_bytes += len(chunk)
            while self._cached_bytes > self._settings.read_cache_bytes and len(self._chunks) > 1:
                self._cached_bytes -= len(self._chunks.popitem(last=False)[1])
        else:
            self._chunks.move_to_end(key)
        return chunk, offset - log.chunks[number]

    def _file(self, log_id: int) -> File:
        file = self._files.get(log_id)
        if file is None:
            file = self._files[log_id] = self._disk.open(log_path(self._directory, log_id))
            if len(self._files) > self._settings.open_logs:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(log_id)
        return file

    def remove(self, log_id: int) -> None:
        """Nothing refers to this log any more. Its files stay until they are deleted."""
        del self.logs[log_id]
        if (file := self._files.pop(log_id, None)) is not None:
            file.close()
        for key in [key for key in self._chunks if key[0] == log_id]:
            self._cached_bytes -= len(self._chunks.pop(key))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
