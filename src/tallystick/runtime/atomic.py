"""A file of a ``Disk`` that is replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable

from tallystick.runtime.disk import Buffer, Disk, File


class AtomicWrite:
    """A file is replaced so that a crash leaves the old or the new content: temp, sync, rename, sync folder.

    ``write`` it, piece by piece, and ``finish``; ``close`` it in any case.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self._path, self._temporary, self._end = disk, path, path + ".new", 0
        if disk.exists(self._temporary):
            disk.unlink(self._temporary)
        self._file: File | None = disk.open(self._temporary, create=True)

    def write(self, *data: Buffer) -> None:
        assert self._file is not None, "it is written after it was closed"
        self._file.write(data, self._end)
        self._end += sum(memoryview(piece).nbytes for piece in data)

    def finish(self, replacing: Callable[[], None] = lambda: None) -> None:
        """``replacing`` is called when the new content is on the disk, before it takes the place of the old one."""
        assert self._file is not None, "it is finished after it was closed"
        self._file.sync()
        self.close()
        replacing()
        self._disk.rename(self._temporary, self._path)
        self._disk.sync_dir(os.path.dirname(self._path))

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def write_atomic(disk: Disk, path: str, *data: Buffer) -> None:
    """``AtomicWrite`` of all at once."""
    new = AtomicWrite(disk, path)
    try:
        new.write(*data)
        new.finish()
    finally:
        new.close()
