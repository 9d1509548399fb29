"""A CommitLog in memory, as the HA room sees one."""

from __future__ import annotations

from tallystick.errors import OffsetMismatch, StorageError


class MemoryLog:
    """Files of ``file_bytes``; everything before ``first`` is deleted. ``failure``: the next append raises it."""

    def __init__(self, data: bytes = b"", *, start: int = 0, file_bytes: int = 1 << 20) -> None:
        self.file_bytes, self.first = file_bytes, start
        self.data = bytearray(start) + data
        self.flushed = len(self.data) if data else 0
        self.failure: StorageError | None = None
        self.appends: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        return len(self.data)

    def slice(self, offset: int, limit: int) -> memoryview:
        if not self.first <= offset < self.end:
            return memoryview(b"")
        border = offset - offset % self.file_bytes + self.file_bytes
        return memoryview(bytes(self.data[offset : min(offset + limit, border)]))

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        if self.failure is not None:
            raise self.failure
        if not self.data:
            self.data = bytearray(offset)
            self.first = offset - offset % self.file_bytes
        if offset != self.end:
            raise OffsetMismatch(offset=offset, end=self.end)
        self.data += data
        self.appends.append((offset, len(data)))
        return self.end

    def put(self, data: bytes) -> int:
        """As a master appends; the new end."""
        self.data += data
        return self.end

    def flush(self) -> int:
        self.flushed = self.end
        return self.flushed
