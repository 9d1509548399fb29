"""Files as a storage engine needs them: positioned vectored writes, explicit syncs, explicit folder syncs.

Everything here is synchronous; shells run it on a thread. A failed ``sync`` leaves it unknown what is on the disk,
and a second one that succeeds proves nothing: the caller must stop using the file.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.runtime.beside import Beside, ThreadBeside
from tallystick.runtime.folder_lock import ByteLock, FolderLock
from tallystick.runtime.os_file import DirectFile, OsFile, make_private_folders, open_direct, os_errors, storage_error

Buffer = bytes | bytearray | memoryview

BLOCK_BYTES = 4096  # what a disk writes as one, at most: a torn write damages whole blocks and none beside them
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Usage:
    """Bytes of the file system that holds a folder.

    ``free`` is what this process may still take. ``reserved`` is kept back for the administrator: neither in use nor
    free (ext4 keeps 5 % unless told otherwise; a quota shows up here too).
    """

    total: int
    free: int
    reserved: int = 0

    @property
    def used(self) -> int:
        """Returns what files take."""
        return self.total - self.free - self.reserved


class File(Protocol):
    """An open file. All methods raise ``StorageError`` (``DiskFull`` where that is the reason)."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers one after another at ``offset``. Returns how many bytes. ``sync`` makes them durable."""
        ...

    def read(self, size: int, offset: int) -> bytes:
        """Returns up to ``size`` bytes, and fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make all writes, and a changed size, durable (fdatasync)."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make it at least ``size`` bytes long, zeros at the end, with space for all of it. Durable after ``sync``."""
        ...

    def map(self) -> memoryview:
        """Returns a read-only view of the file that shows later writes. It must not shrink while the view is held."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A folder that is held."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings. New names and renames are durable only after ``sync_dir``."""

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> File:
        """Open for reading and writing; ``create`` makes the file when it is missing.

        ``direct``: only whole blocks (BLOCK_BYTES) are written, and they pass by the page cache where that is possible:
        for data that nobody reads soon. ``durable``: a write is durable when it returns, and needs no ``sync``; with
        ``direct`` that is a single write of the device where the file has its blocks already.
        """
        ...

    def exists(self, path: str) -> bool:
        """Raises StorageError where that cannot be seen: what may not be looked at is not absent."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Returns the size of each file of a folder, by sorted names, and none when there is no such folder."""
        ...

    def size(self, path: str) -> int | None:
        """Returns the size of a file without opening it. Returns None when it is missing."""
        ...

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; one that is not empty, or is missing, is left alone."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Make all writes, sizes, names and renames of the file system that holds ``path`` durable.

        For very many files, where this one call costs less than a ``sync`` of each.
        """
        ...

    def epoch(self) -> str:
        """Returns a name of the machine's present boot: after another one, what was not synced may be lost."""
        ...

    def usage(self, path: str) -> Usage: ...

    def lock(self, path: str) -> Lock:
        """Hold a folder for this process, as ``FolderLock``. Raises UsageError when another process holds it."""
        ...

    def lock_file(self, path: str, content: bytes) -> Lock:
        """Hold a file for this process, as ``ByteLock``. Raises UsageError when another process holds it."""
        ...

    def beside(self, name: str) -> Beside:
        """Returns a means to wait for two files at the same time. ``name`` is that of its thread."""
        ...


class OsDisk:
    """The machine's file systems."""

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DSYNC if durable else 0)
        try:  # as in ``OsFile.write``: where files are more than the bound of open ones each write opens one
            fd = os.open(path, flags | (os.O_CREAT if create else 0), 0o600)
            direct_fd = open_direct(path, flags) if direct else None
        except OSError as error:
            raise storage_error("open", path, error) from error
        return OsFile(path, fd) if direct_fd is None else DirectFile(path, fd, direct_fd)

    def exists(self, path: str) -> bool:
        with os_errors("look for", path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def listdir(self, path: str) -> list[str]:
        with os_errors("list", path):
            return sorted(os.listdir(path))

    def sizes(self, path: str) -> dict[str, int]:
        with os_errors("list", path):
            try:
                with os.scandir(path) as entries:
                    by_name = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
            except FileNotFoundError:
                return {}
            return dict(sorted(by_name.items()))

    def size(self, path: str) -> int | None:
        try:  # as in ``OsFile.write``: a start asks this of each file
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error("stat", path, error) from error

    def makedirs(self, path: str) -> None:
        with os_errors("create folder", path):
            make_private_folders(path)

    def rename(self, source: str, target: str) -> None:
        with os_errors("rename", source):
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        with os_errors("delete", path):
            os.unlink(path)

    def remove_folder(self, path: str) -> None:
        with os_errors("delete folder", path):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def sync_dir(self, path: str) -> None:
        with os_errors("sync folder", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_all(self, path: str) -> None:
        with os_errors("sync the file system of", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.syncfs(fd):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)

    def epoch(self) -> str:
        with os_errors("read", _BOOT_ID), open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()

    def usage(self, path: str) -> Usage:
        with os_errors("stat", path):
            stats = os.statvfs(path)
        free, reserved = stats.f_bavail, max(0, stats.f_bfree - stats.f_bavail)
        return Usage(stats.f_blocks * stats.f_frsize, free * stats.f_frsize, reserved * stats.f_frsize)

    def lock(self, path: str) -> Lock:
        return FolderLock(path)

    def lock_file(self, path: str, content: bytes) -> Lock:
        return ByteLock(path, content)

    def beside(self, name: str) -> Beside:
        return ThreadBeside(name)


def read_file(disk: Disk, path: str) -> bytes:
    """Returns the content of a small file."""
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
