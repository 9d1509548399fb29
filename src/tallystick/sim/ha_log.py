"""A CommitLog of the simulator: records with their length in front, files, what is synced, and what a crash leaves.

A record's bytes look random, so that no two are mixed up unnoticed. Recovery cuts a log behind its last whole record,
as the store's does; what is below the synced end survives everything.
"""

from __future__ import annotations

import random
import struct

from tallystick.errors import OffsetMismatch

_SIZE = struct.Struct(">H")
FILE_BYTES = 1024


class SimLog:
    """``first``, ``end``, ``flushed``, ``slice`` and ``append_raw`` are what the HA room asks of a store."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self.data = bytearray()
        self.first = self.flushed = 0

    @property
    def end(self) -> int:
        return len(self.data)

    def slice(self, offset: int, limit: int) -> memoryview:
        if not self.first <= offset < self.end:
            return memoryview(b"")
        border = offset - offset % FILE_BYTES + FILE_BYTES
        return memoryview(bytes(self.data[offset : min(offset + limit, border)]))

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        if not self.data:
            self.first = self.flushed = offset - offset % FILE_BYTES
            self.data = bytearray(offset)
        if offset != self.end:
            raise OffsetMismatch(offset=offset, end=self.end)
        self.data += data
        return self.end

    def put(self, count: int) -> int:
        """A master's append of some records; the new end. A record does not cross the border of two files."""
        for _ in range(count):
            record = self._random.randbytes(self._random.randint(1, 90))
            size = _SIZE.size + len(record)
            room = FILE_BYTES - self.end % FILE_BYTES
            if room < size:
                self.data += bytes(room)
            self.data += _SIZE.pack(len(record)) + record
        return self.end

    def drop_oldest(self) -> None:
        """Retention deletes the oldest file, but never the newest two, nor what is not synced."""
        if self.end - self.first > 2 * FILE_BYTES and self.first + FILE_BYTES <= self.flushed:
            self.first += FILE_BYTES

    def restart(self, *, power_loss: bool) -> None:
        """The process, or the machine, died and is back."""
        if power_loss:
            del self.data[self._random.randint(self.flushed, self.end) :]
        end = self._last_whole_record()
        del self.data[end:]
        self.flushed = self.end if power_loss else min(self.flushed, self.end)

    def _last_whole_record(self) -> int:
        at = self.first
        while at < self.end:
            border = at - at % FILE_BYTES + FILE_BYTES
            size = _SIZE.unpack_from(self.data, at)[0] if at + _SIZE.size <= min(self.end, border) else 0
            after = at + _SIZE.size + size if size else border  # no size: filler up to the border
            if after > self.end:
                break
            at = after
        return min(at, self.end)
