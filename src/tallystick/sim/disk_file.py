"""An open file of a simulated disk: the ``File`` of ``runtime/disk.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import BLOCK_BYTES, Buffer
from tallystick.sim.disk_content import Inode, Truncate, Write, apply_write

if TYPE_CHECKING:
    from tallystick.sim.disk import SimDisk


class SimFile:
    """An open file. After a crash every use of it raises Crashed; a use after its close is a bug."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, direct: bool, durable: bool) -> None:
        self._disk, self._path, self._inode, self._life = disk, path, inode, disk.life
        self._direct, self._durable = direct, durable
        disk.open_files.add(self)

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        assert not (self._direct and (offset % BLOCK_BYTES or len(data) % BLOCK_BYTES)), "a direct write of half blocks"
        is_cut = self._enter("write")
        room = self._disk.room_for(self._inode, offset + len(data))
        part = data[: len(data) - room] if room else data
        if is_cut:
            part = part[: self._disk.random.randint(0, len(part))]
        change = Write(offset, part)
        apply_write(self._inode.cached, change)
        self._inode.pending.append(change)
        if is_cut:
            self._disk.stop()
        if room:
            raise DiskFull("cannot write: no space left on the simulated disk", path=self._path)
        if self._durable:
            self.sync()
        return len(data)

    def read(self, size: int, offset: int) -> bytes:
        if self._enter("read"):
            self._disk.stop()
        return bytes(self._inode.cached[offset : offset + size])

    def sync(self) -> None:
        try:
            is_cut = self._enter("sync")
        except StorageError:
            self._inode.pending.clear()  # the kernel calls the pages clean although the disk never had them
            raise
        if is_cut:
            self._disk.stop()
        for change in self._inode.pending:
            apply_write(self._inode.durable, change)
        self._inode.pending.clear()

    def size(self) -> int:
        self._require_open()
        return len(self._inode.cached)

    def truncate(self, size: int) -> None:
        if self._enter("truncate"):
            self._disk.stop()
        apply_write(self._inode.cached, Truncate(size))
        self._inode.pending.append(Truncate(size))

    def allocate(self, size: int) -> None:
        if self._enter("allocate"):
            self._disk.stop()
        if self._disk.room_for(self._inode, size):
            raise DiskFull("cannot allocate: no space left on the simulated disk", path=self._path)
        if size > self.size():
            apply_write(self._inode.cached, Truncate(size))
            self._inode.pending.append(Truncate(size))

    def map(self) -> memoryview:
        if self._enter("map"):
            self._disk.stop()
        return memoryview(self._inode.cached).toreadonly()

    def close(self) -> None:
        """Closing writes nothing. Of a closed file it does nothing."""
        self._disk.open_files.discard(self)

    def _enter(self, operation: str) -> bool:
        is_cut = self._disk.enter(operation, self._path, self._life)
        self._require_open()
        return is_cut

    def _require_open(self) -> None:
        """Fails for a closed file, whose real descriptor may be another file's by now."""
        assert self in self._disk.open_files or self._life != self._disk.life, f"{self._path} is used after its close"
