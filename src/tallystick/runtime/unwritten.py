"""A disk that is read and never changed: whatever is written to it is gone.

For who looks at files with code that repairs what it can: a journal's torn end stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.runtime.beside import Beside
from tallystick.runtime.disk import Buffer, Disk, File, Lock, Usage


class _UnwrittenFile:
    """A file of the disk, or of nothing; see the module."""

    def __init__(self, file: File | None) -> None:
        self._file = file

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        return sum(memoryview(buffer).nbytes for buffer in buffers)

    def read(self, size: int, offset: int) -> bytes:
        return b"" if self._file is None else self._file.read(size, offset)

    def sync(self) -> None:
        pass

    def size(self) -> int:
        return 0 if self._file is None else self._file.size()

    def truncate(self, size: int) -> None:
        pass

    def allocate(self, size: int) -> None:
        pass

    def map(self) -> memoryview:
        return memoryview(b"") if self._file is None else self._file.map()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class UnwrittenDisk:
    """A ``Disk`` over another one. Files that are created are empty, and gone when they are closed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False, direct: bool = False, durable: bool = False) -> File:
        is_new = create and not self._disk.exists(path)
        return _UnwrittenFile(None if is_new else self._disk.open(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def listdir(self, path: str) -> list[str]:
        return self._disk.listdir(path)

    def sizes(self, path: str) -> dict[str, int]:
        return self._disk.sizes(path)

    def size(self, path: str) -> int | None:
        return self._disk.size(path)

    def makedirs(self, path: str) -> None:
        pass

    def rename(self, source: str, target: str) -> None:
        pass

    def unlink(self, path: str) -> None:
        pass

    def remove_folder(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass

    def sync_all(self, path: str) -> None:
        pass

    def epoch(self) -> str:
        return self._disk.epoch()

    def usage(self, path: str) -> Usage:
        return self._disk.usage(path)

    def lock(self, path: str) -> Lock:
        return self._disk.lock(path)

    def lock_file(self, path: str, content: bytes) -> Lock:
        return self._disk.lock_file(path, content)

    def beside(self, name: str) -> Beside:
        return self._disk.beside(name)
