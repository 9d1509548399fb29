"""Settings of a bookie's storage."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tallystick.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True)
class StorageSettings:
    """One line a setting; units in the names. Raises UsageError for values that cannot work."""

    journal_segment_bytes: int = 16 * MIB  # zero-filled once, then used again and again
    journal_spare_segments: int = 8  # more free segments than these are deleted
    journal_bytes: int = 256 * MIB  # this much journal to replay makes a checkpoint due
    memtable_bytes: int = 64 * MIB  # this much in memory makes a checkpoint due
    chunk_bytes: int = 16 * 1024  # the part of an entry log that one checksum covers, and that is read for one entry
    read_cache_bytes: int = 32 * MIB  # checked chunks kept in memory
    open_logs: int = 256  # entry log files kept open
    compact_below: float = 0.2  # an entry log with a smaller part of live bytes is rewritten (minorCompactionThreshold)
    merge_logs: int = 8  # this many small entry logs are merged into one
    state_spare_bytes: int = (
        MIB  # room kept for the state that a full disk must still take; twice its size comes on top
    )
    deleted_memory_ms: int = 7 * 24 * 3600 * 1000  # how long a deleted ledger refuses adds after its last access
    deleted_memory_ledgers: int = 100_000  # and how many deleted ledgers are remembered
    given_up_memory_ledgers: int = 100_000  # and of those given up as newer than the metadata, without an end

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise UsageError(f"{field.name} must be above 0", value=getattr(self, field.name))
        if self.journal_segment_bytes < 8192:
            raise UsageError("a journal segment is at least 8 KiB", value=self.journal_segment_bytes)
