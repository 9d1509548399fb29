"""Entry logs: entries sorted by (ledger, entry), stored frames for readers (``memtable.py``), written at a checkpoint.

A run of entries that a client reads one after another is one piece of the file, sent as it is. ``<id>.log``::

    magic "TALLYLG1" 8 | log id 8 | zeros 16 | stored frames … | zeros to a multiple of 4096
    frame      length 4 | header 4 | code 0 4 | ledger 8 | entry 8 | entry bytes            big-endian

Frames are grouped into chunks of about 16 KiB (never cutting a frame): one checksum, one place in the cache.
Where they are is in the log's index, a file of its own (``log_index.py``).

A chunk that does not match its checksum is an I/O error for each entry in it, never "no such entry" (Q15).
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.index_rebuild import RebuiltIndex, rebuild_index
from tallystick.bookkeeper.bookie.log_index import (
    LOG_HEADER,
    LOG_MAGIC,
    EntryLog,
    Piece,
    encode_index,
    index_path,
    load_index,
    log_path,
    remove_log,
)
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.codec.chunks import cut_chunks
from tallystick.codec.pages import page_pieces
from tallystick.codec.stored import LogPiece, picked_responses
from tallystick.errors import CorruptRecord, StorageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, Disk, File

_IDENTITY = struct.Struct(">qq")
_FLUSH_BYTES = 1024 * 1024
_SCATTERED_ENTRIES = 256  # looked for at once, of those that do not lie together
_CLOSE_BYTES = 8 * 1024  # of a log for each of them: they lie close together
_SCATTERED_BYTES = 256 * 1024  # and so much is read for them at once: each chunk may be a way of the disk's head


class LogWriter:
    """Write one log: ``add`` ledger by ledger in ascending order, then ``finish``; ``abandon`` after a failure."""

    def __init__(self, disk: Disk, directory: str, log_id: int, chunk_bytes: int) -> None:
        self._disk, self._directory, self._id, self._chunk_bytes = disk, directory, log_id, chunk_bytes
        self._file = disk.open(log_path(directory, log_id), create=True, direct=True)
        self._end = LOG_HEADER.size  # where the next frame goes
        self._written = 0
        self._waiting: list[Buffer] = [LOG_HEADER.pack(LOG_MAGIC, log_id)]
        self._chunks, self._checksums = array("Q", (self._end,)), array("I")  # the last one is not done
        self._crc = 0  # of what that has
        self._entries = 0
        self._sizes: dict[LedgerId, int] = {}
        self.pieces: list[Piece] = []

    def add(self, ledger: LedgerId, entries: array[int], starts: array[int], frames: bytes) -> None:
        """Add stored frames of ascending entries; ``starts`` are their offsets in ``frames``."""
        base = (self._id << index.OFFSET_BITS) + self._end
        self.pieces += [Piece(ledger, *page) for page in page_pieces(entries, starts, base)]
        self._sizes[ledger] = self._sizes.get(ledger, 0) + len(frames)
        self._entries += len(entries)
        ends, checksums, self._crc = cut_chunks(
            frames, starts, self._chunk_bytes, self._end - self._chunks[-1], self._crc
        )
        self._chunks.extend([self._end + end for end in ends])
        self._checksums.extend(checksums.tolist())
        self._waiting.append(frames)
        self._end += len(frames)
        if self._end - self._written >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write the waiting bytes that make whole blocks."""
        rest, rest_parts = (self._end - self._written) % BLOCK_BYTES, list[Buffer]()
        while rest:
            part = memoryview(self._waiting.pop())
            cut = max(0, len(part) - rest)
            rest -= len(part) - cut
            rest_parts.insert(0, part[cut:])
            if cut:
                self._waiting.append(part[:cut])
        self._written += self._file.write(self._waiting, self._written)
        self._waiting = rest_parts

    def finish(self) -> EntryLog:
        """Make the log durable under its name, and its index after it."""
        if self._end > self._chunks[-1]:
            self._checksums.append(self._crc)
        else:
            self._chunks.pop()
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
            file.write([encode_index(log, self.pieces)], 0)
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


