"""Files as a storage engine needs them: positioned vectored writes, explicit syncs, explicit folder syncs.

Everything here is synchronous; shells run it on a thread. A failed ``sync`` leaves it unknown what is on the disk,
and a second one that succeeds proves nothing: the caller must stop using the file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.runtime.beside import Beside, ThreadBeside

Buffer = bytes | bytearray | memoryview

IOV_MAX = 1024
BLOCK_BYTES = 4096  # what a disk writes as one, at most: a torn write damages whole blocks and none beside them
_STAGING_BYTES = 1024 * 1024
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
        """What files take."""
        return self.total - self.free - self.reserved


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

    def allocate(self, size: int) -> None:
        """Make it at least ``size`` bytes long, zeros at the end, with space for all of it. Durable after ``sync``."""
        ...

    def map(self) -> memoryview:
        """A read-only view of the whole file that shows later writes. The file must not shrink while it is held."""
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
        """Sorted names."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Bytes of each file of a folder, by sorted names; empty when there is no such folder."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of one file, which is not opened; None when it is missing."""
        ...

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """One that has something in it, or that is missing, stays as it is."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Make all writes, sizes, names and renames of the file system that holds ``path`` durable.

        For very many files, where this one call costs less than a ``sync`` of each.
        """
        ...

    def epoch(self) -> str:
        """Names the time since which nothing that was written can have been lost: another value, another boot."""
        ...

    def usage(self, path: str) -> Usage: ...

    def lock(self, path: str) -> Lock:
        """Hold a folder for this process, as ``FolderLock``. Raises UsageError when another process holds it."""
        ...

    def lock_file(self, path: str, content: bytes) -> Lock:
        """Hold a file for this process, as ``ByteLock``. Raises UsageError when another process holds it."""
        ...

    def beside(self, name: str) -> Beside:
        """To wait for two files at the same time. ``name`` is for those who look at threads."""
        ...


@contextlib.contextmanager
def _mapped(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(action, path, error) from error


def _storage_error(action: str, path: str, error: OSError) -> StorageError:
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(f"cannot {action}: {error.strerror}", path=path)


_CLOSED = 2**31 - 1  # no process has it: every call refuses it


class _OsFile:
    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd = path, fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        start = offset
        try:  # as _mapped does it, which costs as much as a short write
            for first in range(0, len(buffers), IOV_MAX):
                offset += self._write_some(buffers[first : first + IOV_MAX], offset)
        except OSError as error:
            raise _storage_error("write", self._path, error) from error
        return offset - start

    def _write_some(self, buffers: Sequence[Buffer], offset: int) -> int:
        size = sum(map(len, buffers))
        written_bytes = os.pwritev(self._fd, buffers, offset)
        if written_bytes < size:  # a signal or a nearly full disk: finish or fail loudly
            rest = memoryview(b"".join(buffers))
            while written_bytes < size:
                written_bytes += os.pwrite(self._fd, rest[written_bytes:], offset + written_bytes)
        return written_bytes

    def read(self, size: int, offset: int) -> bytes:
        try:  # as in ``write``
            data = os.pread(self._fd, size, offset)
            while 0 < len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _storage_error("read", self._path, error) from error
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

    def allocate(self, size: int) -> None:
        with _mapped("allocate", self._path):
            os.posix_fallocate(self._fd, 0, size)

    def map(self) -> memoryview:
        with _mapped("map", self._path):
            return memoryview(mmap.mmap(self._fd, 0, prot=mmap.PROT_READ))

    def close(self) -> None:
        """Once: a number that was closed may be somebody else's file by now."""
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


class _Staging(threading.local):
    """A thread's page-aligned memory, as writes past the page cache need it."""

    def __init__(self) -> None:
        self.memory = memoryview(mmap.mmap(-1, _STAGING_BYTES))


