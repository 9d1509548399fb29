"""Settings of one store directory."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from tallystick.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
MIN_FILE_BYTES = KIB  # of the log: a record has 91 bytes beside its topic, its properties and its body
_HOST = bytes((127, 0, 0, 1, 0, 0, 10911 >> 8, 10911 & 0xFF))


@dataclass(frozen=True)
class StoreSettings:
    """One line a setting; units in the names; the original's key in brackets. Raises UsageError for bad values."""

    store_host: bytes = (
        _HOST  # address and port in each record and in message ids: the broker's (brokerIP1, listenPort)
    )
    commit_log_file_bytes: int = 1024 * MIB  # of each file (mappedFileSizeCommitLog)
    consume_queue_file_units: int = 300_000  # of each file, 20 bytes each (mappedFileSizeConsumeQueue counts bytes)
    index_slots: int = 5_000_000  # of each index file (maxHashSlotNum)
    index_entries: int = 20_000_000  # of each index file (maxIndexNum)
    index: bool = True  # keep one (messageIndexEnable)
    sync_flush: bool = False  # nothing unsynced is readable on a master (flushDiskType = SYNC_FLUSH)
    flush_interval_ms: int = 500  # between two flushes that nobody waits for (flushIntervalCommitLog)
    max_message_bytes: int = 4 * MIB  # of a body or a batch (maxMessageSize)
    max_topic_bytes: int = 127  # of a name; 255 for retry topics
    file_reserved_hours: int = 72  # how long a file is kept (fileReservedTime)
    delete_hour: int = 4  # of the day, local time, when old files go (deleteWhen)
    disk_delete_ratio: int = 75  # percent used: old files go at once (diskMaxUsedSpaceRatio)
    disk_clean_ratio: int = 85  # percent used: files go whatever their age (diskSpaceCleanForciblyRatio)
    disk_refuse_ratio: int = 90  # percent used: no more messages are taken (diskSpaceWarningLevelRatio)
    max_bytes_in_memory: int = 256 * KIB  # of one read of new messages (maxTransferBytesOnMessageInMemory)
    max_count_in_memory: int = 32  # (maxTransferCountOnMessageInMemory)
    max_bytes_on_disk: int = 64 * KIB  # of one read of old ones (maxTransferBytesOnMessageInDisk)
    max_count_on_disk: int = 8  # (maxTransferCountOnMessageInDisk)
    memory_bytes: int = 0  # of the machine; 0 asks it
    memory_percent: int = 40  # how much of it holds new messages (accessMessageInMemoryMaxRatio)
    max_query_count: int = 64  # messages of one query by key (maxMsgsNumBatch)
    max_open_files: int = 1024  # files and views of the log, of queues and index together, open at a time
    # A slave's part of a log becomes a master's though nobody told it where queues end (queueEndsMayBeUnknown, ours).
    ends_may_be_unknown: bool = False
    offset_check_in_slave: bool = False  # a slave corrects the offsets of readers too (offsetCheckInSlave)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and field.name not in ("memory_bytes", "delete_hour") and value < 1:
                raise UsageError(f"{field.name} must be at least 1", value=value)
        if self.commit_log_file_bytes < MIN_FILE_BYTES:
            raise UsageError(
                f"commit_log_file_bytes must be at least {MIN_FILE_BYTES}: no message fits into a shorter file",
                value=self.commit_log_file_bytes,
            )
        if not 0 <= self.delete_hour <= 23:
            raise UsageError("delete_hour is an hour of the day", value=self.delete_hour)
        if len(self.store_host) not in (8, 20):
            raise UsageError("store_host is an IP address and a port, 8 or 20 bytes", value=self.store_host)
        if not self.disk_delete_ratio <= self.disk_clean_ratio <= self.disk_refuse_ratio <= 100:
            raise UsageError(
                "the disk ratios must rise, and none is above 100: diskMaxUsedSpaceRatio, diskSpaceCleanForciblyRatio, "
                "diskSpaceWarningLevelRatio",
                values=(self.disk_delete_ratio, self.disk_clean_ratio, self.disk_refuse_ratio),
            )

    @property
    def recent_bytes(self) -> int:
        """The newest part of the log that counts as in memory."""
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return memory * self.memory_percent // 100