class EntryLogs:
    """The logs that count, their open files, and the chunks read last."""

    def __init__(self, disk: Disk, directory: Callable[[int], str], settings: StorageSettings) -> None:
        """``directory`` gives the folder of a log."""
        self._disk, self._directory, self._settings = disk, directory, settings
        self.logs: dict[int, EntryLog] = {}
        self.rebuilt: list[RebuiltIndex] = []  # of those that were read: their files are still damaged
        self._files: OrderedDict[int, File] = OrderedDict()
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._cached_bytes = 0

    def load(self, log_id: int) -> list[Piece]:
        """Know a log that was written before. Returns where its entries are; raises CorruptRecord.

        A damaged index is made anew in memory; ``write_rebuilt`` later."""
        directory = self._directory(log_id)
        try:
            log, pieces = load_index(self._disk, directory, log_id)
        except CorruptRecord:
            made = rebuild_index(self._disk, directory, log_id, self._settings.chunk_bytes)
            self.rebuilt.append(made)
            log, pieces = made.log, made.pieces
        path = log_path(self._directory(log_id), log_id)
        if not self._disk.exists(path):
            raise CorruptRecord("an entry log is missing", path=path)
        self.logs[log_id] = log
        if self._file(log_id).size() < log.size:
            raise CorruptRecord("an entry log is shorter than its index says", path=path)
        return pieces

    def write_rebuilt(self) -> None:
        """Put rebuilt indexes in the place of the damaged ones, once a durable state has in limbo what they may lack.
        What finds no room is damaged as before, and rebuilt by the next start."""
        rebuilt, self.rebuilt = self.rebuilt, []
        for made in rebuilt:
            with contextlib.suppress(StorageError):
                path = index_path(self._directory(made.log.id), made.log.id)
                write_atomic(self._disk, path, encode_index(made.log, made.pieces))

    def entry(self, location: index.Location, ledger: LedgerId, entry: EntryId) -> bytes:
        """Return the entry bytes at a location. Raises StorageError, CorruptRecord when something else is there."""
        chunk, start, stop = self._bounds(location, ledger, entry)
        return chunk[start:stop]

    def head(self, location: index.Location, ledger: LedgerId, entry: EntryId, size: int) -> bytes:
        """Return the first ``size`` of the entry bytes at a location. Raises as ``entry`` does."""
        chunk, start, stop = self._bounds(location, ledger, entry)
        return chunk[start : min(start + size, stop)]

    def _bounds(self, location: index.Location, ledger: LedgerId, entry: EntryId) -> tuple[bytes, int, int]:
        """Return the chunk that holds an entry, and where its bytes are in it."""
        chunk, start, _ = self._locate(location)
        stop = start + 4 + int.from_bytes(chunk[start : start + 4], "big")
        if chunk[start + 12 : start + 28] != _IDENTITY.pack(ledger, entry) or stop > len(chunk):
            raise CorruptRecord("an entry log has another entry than its index says", ledger=ledger, entry=entry)
        return chunk, start + 28, stop

    def frames(
        self, pages: index.Pages, ledger: LedgerId, entries: Sequence[EntryId], max_bytes: int
    ) -> tuple[bytes, int]:
        """Return stored frames of the first of ascending entries and of those after it that fit, and how many: not all,
        where much had to be read for these. Returns (b"", 0) if the first is in no log, or is another one there.

        Raises StorageError.
        """
        if len(entries) > 1 and entries[-1] - entries[0] == len(entries) - 1:
            location = index.get(pages, entries[0])
            if not location:
                return b"", 0
            if (several := self._frames_of_chunks(pages, ledger, entries, max_bytes)) is not None:
                return several
            entries = entries[: max(1, index.neighbours(pages, entries[0], len(entries), location + max_bytes))]
        entries = entries[:_SCATTERED_ENTRIES]
        return self._scattered_frames(
            pages, ledger, entries if isinstance(entries, array) else array("q", entries), max_bytes
        )

    def _scattered_frames(
        self, pages: index.Pages, ledger: LedgerId, entries: array[int], max_bytes: int
    ) -> tuple[bytes, int]:
        """Return as ``frames`` those of entries of which each may be in another chunk: these are kept."""
        locations = index.locations(pages, entries)
        if (count := _count_close(locations, max_bytes)) > 1:
            begin, data = self._read_around(locations[0], locations[count - 1])
            return picked_responses([(data, begin, count)], locations, ledger, entries, max_bytes)
        pieces, at, unread_bytes = list[LogPiece](), 0, _SCATTERED_BYTES
        while at < len(locations) and unread_bytes > 0:
            try:
                chunk, offset, was_kept = self._locate(locations[at])
            except StorageError:
                if not pieces:
                    raise
                break
            begin = locations[at] - offset
            # Where they do not ascend, some of these are not in it: then only those before them are returned.
            stop = bisect_left(locations, begin + len(chunk), at + 1)
            pieces.append((chunk, begin, stop - at))
            unread_bytes -= 0 if was_kept else len(chunk)
            at = stop
        return picked_responses(pieces, locations, ledger, entries, max_bytes)

    def _frames_of_chunks(
        self, pages: index.Pages, ledger: LedgerId, entries: Sequence[EntryId], max_bytes: int
    ) -> tuple[bytes, int] | None:
        """Return as ``frames`` those of entries that lie in several chunks, one after another: these are read at once,
        and not kept. Returns None if they lie in one."""
        first, location = entries[0], index.get(pages, entries[0])
        log, offset = self.logs[location >> index.OFFSET_BITS], location & index.OFFSET_MASK
        number = log.chunk_of(offset)
        begin = location - offset + log.chunks[number]
        count = index.neighbours(pages, first, len(entries), location + max_bytes)
        last = index.get(pages, first + count - 1) if count else location
        if last - begin < log.chunk_end(number) - log.chunks[number]:
            return None
        _, data = self._read_around(location, last)
        if last - begin >= len(data):  # there is a damaged one before
            count = index.neighbours(pages, first, count, begin + len(data))
            last = index.get(pages, first + count - 1)
        start, at = location - begin, last - begin
        if data[start + 12 : start + 28] != _IDENTITY.pack(ledger, first):
            return b"", 0
        stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
        return (data[start:at], count - 1) if stop > start + max_bytes and count > 1 else (data[start:stop], count)

    def _read_around(self, first: index.Location, last: index.Location) -> tuple[index.Location, bytes]:
        """Read the chunks that hold two locations of one log, and all between them, up to the first that is damaged.
        Returns where they begin, and their bytes."""
        log = self.logs[first >> index.OFFSET_BITS]
        chunk = log.chunk_of(first & index.OFFSET_MASK)
        data = log.read_chunks(self._file(log.id), chunk, log.chunk_of(last & index.OFFSET_MASK))
        return (log.id << index.OFFSET_BITS) + log.chunks[chunk], data

    def _locate(self, location: index.Location) -> tuple[bytes, int, bool]:
        """Return the chunk that holds a location, checked, the place in it, and whether it was kept from before."""
        log = self.logs[location >> index.OFFSET_BITS]
        offset = location & index.OFFSET_MASK
        number = log.chunk_of(offset)
        key = (log.id, number)
        chunk = self._chunks.get(key)
        was_kept = chunk is not None
        if chunk is None:
            chunk = self._chunks[key] = log.read_chunk(self._file(log.id), number)
            self._cached_bytes += len(chunk)
            while self._cached_bytes > self._settings.read_cache_bytes and len(self._chunks) > 1:
                self._cached_bytes -= len(self._chunks.popitem(last=False)[1])
        else:
            self._chunks.move_to_end(key)
        return chunk, offset - log.chunks[number], was_kept

    def forget_chunk(self, location: index.Location) -> None:
        """Read the chunk of a location from the disk next time."""
        if (log := self.logs.get(location >> index.OFFSET_BITS)) is not None:
            chunk = self._chunks.pop((log.id, log.chunk_of(location & index.OFFSET_MASK)), b"")
            self._cached_bytes -= len(chunk)

    def _file(self, log_id: int) -> File:
        file = self._files.get(log_id)
        if file is None:
            file = self._files[log_id] = self._disk.open(log_path(self._directory(log_id), log_id))
            if len(self._files) > self._settings.open_logs:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(log_id)
        return file

    def remove(self, log_id: int) -> None:
        """Forget a log that nothing refers to any more. Its files stay until they are deleted."""
        del self.logs[log_id]
        if (file := self._files.pop(log_id, None)) is not None:
            file.close()
        for key in [key for key in self._chunks if key[0] == log_id]:
            self._cached_bytes -= len(self._chunks.pop(key))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _count_close(locations: Sequence[index.Location], max_bytes: int) -> int:
    """Count the first of these that lie so close together, in more than one chunk, that it costs less to read all from
    the first to the last of them than the chunk of each: as those that a reader of a striped ledger asks for."""
    if len(locations) < 2:
        return 0
    end = min(locations[0] + 2 * max_bytes, (locations[0] | index.OFFSET_MASK) + 1)
    count = bisect_left(locations, end)
    return count if _CLOSE_BYTES <= locations[count - 1] - locations[0] < count * _CLOSE_BYTES else 0
