"""Files of the operating system: the ``File`` of ``disk.py``, and its errors as ours."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tallystick.codec.parts import copy_parts
from tallystick.errors import DiskFull, StorageError

if TYPE_CHECKING:
    from tallystick.runtime.disk import Buffer

IOV_MAX = 1024
_STAGING_BYTES = 1024 * 1024


@contextlib.contextmanager
def os_errors(action: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error) from error


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(f"cannot {action}: {error.strerror}", path=path)


_CLOSED = 2**31 - 1  # no process has it: every call refuses it


class OsFile:
    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd = path, fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        start = offset
        try:  # as os_errors does it, which costs as much as a short write
            for first in range(0, len(buffers), IOV_MAX):
                offset += self._write_some(buffers[first : first + IOV_MAX], offset)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
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
            raise storage_error("read", self._path, error) from error
        return data

    def sync(self) -> None:
        try:  # as in ``write``
            os.fdatasync(self._fd)
        except OSError as error:
            raise storage_error("sync", self._path, error) from error

    def size(self) -> int:
        with os_errors("stat", self._path):
            return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with os_errors("truncate", self._path):
            os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        with os_errors("allocate", self._path):
            os.posix_fallocate(self._fd, 0, size)

    def map(self) -> memoryview:
        with os_errors("map", self._path):
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


class DirectFile(OsFile):
    """Writes past the page cache: a page that is new in it costs many times the copy of its bytes."""

    _staging = _Staging()

    def __init__(self, path: str, fd: int, direct_fd: int) -> None:
        super().__init__(path, fd)  # for all but writes; the kernel keeps the two views of the file the same
        self._direct_fd = direct_fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        start = offset
        try:  # as in ``OsFile.write``
            for load in _loads(buffers):
                offset += self._write_staged(copy_parts(load, self._staging.memory), offset)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        return offset - start

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


def _loads(buffers: Sequence[Buffer]) -> Iterator[Sequence[Buffer]]:
    """The same bytes in as much as a thread's memory takes at a time, which is all of them if it can be."""
    if sum(map(len, buffers)) <= _STAGING_BYTES:
        yield buffers
        return
    load: list[Buffer] = []
    room = _STAGING_BYTES
    for buffer in buffers:
        rest = memoryview(buffer)
        while len(rest):
            load.append(rest[:room])
            rest, room = rest[room:], room - len(load[-1])
            if not room:
                yield load
                load, room = [], _STAGING_BYTES
    yield load


def open_direct(path: str, flags: int) -> int | None:
    """Open a file past the page cache. Returns None where the (file) system has no such way."""
    try:
        return os.open(path, flags | os.O_DIRECT)
    except (AttributeError, OSError):
        return None


def make_private_folders(path: str) -> None:
    """Make a folder and those above it that are missing, for this account alone: ``os.makedirs`` gives its mode to the
    last one only. Raises OSError."""
    if os.path.isdir(path):
        return
    higher = os.path.dirname(path.rstrip("/"))
    if higher and higher != path:
        make_private_folders(higher)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
