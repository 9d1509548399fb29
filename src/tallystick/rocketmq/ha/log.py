"""What replication needs of a CommitLog: ``MessageStore`` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LogRange:
    """Physical offsets: the first byte still kept, the end, and the end of what is synced."""

    first: int
    end: int
    flushed: int


class ReplicatedLog(Protocol):
    """A CommitLog. Views and numbers are those of this moment."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def flushed(self) -> int: ...

    def slice(self, offset: int, limit: int) -> memoryview:
        """At most ``limit`` bytes from ``offset``, never over a file's border; empty at the end and outside."""
        ...

    def append_raw(self, offset: int, data: bytes | memoryview) -> int:
        """Append exactly at the end, or anywhere when the log is empty; the new end. Raises StorageError."""
        ...


def range_of(log: ReplicatedLog) -> LogRange:
    """As a core wants to know it."""
    return LogRange(log.first, log.end, log.flushed)


def place_of(log: ReplicatedLog) -> LogRange:
    """As a slave wants to know its own: one without a byte has no place, and goes on nowhere."""
    return range_of(log) if log.end > log.first else LogRange(0, 0, 0)
