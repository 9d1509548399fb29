"""The files of the index, oldest first: keys are added and looked up, and a start loads, adopts or rebuilds the files.

Source: ``IndexService``.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.index_file import IndexFile, IndexHeader
from tallystick.rocketmq.store.queue_state import IndexRow
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.disk import Disk

_NONE = IndexHeader(end_offset=-1)


class Index:
    """All files, oldest first. With ``enabled`` False nothing is added and nothing is found."""

    def __init__(self, disk: Disk, directory: str, settings: StoreSettings, handles: Handles | None = None) -> None:
        self._disk, self._directory, self._settings = disk, directory, settings
        self._handles = handles or Handles(disk, settings.max_open_files)
        self._files: list[IndexFile] = []
        self._unsynced: deque[IndexFile] = deque()

    def load(self, dispatched: int, *, discard_after_ms: int | None) -> None:
        """Keep the entries of records before ``dispatched``. Files of later records, or with later times than
        ``discard_after_ms``, go."""
        for name in self._disk.listdir(self._directory):
            path = os.path.join(self._directory, name)
            file = IndexFile(self._handles, path, self._settings)
            late = _is_late(file, discard_after_ms) or file.header.begin_offset >= dispatched or file.room < 0
            if not late:
                file.cut(dispatched)
            if late or file.header.count == 1:
                file.close()
                self._disk.unlink(path)
            else:
                self._files.append(file)
        self._disk.sync_dir(self._directory)

    def first_discarded(self, discard_after_ms: int) -> int | None:
        """Returns where the first record is whose entries ``load`` would discard, or None if it would keep all."""
        offsets = []
        for name in self._disk.listdir(self._directory):
            file = IndexFile(self._handles, os.path.join(self._directory, name), self._settings)
            if _is_late(file, discard_after_ms):
                offsets.append(file.header.begin_offset)
            file.close()
        return min(offsets, default=None)

    def adopt(self, rows: Mapping[str, IndexRow], lost_names: Collection[str], dispatched: int) -> None:
        """Take the files that a checkpoint noted, and no others. Only the newest is read, as it may have later entries.
        Those that are missing, short or of a damaged header, and those of ``lost_names``, are made anew, for
        ``Rebuild`` to fill."""
        sizes, size = self._disk.sizes(self._directory), IndexFile.size_of(self._settings)
        names = sorted(rows)
        for name in sizes:
            if name not in rows:
                self._disk.unlink(os.path.join(self._directory, name))
        for name in names:
            path, row = os.path.join(self._directory, name), rows[name]
            header = IndexHeader(row.begin_ms, row.end_ms, row.begin_offset, row.end_offset, row.used_slots, row.count)
            is_lost, has_later = name in lost_names or sizes.get(name) != size, name == names[-1]
            if not is_lost:
                known_header = None if has_later or row.end_offset >= dispatched else header
                file = IndexFile(self._handles, path, self._settings, known_header)
                if is_lost := not file.goes_on_from(header):
                    file.close()
                elif known_header is None:
                    file.cut(dispatched)
            if is_lost:
                if name in sizes:
                    self._disk.unlink(path)
                file = IndexFile(self._handles, path, self._settings)
                file.lost_records = range(row.begin_offset, min(row.end_offset + 1, dispatched))
            if file.header.count == 1 and not file.lost_records:
                file.close()
                self._disk.unlink(path)
            else:
                self._files.append(file)
        self._disk.sync_dir(self._directory)

    def read_slots(self) -> None:
        """Have what the next keys need in memory: 20 MB are no read for the loop."""
        if self._files and self._files[-1].lost_records is None:
            self._files[-1].read_slots()

    def lost_files(self) -> list[IndexFile]:
        """Returns the files that were lost and are built again."""
        return [file for file in self._files if file.lost_records is not None]

    def take(self) -> list[IndexFile]:
        """Returns the files with new entries, to be synced."""
        files = list(self._unsynced)
        self._unsynced.clear()
        for file in files:
            file.dirty = False
        return files

    def mark(self, files: Sequence[IndexFile]) -> None:
        """Files could not be synced: they must be synced again."""
        for file in files:
            self._mark(file)

    def _mark(self, file: IndexFile) -> None:
        if not file.dirty:
            file.dirty = True
            self._unsynced.append(file)

    def rows(self) -> list[IndexRow]:
        """Returns the rows of all files that are whole, for a checkpoint."""
        return [file.row() for file in self._files if file.lost_records is None]

    @property
    def end_ms(self) -> int:
        return self._newest.end_ms

    @property
    def end_offset(self) -> int:
        """The physical offset up to which records are in the index."""
        return self._newest.end_offset

    @property
    def _newest(self) -> IndexHeader:
        """Returns the header of the last file with entries; a file behind it was made for entries that a full disk did
        not take."""
        for file in self._files[:-3:-1]:
            if file.header.count > 1 and file.lost_records is None:
                return file.header
        return _NONE

    def put(self, hashes: Sequence[int], physicals: Sequence[int], stored_ms: Sequence[int], now_ms: int) -> None:
        """Add keys, given by columns. Raises DiskFull; the next attempt skips those that were added."""
        while hashes:
            if not self._files or not self._files[-1].room or self._files[-1].lost_records is not None:
                self._add_file(now_ms)
            file = self._files[-1]
            room = file.room
            file.put(hashes[:room], physicals[:room], stored_ms[:room])
            self._mark(file)
            hashes, physicals, stored_ms = hashes[room:], physicals[room:], stored_ms[room:]

    def _add_file(self, now_ms: int) -> None:
        name = index_name(now_ms)
        while self._disk.exists(os.path.join(self._directory, name)):
            now_ms += 1
            name = index_name(now_ms)
        self._files = [*self._files, IndexFile(self._handles, os.path.join(self._directory, name), self._settings)]

    def select(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yields physical offsets of candidates, newest first, with PASSED in between; see ``IndexFile.select``."""
        for file in reversed(self._files):
            if file.header.begin_ms <= end_ms and file.header.end_ms + 1000 > begin_ms:
                yield from file.select(key_hash, begin_ms, end_ms)

    def sync(self, files: Sequence[IndexFile]) -> None:
        """Make files durable. On a thread. After an error ``mark`` them again."""
        for file in files:
            file.sync()
        if files:
            self._disk.sync_dir(self._directory)

    def detach_before(self, physical: int) -> list[IndexFile]:
        """Count the files whose messages are all gone as gone, but never the last. Returns them: pass them to
        ``delete``. Call it with reput's lock held."""
        files = self._files
        detached = [file for file in files[:-1] if file.lost_records is None and file.header.end_offset < physical]
        self._files = [file for file in files if file not in detached]
        for file in detached:
            if file.dirty:  # built again a moment ago
                self._unsynced.remove(file)
        return detached

    def delete(self, detached: Sequence[IndexFile]) -> None:
        """Delete detached files. On a thread."""
        for file in detached:
            self._disk.unlink(file.path)
            file.close()
        if detached:
            self._disk.sync_dir(self._directory)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _is_late(file: IndexFile, discard_after_ms: int | None) -> bool:
    return discard_after_ms is not None and file.header.end_ms > discard_after_ms


def index_name(now_ms: int) -> str:
    """Returns the name of a file: local time to the millisecond."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03}"
