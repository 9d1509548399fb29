"""Where the entries of an entry log are: ``<id>.index``, little-endian, read whole at start::

    magic "TALLYIX1" 8 | log id 8 | log bytes 8 | entries 8 | chunks 4 | pieces 4 | ledgers 4
    each chunk's offset 8, then each chunk's CRC32C 4
    each piece: ledger 8 | page number 8 | first slot 4 | slots 4
    each ledger: ledger 8 | bytes 8
    each piece's locations, 8 each                 see index.py
    CRC32C of all before 4

"1" in the magic is the version of both files of a log; all versions have the magic and the last CRC in these places.
"""

from __future__ import annotations

import os
import string
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tallystick.bookkeeper.bookie.formats import of_a_newer_version, version_of
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.codec.chunks import count_good_chunks
from tallystick.errors import CorruptRecord
from tallystick.runtime.disk import Disk, File, read_file

_NAME, _VERSION = b"TALLYIX", 1
LOG_MAGIC = b"TALLYLG1"
LOG_HEADER = struct.Struct(">8sQ16x")
_INDEX_HEADER = struct.Struct("<8sQQQIII")
_PAGE = struct.Struct("<qqII")
_SIZE = struct.Struct("<qQ")


def log_path(directory: str, log_id: int) -> str:
    return os.path.join(directory, f"{log_id:010x}.log")


def index_path(directory: str, log_id: int) -> str:
    return os.path.join(directory, f"{log_id:010x}.index")


def log_of(name: str) -> int | None:
    """Return the log that a file of this name belongs to, None if it is not named so."""
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
    """One log, as its index describes it."""

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
        """Read and check a chunk. Raises CorruptRecord."""
        return self.read_chunks(file, chunk, chunk)

    def read_chunks(self, file: File, first: int, last: int) -> bytes:
        """Read and check some chunks, up to the first that is damaged. Raises CorruptRecord if that is ``first``."""
        bounds, count = self.chunks[first : last + 2], last + 1 - first
        if len(bounds) == count:
            bounds.append(self.size)
        data = file.read(bounds[-1] - bounds[0], bounds[0])
        good = count_good_chunks(data, bounds, self.checksums[first : last + 1])
        if not good:
            raise CorruptRecord("a part of an entry log is damaged", log=self.id, offset=bounds[0])
        return data if good == count else data[: bounds[good] - bounds[0]]


def encode_index(log: EntryLog, pieces: list[Piece]) -> bytes:
    """Encode the content of a log's index file."""
    counts = len(log.chunks), len(pieces), len(log.by_ledger)
    body = b"".join(
        (
            _INDEX_HEADER.pack(_NAME + b"%d" % _VERSION, log.id, log.size, log.entries, *counts),
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
    """Read a log's index file. Raises CorruptRecord, and StorageError for the index of a newer version."""
    path = index_path(directory, log_id)
    if not disk.exists(path):
        raise CorruptRecord("an index file is missing", path=path)
    data = read_file(disk, path)
    body = memoryview(data)[:-4]
    if len(data) < _INDEX_HEADER.size + 4 or crc32c(body) != int.from_bytes(data[-4:], "little"):
        raise CorruptRecord("an index file is damaged", path=path)
    magic, stored_id, size, entries, chunks, pages, ledgers = _INDEX_HEADER.unpack_from(body)
    version = version_of(magic, _NAME)
    if version is not None and version != _VERSION:
        raise of_a_newer_version("an entry log", path, 0, version=version)
    if version is None or stored_id != log_id:
        raise CorruptRecord("this is not the index of this entry log", path=path)
    bounds = [_INDEX_HEADER.size]
    for length in (8 * chunks, 4 * chunks, _PAGE.size * pages, _SIZE.size * ledgers):
        bounds.append(bounds[-1] + length)
    offsets, sums, heads, sizes = (body[start:stop] for start, stop in pairwise(bounds))
    log = EntryLog(
        log_id, size, entries, _from_little("Q", offsets), _from_little("I", sums), dict(_SIZE.iter_unpack(sizes))
    )
    return log, list(_pieces(heads, body[bounds[-1] :]))


def chunk_hints(disk: Disk, directory: str, log_id: int) -> list[tuple[int, int, int]]:
    """Return what an index file, be it damaged, says of a log's chunks: start, stop, checksum. Each may be wrong."""
    path = index_path(directory, log_id)
    data = read_file(disk, path) if disk.exists(path) else b""
    if len(data) < _INDEX_HEADER.size:
        return []
    _, _, size, _, count, _, _ = _INDEX_HEADER.unpack_from(data)
    sums_at = _INDEX_HEADER.size + 8 * count
    if not count or len(data) < sums_at + 4 * count:
        return []
    starts = _from_little("Q", memoryview(data)[_INDEX_HEADER.size : sums_at])
    sums = _from_little("I", memoryview(data)[sums_at : sums_at + 4 * count])
    return list(zip(starts, [*starts[1:], size], sums, strict=True))


def _pieces(heads: memoryview, locations: memoryview) -> Iterator[Piece]:
    position = 0
    for ledger, page, slot, count in _PAGE.iter_unpack(heads):
        yield Piece(ledger, page, slot, _from_little("Q", locations[position : position + 8 * count]))
        position += 8 * count
