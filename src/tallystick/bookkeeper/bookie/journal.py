"""The journal: what was acknowledged and is not yet in an entry log. One write and one sync a commit.

Segments are files that are zero-filled once and then used again and again (an overwrite syncs faster than a growing
file). Integers big-endian; whole blocks of 4096 bytes are written, so that no two commits share a sector of the disk::

    segment     header copy at 0 and at 4096 | commits from 8192
    header      magic "TALLYJN1" 8 | generation 8 | salt 8 | CRC32C 4
    commit      number 8 | payload size 4 | CRC32C of the payload 4 | CRC32C of the 16 bytes before 4 | payload | zeros
    payload     records, each with a type and a version, see records.py

"1" in the magic is the version of this frame of commits. Of every version the magic and the CRC of the 24 bytes before
it are in these places, so that a newer one is told from a damaged one.

The CRCs start from the segment's salt and the commit's offset: what an earlier use of the segment left behind is never
valid, and nobody can send bytes that look like a commit without knowing the salt.

Commit n + 1 is not written before the sync of n returned. So after a crash only the last commit can be incomplete: it
was not acknowledged and is cut. A missing number in the middle is damage and refused (CorruptRecord). The two header
copies are written and synced one after the other, a whole one last, so one of them is whole at any time.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.bookkeeper.bookie.formats import of_a_newer_version, version_of
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, Disk, File
from tallystick.runtime.rng import Random

_NAME, _VERSION = b"TALLYJN", 1
_MAGIC = _NAME + b"%d" % _VERSION
_HEADER = struct.Struct(">8sQQ")
_HEADER_COPIES = (0, BLOCK_BYTES)
_CRC = struct.Struct(">I")
_COMMIT = struct.Struct(">QII")
_SEED = struct.Struct(">QQ")
COMMIT_BYTES = _COMMIT.size + _CRC.size
FIRST_COMMIT = 2 * BLOCK_BYTES
_ZEROS = bytes(1024 * 1024)


@dataclass(frozen=True)
class Commit:
    """What one sync makes durable; ``number`` counts from 1 without gaps."""

    number: int
    buffers: Sequence[Buffer] = field(repr=False)
    size: int


class Reached(NamedTuple):
    """How far a journal goes: the generation of the newest segment that has a commit, and the number of its last."""

    generation: int
    number: int


NOTHING = Reached(0, 0)


class StoredCommit(NamedTuple):
    """A whole commit of a segment."""

    number: int
    payload: memoryview
    path: str
    offset: int  # of the payload in that file


@dataclass
class _Segment:
    path: str
    file: File
    size: int
    generation: int = 0
    salt: int = 0
    header: int = 0  # the offset of a header copy that is whole
    last: int = 0  # the highest commit number in it

    def seed(self, offset: int) -> int:
        return crc32c(_SEED.pack(self.salt, offset))


class Journal:
    """``replay`` once, then ``write``; ``release`` may be called from another thread."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings, random: Random) -> None:
        self._disk, self._directory, self._settings, self._random = disk, directory, settings, random
        self._lock = threading.Lock()  # of the lists of used and free segments
        self._used: list[_Segment] = []
        self._free: list[_Segment] = []
        self._current: _Segment | None = None
        self._position = FIRST_COMMIT
        self._failed = False
        self.reached = NOTHING
        for name in disk.listdir(directory):
            if name.endswith(".segment"):
                path = os.path.join(directory, name)
                self._used.append(_open_segment(path, disk.open(path, direct=True)))
        self._used.sort(key=lambda segment: segment.generation)
        self._top = max((segment.generation for segment in self._used), default=0)  # the highest in use
        self._next_name = 1 + max((int(os.path.basename(s.path)[:8], 16) for s in self._used), default=0)

    def replay(self, mark: int, reached: Reached = NOTHING) -> Iterator[StoredCommit]:
        """The commits after ``mark``; then durable, whatever the last process left undone.

        ``reached``: how far the journal was once known to go. Raises CorruptRecord when a commit is missing. Nothing is
        changed before the last one was taken: who cannot use one of them stops there.
        """
        last, newest = mark, None
        for segment in self._used:
            for number, start, data in _commits(segment):
                segment.last = max(segment.last, number)
                self.reached = Reached(segment.generation, segment.last)
                newest = segment, start, data
                if number <= mark:
                    continue
                if number != last + 1:
                    raise CorruptRecord(
                        "a commit in the middle of the journal is damaged", path=segment.path, number=last + 1
                    )
                last = number
                yield StoredCommit(number, data[COMMIT_BYTES:], segment.path, start + COMMIT_BYTES)
            if segment.generation == reached.generation and segment.last < reached.number:
                raise CorruptRecord(
                    "the journal ends before the state of the ledgers: its end was lost", path=segment.path,
                    last=segment.last, known=reached.number,
                )  # fmt: skip
        if newest is not None:
            # The newest may be in the page cache alone, and be called clean after a sync that failed: only writing it
            # again makes the next sync mean it.
            segment, start, data = newest
            segment.file.write([data, _padding(len(data))], start)
            segment.file.sync()
        for name in self._disk.listdir(self._directory):
            if name.endswith(".new"):  # segments that were not whole yet
                self._disk.unlink(os.path.join(self._directory, name))
        self.release(mark)

    def prepare(self) -> None:
        """Have a segment ready for the first commit. May raise DiskFull."""
        if not self._free:
            self._free.append(self._create(0))

    def write(self, commit: Commit) -> None:
        """Make a commit durable. Raises DiskFull (nothing happened: may be tried again) or StorageError (stop)."""
        if self._failed:
            raise StorageError("the journal failed before; restart the bookie")
        try:
            self._write(commit)
        except DiskFull:
            raise
        except StorageError:
            self._failed = True
            raise

    def _write(self, commit: Commit) -> None:
        room = COMMIT_BYTES + commit.size
        segment = self._current
        if segment is None or self._position + room > segment.size:
            segment = self._roll(room)
        seed = payload_crc = segment.seed(self._position)
        for buffer in commit.buffers:
            payload_crc = crc32c(buffer, payload_crc)
        head = _COMMIT.pack(commit.number, commit.size, payload_crc)
        check = _CRC.pack(crc32c(head, seed))
        written = segment.file.write([head, check, *commit.buffers, _padding(room)], self._position)
        self._sync(segment.file)
        segment.last = commit.number
        self.reached = Reached(segment.generation, commit.number)
        self._position += written

    def _sync(self, file: File) -> None:
        """A failed sync, for whatever reason, is the end: a second one that succeeds proves nothing."""
        try:
            file.sync()
        except StorageError:
            self._failed = True
            raise

    def _roll(self, room: int) -> _Segment:
        """Go to a fresh segment that has this much room."""
        with self._lock:
            segment = next((free for free in self._free if free.size >= FIRST_COMMIT + room), None)
            if segment is not None:
                self._free.remove(segment)
        if segment is None:
            segment = self._create(FIRST_COMMIT + room)
        try:
            self._stamp(segment, self._top + 1)
        except DiskFull:
            with self._lock:
                self._free.insert(0, segment)
            raise
        self._top = segment.generation
        with self._lock:
            if self._current is not None:
                self._used.append(self._current)
            self._current, self._position = segment, FIRST_COMMIT
        return segment

    def _create(self, room: int) -> _Segment:
        """A new file under its final name only when it is whole."""
        size = max(self._settings.journal_segment_bytes, room)
        size += len(_padding(size))
        path = os.path.join(self._directory, f"{self._next_name:08x}.segment")
        file = self._disk.open(path + ".new", create=True, direct=True)
        segment = _Segment(path, file, size)
        try:
            for offset in range(0, size, len(_ZEROS)):
                file.write([_ZEROS[: size - offset]], offset)
            self._stamp(segment, 0)
            self._disk.rename(path + ".new", path)
            self._disk.sync_dir(self._directory)
        except DiskFull:
            file.close()
            self._disk.unlink(path + ".new")
            raise
        self._next_name += 1
        return segment

    def _stamp(self, segment: _Segment, generation: int) -> None:
        """Begin a new life of a segment: nothing that is in it is valid any more."""
        segment.generation, segment.salt, segment.last = generation, self._random.getrandbits(64), 0
        header = _HEADER.pack(_MAGIC, segment.generation, segment.salt)
        header += _CRC.pack(crc32c(header))
        # The copy that is whole comes last: a crash may have damaged the other one before.
        for offset in sorted(_HEADER_COPIES, key=lambda copy: copy == segment.header):
            segment.file.write([header, _padding(len(header))], offset)
            self._sync(segment.file)

    def release(self, mark: int) -> None:
        """The commits up to ``mark`` are elsewhere: their segments can be used again."""
        with self._lock:
            done = [segment for segment in self._used if segment.last <= mark]
            self._used = [segment for segment in self._used if segment.last > mark]
            self._free += done
            # The newest ones stay: the highest generation shows that the journal is as new as the state file.
            extra = self._free[: -self._settings.journal_spare_segments]
            del self._free[: -self._settings.journal_spare_segments]
        for segment in extra:
            segment.file.close()
            self._disk.unlink(segment.path)

    def reaches(self, generation: int) -> bool:
        """Whether a segment as new as this is here, be it used again since."""
        return bool(self._used or self._free) and self._top >= generation

    @property
    def used_bytes(self) -> int:
        """Journal that a restart would replay."""
        with self._lock:
            return sum(segment.size for segment in self._used) + (self._position if self._current is not None else 0)

    def close(self) -> None:
        for segment in (*self._used, *self._free, *([self._current] if self._current else [])):
            segment.file.close()


