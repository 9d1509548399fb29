"""Make the index of an entry log anew, from the log, where its file is missing or damaged.

A chunk of the log that matches the checksum in the damaged file is *proven*: both are as they were written. Between
proven chunks the frames are read one after another, as far as they make sense. What they say is taken, but entries may
lack there: so all ledgers that can have some between two proven chunks are in *doubt*, and go into limbo. Nothing that
was held is denied (Q15), and what lacks is fetched from the other replicas. Mostly nothing is in doubt: a damaged place
of an index is seldom in its checksums.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.log_index import LOG_HEADER, LOG_MAGIC, EntryLog, Piece, chunk_hints, log_path
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.checksum import crc32c
from tallystick.codec.pages import page_pieces
from tallystick.errors import CorruptRecord
from tallystick.runtime.disk import BLOCK_BYTES, Disk, File

_WINDOW = 1024 * 1024
_LONGEST_CHUNK = 64 * _WINDOW  # it ends with the first frame that makes it long enough, and frames have a bound
_HEAD = 28  # of a frame, before its entry
_IDS = slice(12, 28)
_FIXED = slice(4, 12)
_VERSION = bytes.fromhex("0202000000000000")  # what each frame has there
_LEAST, _MOST = (-1 << 63, -1), ((1 << 63) - 1, -1)

Key = tuple[LedgerId, EntryId]


@dataclass(frozen=True)
class RebuiltIndex:
    """What the log has, and the ``doubts``: spans of ledger ids, first and last, which may have more there."""

    log: EntryLog
    pieces: list[Piece] = field(repr=False)
    doubts: tuple[tuple[LedgerId, LedgerId], ...]

    def may_lack(self, ledger: LedgerId) -> bool:
        """Return whether the log may have had entries of a ledger that were not found."""
        return any(first <= ledger <= last for first, last in self.doubts)


def rebuild_index(disk: Disk, directory: str, log_id: int, chunk_bytes: int) -> RebuiltIndex:
    """Read a whole log. Raises CorruptRecord if it is missing, or nothing says that it is this one."""
    path = log_path(directory, log_id)
    if not disk.exists(path):
        raise CorruptRecord("an entry log is missing, and its index is damaged", path=path)
    file = disk.open(path)
    try:
        return _Rebuilding(file, log_id, chunk_bytes, _proven(file, disk, directory, log_id), path).run()
    finally:
        file.close()


@dataclass(frozen=True)
class _Chunk:
    start: int
    stop: int
    checksum: int
    first: Key
    is_last: bool  # of the log, as the damaged index says


def _proven(file: File, disk: Disk, directory: str, log_id: int) -> list[_Chunk]:
    """Return the chunks of a damaged index that match what the log has, ascending."""
    proven, end = list[_Chunk](), LOG_HEADER.size
    hints = chunk_hints(disk, directory, log_id)
    for number, (start, stop, checksum) in enumerate(hints, 1):
        if end <= start < stop <= file.size() and stop - start <= _LONGEST_CHUNK:
            data = file.read(stop - start, start)
            if crc32c(data) == checksum and (first := _key(data, 0, len(data))) is not None:
                proven.append(_Chunk(start, stop, checksum, first, number == len(hints)))
                end = stop
    return proven


def _key(data: bytes, start: int, stop: int) -> Key | None:
    """Return the ids of the frame at this place, None if there is none that ends by ``stop``."""
    end = start + 4 + int.from_bytes(data[start : start + 4], "big")
    head = data[start : start + _HEAD + 16]
    if end > stop or end - start < _HEAD + ENTRY_HEADER.size or head[_FIXED] != _VERSION or head[_IDS] != head[_HEAD:]:
        return None
    return int.from_bytes(head[12:20], "big", signed=True), int.from_bytes(head[20:28], "big", signed=True)


class _Rebuilding:
    """One log, read from its begin to its end."""

    def __init__(self, file: File, log_id: int, chunk_bytes: int, proven: list[_Chunk], path: str) -> None:
        self._file, self._id, self._chunk_bytes, self._proven, self._path = file, log_id, chunk_bytes, proven, path
        self._chunks, self._checksums = array("Q"), array("I")
        self._sizes: dict[LedgerId, int] = {}
        self._pieces: list[Piece] = []
        self._ledger: LedgerId | None = None  # whose frames are read
        self._entries, self._locations, self._count = array("q"), array("Q"), 0
        self._last: Key = _LEAST

    def run(self) -> RebuiltIndex:
        magic, stored_id = LOG_HEADER.unpack(self._file.read(LOG_HEADER.size, 0).ljust(LOG_HEADER.size, b"\0"))
        if (magic, stored_id) != (LOG_MAGIC, self._id) and not self._proven:
            raise CorruptRecord("an entry log and its index are damaged", path=self._path)
        doubts, end = list[tuple[LedgerId, LedgerId]](), LOG_HEADER.size
        for chunk in self._proven:
            if end < chunk.start:
                before = self._last[0]
                self._span(end, chunk.start, chunk.first)
                doubts.append((before, chunk.first[0]))
            self._take_proven(chunk)
            end = chunk.stop
        if not self._proven or not self._proven[-1].is_last:
            doubts.append((self._last[0], _MOST[0]))
            end = self._span(end, self._file.size(), _MOST, is_tail=True)
        self._end_ledger()
        log = EntryLog(self._id, end, self._count, self._chunks, self._checksums, self._sizes)
        return RebuiltIndex(log, self._pieces, tuple(doubts))

    def _take_proven(self, chunk: _Chunk) -> None:
        data, start = self._file.read(chunk.stop - chunk.start, chunk.start), 0
        while start < len(data):
            key = _key(data, start, len(data))
            if key is None or key <= self._last:
                raise CorruptRecord("an entry log has no entries where it has their checksum", path=self._path)
            start = self._take(key, chunk.start + start, data, start)
        self._chunks.append(chunk.start)
        self._checksums.append(chunk.checksum)

    def _take(self, key: Key, offset: int, data: bytes, start: int) -> int:
        """Enter a frame. Returns where in ``data`` it ends."""
        size = 4 + int.from_bytes(data[start : start + 4], "big")
        if key[0] != self._ledger:
            self._end_ledger()
            self._ledger = key[0]
        self._entries.append(key[1])
        self._locations.append((self._id << index.OFFSET_BITS) + offset)
        self._sizes[key[0]] = self._sizes.get(key[0], 0) + size
        self._count += 1
        self._last = key
        return start + size

    def _end_ledger(self) -> None:
        if self._ledger is not None:
            self._pieces += [Piece(self._ledger, *page) for page in page_pieces(self._entries, self._locations, 0)]
        self._entries, self._locations = array("q"), array("Q")

    def _span(self, start: int, stop: int, before: Key, *, is_tail: bool = False) -> int:
        """Take the frames between two places that are proven, of keys below ``before``, and what makes no sense as it
        is. Returns where the last of it ends."""
        end = start
        for data, offset, frames_end in self._windows(start, stop, before):
            at = 0
            while at < frames_end:
                first = at
                while at < frames_end and at - first < self._chunk_bytes:
                    key = _key(data, at, len(data))
                    assert key is not None, "it was looked at"
                    at = self._take(key, offset + at, data, at)
                self._seal(offset + first, data[first:at])
            end = offset + frames_end
        rest = stop - end
        if is_tail and rest < BLOCK_BYTES and not any(self._file.read(rest, end)):
            return end  # it was written in whole blocks
        while end < stop:
            data = self._file.read(min(_WINDOW, stop - end), end)
            self._seal(end, data)
            end += len(data)
        return end

    def _windows(self, start: int, stop: int, before: Key) -> Iterator[tuple[bytes, int, int]]:
        """Yield bytes, where they are, and how many of them are whole frames in order; end where there is none."""
        size = _WINDOW
        while start < stop:
            data, at, last = self._file.read(min(size, stop - start), start), 0, self._last
            while (key := _key(data, at, len(data))) is not None and last < key < before:
                last, at = key, at + 4 + int.from_bytes(data[at : at + 4], "big")
            if at:
                yield data, start, at
                start, size = start + at, _WINDOW
            elif len(data) < stop - start and size < _LONGEST_CHUNK:
                size *= 2  # a long frame
            else:
                return

    def _seal(self, start: int, data: bytes) -> None:
        self._chunks.append(start)
        self._checksums.append(crc32c(data))
