"""The journal: what was acknowledged and is not yet in an entry log. One write and one sync a commit.

``segment.py`` has the files that commits are written to, and their bytes. Commit n + 1 is not written before the sync
of n returned. So after a crash only the last commit can be incomplete: it was not acknowledged and is cut. A missing
number in the middle is damage and refused (CorruptRecord).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.bookkeeper.bookie.segment import COMMIT_BYTES, FIRST_COMMIT, Segment, padding
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import Buffer, Disk, File
from tallystick.runtime.rng import Random

_ZEROS = bytes(1024 * 1024)


@dataclass(frozen=True)
class Commit:
    """What one sync makes durable; ``number`` counts from 1 without gaps."""

    number: int
    buffers: Sequence[Buffer] = field(repr=False)
    size: int


class JournalEnd(NamedTuple):
    """The generation of the newest segment that has a commit, and the number of its last commit."""

    generation: int
    number: int


NOTHING = JournalEnd(0, 0)


class StoredCommit(NamedTuple):
    """A whole commit of a segment."""

    number: int
    payload: memoryview
    path: str
    offset: int  # of the payload in that file


class Journal:
    """``replay`` it once, then ``write`` to it; ``release`` may be called from another thread."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings, random: Random) -> None:
        self._disk, self._directory, self._settings, self._random = disk, directory, settings, random
        self._lock = threading.Lock()  # of the lists of used and free segments
        self._used: list[Segment] = []
        self._free: list[Segment] = []
        self._current: Segment | None = None
        self._position = FIRST_COMMIT
        self._failed = False
        self.end = NOTHING
        for name in disk.listdir(directory):
            if name.endswith(".segment"):
                path = os.path.join(directory, name)
                self._used.append(Segment.read(path, disk.open(path, direct=True)))
        self._used.sort(key=lambda segment: segment.generation)
        self._top = max((segment.generation for segment in self._used), default=0)  # the highest in use
        self._next_name = 1 + max((int(os.path.basename(s.path)[:8], 16) for s in self._used), default=0)

    def replay(self, mark: int, known_end: JournalEnd = NOTHING) -> Iterator[StoredCommit]:
        """Return the commits after ``mark``, and make durable what the last process left undone.

        ``known_end`` is as far as the journal once went. Raises CorruptRecord when a commit is missing. Nothing
        is changed before the last commit was taken from the iterator: who cannot use one of them stops there.
        """
        last, newest = mark, None
        for segment in self._used:
            for number, start, data in segment.commits():
                segment.last = max(segment.last, number)
                self.end = JournalEnd(segment.generation, segment.last)
                newest = segment, start, data
                if number <= mark:
                    continue
                if number != last + 1:
                    raise CorruptRecord(
                        "a commit in the middle of the journal is damaged", path=segment.path, number=last + 1
                    )
                last = number
                yield StoredCommit(number, data[COMMIT_BYTES:], segment.path, start + COMMIT_BYTES)
            if segment.generation == known_end.generation and segment.last < known_end.number:
                reason = "the journal ends before the state of the ledgers: its end was lost"
                raise CorruptRecord(reason, path=segment.path, last=segment.last, known=known_end.number)
        if newest is not None:
            # The newest may be in the page cache alone, and be called clean after a sync that failed: only writing it
            # again makes the next sync mean it.
            segment, start, data = newest
            segment.file.write([data, padding(len(data))], start)
            segment.file.sync()
        for name in self._disk.listdir(self._directory):
            if name.endswith(".new"):  # segments that were not whole yet
                self._disk.unlink(os.path.join(self._directory, name))
        self.release(mark)

    def prepare(self) -> None:
        """Have a segment ready for the first commit. Raises DiskFull."""
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
        head = segment.commit_head(self._position, commit.number, commit.buffers, commit.size)
        written = segment.file.write([head, *commit.buffers, padding(room)], self._position)
        self._sync(segment.file)
        segment.last = commit.number
        self.end = JournalEnd(segment.generation, commit.number)
        self._position += written

    def _sync(self, file: File) -> None:
        """Sync. A sync that fails for whatever reason is the end: a second one that succeeds proves nothing."""
        try:
            file.sync()
        except StorageError:
            self._failed = True
            raise

    def _roll(self, room: int) -> Segment:
        """Go to a fresh segment that has this much room."""
        with self._lock:
            segment = next((free for free in self._free if free.size >= FIRST_COMMIT + room), None)
            if segment is not None:
                self._free.remove(segment)
        if segment is None:
            segment = self._create(FIRST_COMMIT + room)
        try:
            segment.stamp(self._top + 1, self._random.getrandbits(64), self._sync)
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

    def _create(self, room: int) -> Segment:
        """Make a file, which gets its final name only when it is whole."""
        size = max(self._settings.journal_segment_bytes, room)
        size += len(padding(size))
        path = os.path.join(self._directory, f"{self._next_name:08x}.segment")
        file = self._disk.open(path + ".new", create=True, direct=True)
        segment = Segment(path, file, size)
        try:
            for offset in range(0, size, len(_ZEROS)):
                file.write([_ZEROS[: size - offset]], offset)
            segment.stamp(0, self._random.getrandbits(64), self._sync)
            self._disk.rename(path + ".new", path)
            self._disk.sync_dir(self._directory)
        except DiskFull:
            file.close()
            self._disk.unlink(path + ".new")
            raise
        self._next_name += 1
        return segment

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
        """Return whether a segment as new as this is here, be it used again since."""
        return bool(self._used or self._free) and self._top >= generation

    @property
    def used_bytes(self) -> int:
        """The bytes of journal that a restart would replay."""
        with self._lock:
            return sum(segment.size for segment in self._used) + (self._position if self._current is not None else 0)

    def close(self) -> None:
        for segment in (*self._used, *self._free, *([self._current] if self._current else [])):
            segment.file.close()