def _padding(size: int) -> memoryview:
    """Zeros that make whole blocks of so many bytes."""
    return memoryview(_ZEROS)[: -size % BLOCK_BYTES]


def _open_segment(path: str, file: File) -> _Segment:
    """Raises CorruptRecord, and StorageError for a segment of a newer version."""
    headers: list[tuple[int, int, int]] = []
    for offset in _HEADER_COPIES:
        data = file.read(_HEADER.size + _CRC.size, offset)
        if data[_HEADER.size :] != _CRC.pack(crc32c(data[: _HEADER.size])):
            continue
        magic, generation, salt = _HEADER.unpack(data[: _HEADER.size])
        if (version := version_of(magic, _NAME)) == _VERSION:
            headers.append((generation, salt, offset))
        elif version is not None:
            raise of_a_newer_version("a journal segment", path, offset, version=version)
    if not headers:
        raise CorruptRecord("both headers of a journal segment are damaged", path=path)
    return _Segment(path, file, file.size(), *max(headers))


def _commits(segment: _Segment) -> Iterator[tuple[int, int, memoryview]]:
    """Number, offset and bytes of the whole commits of a segment.

    What is not one is skipped: the numbers show whether anything was lost there.
    """
    data = memoryview(segment.file.read(segment.size, 0))
    position = FIRST_COMMIT
    while position + COMMIT_BYTES <= len(data):
        head = data[position : position + _COMMIT.size]
        number, size, payload_crc = _COMMIT.unpack(head)
        start = position + COMMIT_BYTES
        stop = start + size
        seed = segment.seed(position)
        if (
            stop <= len(data)
            and data[position + _COMMIT.size : start] == _CRC.pack(crc32c(head, seed))
            and crc32c(data[start:stop], seed) == payload_crc
        ):
            yield number, position, data[position:stop]
            position = stop + -stop % BLOCK_BYTES
        else:
            position += BLOCK_BYTES