class _DirectFile(_OsFile):
    """Writes past the page cache: a page that is new in it costs many times the copy of its bytes."""

    _staging = _Staging()

    def __init__(self, path: str, fd: int, direct_fd: int) -> None:
        super().__init__(path, fd)  # for all but writes; the kernel keeps the two views of the file the same
        self._direct_fd = direct_fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        staging, start, filled = self._staging.memory, offset, 0
        with _mapped("write", self._path):
            for buffer in buffers:
                rest = memoryview(buffer)
                while len(rest):
                    part = rest[: _STAGING_BYTES - filled]
                    staging[filled : filled + len(part)] = part
                    filled, rest = filled + len(part), rest[len(part) :]
                    if filled == _STAGING_BYTES:
                        offset, filled = offset + self._write_staged(filled, offset), 0
            return offset + self._write_staged(filled, offset) - start

    def _write_staged(self, size: int, offset: int) -> int:
        written_bytes = 0
        while written_bytes < size:  # more than once on a nearly full disk: finish or fail loudly
            written_bytes += os.pwrite(
                self._direct_fd, self._staging.memory[written_bytes:size], offset + written_bytes
            )
        return size

    def close(self) -> None:
        super().close()
        fd, self._direct_fd = self._direct_fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


class OsDisk:
    """The machine's file systems."""

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DSYNC if durable else 0)
        try:  # as in ``_OsFile.write``: where files are more than the bound of open ones each write opens one
            fd = os.open(path, flags | (os.O_CREAT if create else 0), 0o600)
            direct_fd = _open_direct(path, flags) if direct else None
        except OSError as error:
            raise _storage_error("open", path, error) from error
        return _OsFile(path, fd) if direct_fd is None else _DirectFile(path, fd, direct_fd)

    def exists(self, path: str) -> bool:
        with _mapped("look for", path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def listdir(self, path: str) -> list[str]:
        with _mapped("list", path):
            return sorted(os.listdir(path))

    def sizes(self, path: str) -> dict[str, int]:
        with _mapped("list", path):
            try:
                with os.scandir(path) as entries:
                    by_name = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
            except FileNotFoundError:
                return {}
            return dict(sorted(by_name.items()))

    def size(self, path: str) -> int | None:
        try:  # as in ``_OsFile.write``: a start asks this of each file
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _storage_error("stat", path, error) from error

    def makedirs(self, path: str) -> None:
        with _mapped("create folder", path):
            os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        with _mapped("rename", source):
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        with _mapped("delete", path):
            os.unlink(path)

    def remove_folder(self, path: str) -> None:
        with _mapped("delete folder", path):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def sync_dir(self, path: str) -> None:
        with _mapped("sync folder", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_all(self, path: str) -> None:
        with _mapped("sync the file system of", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.syncfs(fd):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)

    def epoch(self) -> str:
        with _mapped("read", _BOOT_ID), open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()

    def usage(self, path: str) -> Usage:
        with _mapped("stat", path):
            stats = os.statvfs(path)
        free, reserved = stats.f_bavail, max(0, stats.f_bfree - stats.f_bavail)
        return Usage(stats.f_blocks * stats.f_frsize, free * stats.f_frsize, reserved * stats.f_frsize)

    def lock(self, path: str) -> Lock:
        return FolderLock(path)

    def lock_file(self, path: str, content: bytes) -> Lock:
        return ByteLock(path, content)

    def beside(self, name: str) -> Beside:
        return ThreadBeside(name)


def _open_direct(path: str, flags: int) -> int | None:
    """None where the file system (or the system) has no such way."""
    try:
        return os.open(path, flags | os.O_DIRECT)
    except (AttributeError, OSError):
        return None


class ByteLock:
    """Holds a file for this process by its first byte, as Java's ``FileChannel.tryLock(0, 1, false)`` does.

    The kernel drops it when the process dies, and also when the process closes any other handle of this file.
    """

    def __init__(self, path: str, content: bytes) -> None:
        """``content`` is written to the file. Raises UsageError when another process holds it."""
        with _mapped("lock", path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            os.close(self._fd)
            raise UsageError(
                "another process uses this folder; stop it first or choose another folder", path=path
            ) from error
        os.pwrite(self._fd, content, 0)

    def release(self) -> None:
        os.close(self._fd)


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


def read_file(disk: Disk, path: str) -> bytes:
    """A whole small file."""
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
