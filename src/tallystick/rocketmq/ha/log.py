"""The CommitLog as replication uses it; ``MessageStore`` implements it."""

from __future__ import annotations

from typing import Protocol

import msgspec


# A struct is made in a tenth of the time of a dataclass, and there is one for each event.
class LogRange(msgspec.Struct, frozen=True, gc=False):
    """Three physical offsets of a log: its first byte, its end, and the end of what is synced."""

    first: int
    end: int
    flushed: int


class ReplicatedLog(Protocol):
    """A CommitLog. Views and offsets are those of the moment of the call."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def flushed(self) -> int: ...

    def slice(self, offset: int, limit: int) -> memoryview:
        """Returns at most ``limit`` bytes from ``offset``, never beyond the end of a file; empty at the end and
        outside."""
        ...

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        """Append exactly at the end, or anywhere if the log is empty. Returns the new end. Raises StorageError."""
        ...


def range_of(log: ReplicatedLog) -> LogRange:
    """Returns the range of a log, as a core gets it."""
    return LogRange(log.first, log.end, log.flushed)


def place_of(log: ReplicatedLog) -> LogRange:
    """Returns the range of a slave's own log. One without a byte has no place, whatever its files are named."""
    return range_of(log) if log.end > log.first else LogRange(0, 0, 0)
