"""A run of files of one fixed size, named by the offset of their first byte (H11): twenty decimal digits.

The CommitLog and each ConsumeQueue are such runs. Files are made whole, before they are written, so a write never makes
one longer; what was not written is zeros. Source: ``MappedFileQueue``, ``DefaultMappedFile``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.errors import CorruptRecord, DiskFull, StorageError, UsageError
from tallystick.rocketmq.store.handles import CachedFile, Handles
from tallystick.runtime.disk import Buffer, Disk

NAME_DIGITS = 20
_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)
_OWN_HANDLES = 64  # of files that share no bound with others
_MOST_HELD_BYTES = 4096  # of one run: what is held longer than that is written


def sync_for_good(file: CachedFile) -> None:
    """Sync a file. Raises StorageError and never DiskFull, after which the caller would try again: what a failed sync
    left behind may count as written, and no later sync makes it durable."""
    try:
        file.sync()
    except DiskFull as error:
        raise StorageError("a sync failed: nobody knows what is on the disk", **error.fields) from error


@dataclass(eq=False, slots=True)
class StoreFile:
    """One file. ``view`` shows its bytes while it is mapped; ``is_named`` when its name is known to be durable."""

    start: int
    path: str
    file: CachedFile
    view: memoryview | None = None
    is_named: bool = False


class FileQueue:
    """Files without a gap between them. Only one thread writes; ``prepare``, ``drop_before`` and ``flush`` may run on
    another."""

    def __init__(
        self, disk: Disk, directory: str, file_bytes: int, handles: Handles | None = None, *, mapped: bool = False
    ) -> None:
        """``mapped`` files have space on the disk for all of their bytes, and views; others are sparse. ``handles``
        bounds the open files that several queues share."""
        self._disk, self.directory, self.file_bytes, self._mapped = disk, directory, file_bytes, mapped
        self._handles = handles or Handles(disk, _OWN_HANDLES)
        self.files: list[StoreFile] = []  # replaced, never changed, once others may read it
        self.absent: list[StoreFile] = []  # of ``files``: they are not on the disk, or not whole
        self._making = threading.Lock()
        self._held_bytes: tuple[int, bytes] | None = None  # the last bytes, and where they belong: no file has them yet
        self._writing = threading.Lock()

    @property
    def first(self) -> int:
        return self.files[0].start if self.files else 0

    @property
    def limit(self) -> int:
        """The offset behind the last file."""
        return self.files[-1].start + self.file_bytes if self.files else 0

    def load(self, *, tail: int | None, begin: int = 0) -> None:
        """Load the files of the folder. Files from the offset ``tail`` on may be short or missing, as a crash leaves
        them; with ``tail`` None all must be whole. A short file that is wholly before ``begin``, where the log begins,
        is deleted: a crash brought its name back.

        Raises UsageError when the files have another size, CorruptRecord when one is missing or shorter than it was:
        then nothing was changed.
        """
        sizes = self._disk.sizes(self.directory)
        names = [name for name in sizes if name.isdecimal() and len(name) == NAME_DIGITS]
        for name in [name for name in names if int(name) + self.file_bytes <= begin and sizes[name] < self.file_bytes]:
            self._disk.unlink(os.path.join(self.directory, name))
            names.remove(name)
        self._check_sizes({name: sizes[name] for name in names}, tail)
        for number, name in enumerate(names):
            path, start, size = os.path.join(self.directory, name), int(name), sizes[name]
            if start % self.file_bytes or (self.files and start != self.limit):
                if tail is None or self.limit < tail or start % self.file_bytes:
                    raise CorruptRecord("a file of the store is missing before this one", path=path)
                for name in names[number:]:
                    self._disk.unlink(os.path.join(self.directory, name))
                return
            file = self._handles.open(path)
            if size < self.file_bytes and tail is not None:
                file.truncate(self.file_bytes)
            elif not size:  # the last one: made, and not yet given its length, as if it were not there
                return
            self.files.append(StoreFile(start, path, file))

    def _check_sizes(self, sizes: dict[str, int], tail: int | None) -> None:
        """Check that files which were whole when they were synced are whole. ``sizes`` are by name, in order."""
        for name, size in sizes.items():
            may_be_short = tail is not None and int(name) + self.file_bytes > tail
            is_blank = tail is None and not size and name == next(reversed(sizes))
            if size == self.file_bytes or is_blank or (size < self.file_bytes and may_be_short):
                continue
            path = os.path.join(self.directory, name)
            if self.file_bytes not in sizes.values():
                raise UsageError(
                    "a file of the store has another size than the settings say; set the size that it was made with",
                    path=path,
                    size=size,
                    expected=self.file_bytes,
                )
            raise CorruptRecord(
                "a file of the store has another length than it was made with; restore it from a copy",
                path=path,
                size=size,
                expected=self.file_bytes,
            )

    def adopt(self, first: int, end: int) -> None:
        """Assume the files from the offset ``first`` up to ``end``, without a look at the disk."""
        self.files = [self._at(start) for start in range(first, end, self.file_bytes)]

    def _at(self, start: int) -> StoreFile:
        path = f"{self.directory}/{start:0{NAME_DIGITS}}"
        return StoreFile(start, path, self._handles.open(path))

    def lacking(self, end: int) -> list[StoreFile]:
        """Returns the files that are missing on the disk, or too short for their bytes up to ``end``; the next write
        makes them. A file that is short behind ``end`` gets its length, which a crash kept from it."""
        lacking = self.absent
        for file in self.files:
            size = self._disk.size(file.path)
            if size is not None and min(end - file.start, self.file_bytes) <= size < self.file_bytes:
                file.file.truncate(self.file_bytes)
            elif size != self.file_bytes:
                lacking.append(file)
        return lacking

    def _restore(self) -> None:
        """Make absent files whole, with zeros where nothing is."""
        with self._making:
            self._disk.makedirs(self.directory)
            for file in self.absent:
                self._disk.open(file.path, create=True).close()
                file.file.truncate(self.file_bytes)
                file.is_named = False
            self.absent = []

    def blank(self, end: int) -> None:
        """Do as ``cut``; it is durable with the next ``Disk.sync_all``."""
        names = {os.path.basename(file.path) for file in self.files if file.start < end}
        sizes = self._disk.sizes(self.directory)
        for name in sizes:
            if name not in names:
                self._disk.unlink(os.path.join(self.directory, name))
        self.files = [file for file in self.files if file.start < end]
        last = self.files[-1] if self.files else None
        if last is not None and end < self.limit and os.path.basename(last.path) in sizes:
            last.file.truncate(end - last.start)
            last.file.truncate(self.file_bytes)

    def view_of(self, file: StoreFile) -> memoryview | None:
        """Returns all bytes of a mapped file, which must not be cut any more; None if it was deleted a moment ago."""
        try:
            return file.view or self._handles.map(file, file.file)
        except StorageError:
            if self.find(file.start) is file:
                raise
            return None

    def find(self, offset: int) -> StoreFile | None:
        files = self.files
        index = (offset - files[0].start) // self.file_bytes if files else -1
        return files[index] if 0 <= index < len(files) else None

    def prepare(self, offset: int) -> StoreFile:
        """Make the file that has ``offset``, if it is missing: the next one, or any if there is none. A mapped file
        comes behind names that are durable: power loss that left it and not the first would show another beginning.

        Raises DiskFull when there is no room, StorageError otherwise.
        """
        with self._making:
            file = self.find(offset)
            if file is not None:
                return file
            start = offset - offset % self.file_bytes
            assert not self.files or start == self.limit, "a gap between two files"
            if self._mapped and not all(earlier.is_named for earlier in self.files):
                self._name(self.files)
            file = self._make(start)
            self.files = [*self.files, file]
            return file

    def _name(self, files: Sequence[StoreFile]) -> None:
        self._disk.sync_dir(self.directory)
        for file in files:
            file.is_named = True

    def _make(self, start: int) -> StoreFile:
        path = os.path.join(self.directory, f"{start:0{NAME_DIGITS}}")
        if not self.files:
            self._disk.makedirs(self.directory)
        file = self._handles.open(path, create=True)
        try:
            if self._mapped:
                file.allocate(self.file_bytes)
                return StoreFile(start, path, file)
            if file.size():
                file.truncate(0)  # nobody knows it: what is in it belongs to nothing
            file.truncate(self.file_bytes)
            return StoreFile(start, path, file)
        except DiskFull:
            file.close()
            self._disk.unlink(path)
            raise

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write into the file that has ``offset``; it must have room for all."""
        with self._writing:
            self._write_held()
            self._write(buffers, offset)

    def _write(self, buffers: Sequence[Buffer], offset: int) -> None:
        if self.absent:
            self._restore()
        file = self.find(offset) or self.prepare(offset)
        file.file.write(buffers, offset - file.start)

    def hold(self, data: bytes, offset: int) -> None:
        """Do as ``write``, but in memory alone until the next ``flush``, ``sync`` or ``write``: for very many runs of
        files that get a little each. Only bytes behind all others are held, and a block of them at most."""
        with self._writing:
            at, held_data = self._held_bytes or (offset, b"")
            file = self.find(at)
            fits = file is not None and offset + len(data) <= file.start + self.file_bytes and not self.absent
            if fits and offset == at + len(held_data) and len(held_data) + len(data) <= _MOST_HELD_BYTES:
                self._held_bytes = at, held_data + data
                return
            self._write_held()
            self._write([data], offset)

    def flush(self) -> None:
        """Write what is held. On a thread."""
        if self._held_bytes is not None:
            with self._writing:
                self._write_held()

    def _write_held(self) -> None:
        if self._held_bytes is not None:
            at, held_data = self._held_bytes
            self._write([held_data], at)
            self._held_bytes = None  # not before: readers look here first

    def read(self, offset: int, size: int) -> bytes:
        """Returns up to ``size`` bytes, across the borders of files."""
        held_bytes = self._held_bytes
        if held_bytes is None or offset + size <= held_bytes[0]:
            return self._read(offset, size)
        at, data = held_bytes
        data_on_disk = self._read(offset, max(0, at - offset))
        return (
            data_on_disk + data[max(0, offset - at) : offset + size - at]
            if len(data_on_disk) == max(0, at - offset)
            else data_on_disk
        )

    def _read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (file := self.find(offset)) is not None:
            at = offset - file.start
            room = self.file_bytes - at
            part = file.file.read(size if size < room else room, at)
            if len(part) == size and not parts:  # nearly always
                return part
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from ``start`` to ``end`` durable, and the names of their files. Nothing was written to a file
        since it is absent."""
        self.flush()
        within = [file for file in self.files if file.start < end and file.start + self.file_bytes > start]
        touched = [file for file in within if file not in self.absent]
        for file in touched:
            sync_for_good(file.file)
        if not all(file.is_named for file in touched):
            self._name(touched)

    def is_blank_from(self, end: int) -> bool:
        """Whether nothing was ever written from ``end`` on."""
        for file in self.files:
            for position in range(max(0, end - file.start), self.file_bytes, _CHUNK_BYTES):
                part = file.file.read(min(_CHUNK_BYTES, self.file_bytes - position), position)
                if part != _ZEROS[: len(part)]:
                    return False
        return True

    def cut(self, end: int) -> None:
        """Durably forget what is from ``end`` on, on the disk too: after a crash nothing of it comes back (R4).

        No view of the files may be held.
        """
        files = [file for file in self.files if file.start < end]
        for file in reversed(self.files[len(files) :]):
            self._close(file)
            self._disk.unlink(file.path)
        self.files = files
        if files and end < self.limit:
            last = files[-1].file
            last.truncate(end - files[-1].start)
            last.truncate(self.file_bytes)
            if self._mapped:
                self._reserve(last)
            last.sync()
        self._disk.sync_dir(self.directory)

    def _reserve(self, file: CachedFile) -> None:
        try:
            file.allocate(self.file_bytes)
        except DiskFull:
            return  # it stays sparse; a write that finds no space says so

    def drop_before(self, offset: int) -> list[StoreFile]:
        """Delete the files that end at ``offset`` or before it. Returns them; views that are held stay good."""
        files = self.detach_before(offset)
        self.delete(files)
        return files

    def detach_before(self, offset: int) -> list[StoreFile]:
        """Take the files that end at ``offset`` or before it out of the run. Returns them: pass them to ``delete``."""
        with self._making:
            files = [file for file in self.files if file.start + self.file_bytes <= offset]
            self.files = self.files[len(files) :]
        return files

    def delete(self, detached: Sequence[StoreFile]) -> None:
        """Delete detached files."""
        for file in detached:
            if self._disk.exists(file.path):
                self._disk.unlink(file.path)
            self._sync_names()  # one by one: a crash must not leave a gap
            self._close(file)

    def remove_before_first(self) -> None:
        """Delete the files of the folder that begin before the first one of the run, durably."""
        names = self._disk.sizes(self.directory) if self._disk.exists(self.directory) else ()
        earlier = [name for name in names if name.isdecimal() and int(name) < self.first]
        for name in earlier:
            self._disk.unlink(os.path.join(self.directory, name))
        if earlier:
            self._sync_names()

    def clear(self) -> None:
        """Delete all files durably; views stay good while they are held."""
        if self.files:
            for file in reversed(self.files):
                if self._disk.exists(file.path):
                    self._disk.unlink(file.path)
            self._sync_names()
        self.close()

    def _sync_names(self) -> None:
        if self._disk.exists(self.directory):  # else somebody deleted it as a whole
            self._disk.sync_dir(self.directory)

    def close(self) -> None:
        files, self.files, self.absent, self._held_bytes = self.files, [], [], None
        for file in files:
            self._close(file)

    def _close(self, file: StoreFile) -> None:
        self._handles.unmap(file)
        file.file.close()
