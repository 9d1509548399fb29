"""The journal: what was acknowledged and is not yet in an entry log. One write and one sync a commit.

``segment.py`` has the files that commits are written to, and their bytes. A commit is written after the sync of the one
before it, unless nobody waits for that sync: commits of deferred adds are only written, which outlives the process and
not the machine, and a later sync is of all of them. A commit says in its first record from which one on those before it
were not synced when it was written (UNSYNCED, ``records.py``).

So a loss of power can take commits of the end that no sync had reached: nobody was told that they are durable, and all
from the first missing one on are cut. A missing number of which any later commit says, with or without that record,
that it had been synced is damage and refused (CorruptRecord). Damage of the last ones is no different from a loss of
power, until a later commit or the state of a checkpoint says that they were synced.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.segment import COMMIT_BYTES, FIRST_COMMIT, Segment, padding
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer, Disk, File
from tallystick.runtime.rng import Random

_ZEROS = bytes(1024 * 1024)


@dataclass(frozen=True)
class Commit:
    """What one write brings to the disk; ``number`` counts from 1 without gaps."""

    number: int
    buffers: Sequence[Buffer] = field(repr=False)
    size: int


class JournalEnd(NamedTuple):
    """The generation of the newest segment that has a synced commit, and the number of its last synced one."""

    generation: int
    number: int


NOTHING = JournalEnd(0, 0)


class StoredCommit(NamedTuple):
    """A whole commit of a segment."""

    number: int
    payload: memoryview
    path: str
    offset: int  # of the payload in that file


class _Found(NamedTuple):
    """A whole commit as a segment gives it: its number, offset and bytes."""

    number: int
    start: int
    data: memoryview

    @property
    def payload(self) -> memoryview:
        return self.data[COMMIT_BYTES:]

    @property
    def first_unsynced(self) -> int:
        """The first commit that may not have been synced when this one was written: it or one before it."""
        first = records.first_unsynced(self.payload)
        return self.number if first is None else first


class Journal:
    """``replay`` it once and ``release`` up to the mark, then ``write`` and ``sync``; ``release`` may be called from
    another thread."""

    def __init__(self, disk: Disk, directory: str, settings: StorageSettings, random: Random) -> None:
        self._disk, self._directory, self._settings, self._random = disk, directory, settings, random
        self._lock = threading.Lock()  # of the lists of used and free segments
        self._used: list[Segment] = []
        self._free: list[Segment] = []
        self._current: Segment | None = None
        self._position = FIRST_COMMIT
        self._failed = False
        self._first_unsynced = 0  # the number of a commit; 0: all are synced
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
        last, newest, lost = mark, list[_Found](), list[_Found]()
        for segment in self._used:
            commits = [_Found(*commit) for commit in segment.commits()]
            if lost and commits:  # a segment is begun when the one before it is synced
                raise _damaged(last + 1, segment)
            count = _count_without_gap(commits, mark, last)
            for commit in commits[:count]:
                segment.last = max(segment.last, commit.number)
                self.end = JournalEnd(segment.generation, segment.last)
                if commit.number > mark:
                    last = commit.number
                    yield StoredCommit(last, commit.payload, segment.path, commit.start + COMMIT_BYTES)
            if commits[:count]:
                newest, newest_file = commits[:count], segment.file
            if lost := commits[count:]:
                lost_file = segment.file
                if any(commit.number <= last or commit.first_unsynced > last + 1 for commit in lost):
                    raise _damaged(last + 1, segment)
            if segment.generation == known_end.generation and segment.last < known_end.number:
                reason = "the journal ends before the state of the ledgers: its end was lost"
                raise CorruptRecord(reason, path=segment.path, last=segment.last, known=known_end.number)
        if newest:
            # The newest may be in the page cache alone, and be called clean after a sync that failed: only writing them
            # again makes the next sync mean it.
            for commit in newest:
                if commit.number >= newest[-1].first_unsynced:
                    newest_file.write([commit.data, padding(len(commit.data))], commit.start)
            newest_file.sync()
        if lost:  # their numbers are used again
            for commit in lost:
                lost_file.write([_ZEROS[:BLOCK_BYTES]], commit.start)
            lost_file.sync()
        for name in self._disk.listdir(self._directory):
            if name.endswith(".new"):  # segments that were not whole yet
                self._disk.unlink(os.path.join(self._directory, name))

    def prepare(self) -> None:
        """Have a segment ready for the first commit. Raises DiskFull."""
        if not self._free:
            self._free.append(self._create(0))

    def write(self, commit: Commit) -> None:
        """Write a commit: it outlives this process, and with the next ``sync`` the machine.

        Raises DiskFull (nothing happened: may be tried again) or StorageError (stop).
        """
        self._require_sound()
        try:
            self._write(commit)
        except DiskFull:
            raise
        except StorageError:
            self._failed = True
            raise

    def sync(self) -> None:
        """Make durable all that was written. Raises StorageError (stop)."""
        self._require_sound()
        if self._current is not None and self._first_unsynced:
            self._sync(self._current.file)
            self._first_unsynced = 0
            self.end = JournalEnd(self._current.generation, self._current.last)

    def _require_sound(self) -> None:
        if self._failed:
            raise StorageError("the journal failed before; restart the bookie")

    def _write(self, commit: Commit) -> None:
        buffers, size = commit.buffers, commit.size
        if self._first_unsynced:
            record = records.Unsynced(self._first_unsynced).encode()
            buffers, size = (record, *buffers), size + len(record)
        room = COMMIT_BYTES + size
        segment = self._current
        if segment is None or self._position + room > segment.size:
            segment = self._roll(room)
        head = segment.commit_head(self._position, commit.number, buffers, size)
        written = segment.file.write([head, *buffers, padding(room)], self._position)
        segment.last = commit.number
        self._first_unsynced = self._first_unsynced or commit.number
        self._position += written

    def _sync(self, file: File) -> None:
        """Sync. A sync that fails for whatever reason is the end: a second one that succeeds proves nothing."""
        try:
            file.sync()
        except StorageError:
            self._failed = True
            raise

    def _roll(self, room: int) -> Segment:
        """Go to a fresh segment that has this much room. The one before it is synced."""
        self.sync()
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
            return sum([segment.size for segment in self._used]) + (self._position if self._current is not None else 0)

    def close(self) -> None:
        for segment in (*self._used, *self._free, *([self._current] if self._current else [])):
            segment.file.close()


def _count_without_gap(commits: Sequence[_Found], mark: int, last: int) -> int:
    """Return how many of these come before the first that should have another number; ``last``: that before them."""
    for place, commit in enumerate(commits):
        if commit.number > mark:
            if commit.number != last + 1:
                return place
            last = commit.number
    return len(commits)


def _damaged(number: int, segment: Segment) -> CorruptRecord:
    return CorruptRecord("a commit in the middle of the journal is damaged", path=segment.path, number=number)
