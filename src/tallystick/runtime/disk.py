"""Files as a storage engine needs them: positioned vectored writes, explicit syncs, explicit folder syncs.

Everything here is synchronous; shells run it on a thread. A failed ``sync`` leaves it unknown what is on the disk,
and a second one that succeeds proves nothing: the caller must stop using the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.errors import DiskFull, StorageError, UsageError

Buffer = bytes | bytearray | memoryview

IOV_MAX = 1024


@dataclass(frozen=True)
class Usage:
    """Bytes of the file system that holds a folder."""

    total: int
    free: int


class File(Protocol):
    """An open file. All methods raise ``StorageError`` (``DiskFull`` where that is the reason)."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all buffers one after another at ``offset``; the number of bytes. Not durable before ``sync``."""
        ...

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make all writes, and a changed size, durable (fdatasync)."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings. New names and renames are durable only after ``sync_dir``."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes the file when it is missing."""
        ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names."""
        ...

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def usage(self, path: str) -> Usage: ...


@contextlib.contextmanager
def _mapped(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"cannot {action}: {error.strerror}", path=path) from error


class _OsFile:
    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd = path, fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        start = offset
        with _mapped("write", self._path):
            for first in range(0, len(buffers), IOV_MAX):
                offset += self._write_some(buffers[first : first + IOV_MAX], offset)
        return offset - start

    def _write_some(self, buffers: Sequence[Buffer], offset: int) -> int:
        size = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, offset)
        if written < size:  # a signal or a nearly full disk: finish or fail loudly
            rest = memoryview(b"".join(buffers))
            while written < size:
                written += os.pwrite(self._fd, rest[written:], offset + written)
        return written

    def read(self, size: int, offset: int) -> bytes:
        with _mapped("read", self._path):
            data = os.pread(self._fd, size, offset)
            while 0 < len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data

    def sync(self) -> None:
        with _mapped("sync", self._path):
            os.fdatasync(self._fd)

    def size(self) -> int:
        with _mapped("stat", self._path):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _mapped("truncate", self._path):
            os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)


class OsDisk:
    """The machine's file systems."""

    def open(self, path: str, *, create: bool = False) -> File:
        with _mapped("open", path):
            return _OsFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        with _mapped("list", path):
            return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        with _mapped("create folder", path):
            os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        with _mapped("rename", source):
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        with _mapped("delete", path):
            os.unlink(path)

    def sync_dir(self, path: str) -> None:
        with _mapped("sync folder", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def usage(self, path: str) -> Usage:
        with _mapped("stat", path):
            found = os.statvfs(path)
        return Usage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class FolderLock:
    """Holds a folder for this process. The kernel drops it when the process dies: to hold it proves that."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, "LOCK")
        with _mapped("lock", self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise UsageError(
                "another process uses this folder; stop it first or choose another folder", path=path
            ) from error

    def release(self) -> None:
        os.close(self._fd)


def write_atomic(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content: temp, sync, rename, sync folder."""
    temporary = path + ".new"
    if disk.exists(temporary):
        disk.unlink(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.write([data], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path))


def read_file(disk: Disk, path: str) -> bytes:
    """A whole small file."""
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
