"""A disk whose power loss treats each record of a CommitLog as one piece: lost, kept, or cut off somewhere.

The layout has a checksum of a record's body and of nothing else. A hole in the rest of a record, with its end on the
disk, may pass for a whole record, and nobody can tell it from one; so no promise is made about it, and none is checked.
Whole records may still be missing before others, and all other files lose what they lose byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallystick.codec.records import BLANK
from tallystick.sim.disk import SimDisk
from tallystick.sim.disk_file import SimFile

_MAGIC_AT, _HEAD_BYTES = 4, 8


class _File(SimFile):
    def sync(self) -> None:
        super().sync()
        if isinstance(self._disk, RecordDisk) and self._disk.after_sync is not None:
            self._disk.after_sync()


class RecordDisk(SimDisk):
    """See the module. Files of a CommitLog are told by their folder. ``after_sync`` happens before a sync returns."""

    file_type = _File
    after_sync: Callable[[], None] | None = None

    def power_loss(self) -> None:
        for path in list(self._names):
            if "/commitlog/" in path:
                self._write_records(path)
        super().power_loss()

    def _write_records(self, path: str) -> None:
        """Returns the bytes that were not synced and come to the medium all the same."""
        inode = self._inode(path)
        if not inode.pending:
            return
        inode.pending.clear()
        size = self.random.choice((len(inode.durable), len(inode.cached)))
        inode.durable.extend(bytes(max(0, size - len(inode.durable))))
        for start, end in _pieces(inode.cached):
            survivor_end = start + self.random.choice((0, end - start, self.random.randint(0, end - start)))
            if survivor_end > start:
                inode.durable.extend(bytes(max(0, survivor_end - len(inode.durable))))
                inode.durable[start:survivor_end] = inode.cached[start:survivor_end]


def _pieces(content: bytearray) -> Iterator[tuple[int, int]]:
    """Returns begin and end of each record; the last piece is what follows them."""
    start = 0
    while start + _HEAD_BYTES <= len(content):
        size, magic = (int.from_bytes(content[at : at + 4], "big") for at in (start, start + _MAGIC_AT))
        end = start + size
        if magic == BLANK or size < _HEAD_BYTES or end > len(content):
            break
        yield start, end
        start = end
    yield start, len(content)
