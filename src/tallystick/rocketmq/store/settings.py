"""Settings of one store directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from tallystick.errors import UsageError
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Key, Part

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
    max_bytes_in_memory: int = MIB  # of one read of new messages (maxTransferBytesOnMessageInMemory)
    max_count_in_memory: int = 512  # (maxTransferCountOnMessageInMemory)
    max_bytes_on_disk: int = 256 * KIB  # of one read of old ones (maxTransferBytesOnMessageInDisk)
    max_count_on_disk: int = 256  # (maxTransferCountOnMessageInDisk)
    memory_bytes: int = 0  # of the machine; 0 asks it
    memory_percent: int = 40  # how much of it holds new messages (accessMessageInMemoryMaxRatio)
    max_query_count: int = 64  # messages of one query by key (maxMsgsNumBatch)
    max_sink_partitions: int = 100_000  # of all sinks whose messages are stored once (maxSinkPartitions, ours)
    sink_expire_days: int = 30  # how long a sink is remembered that sends nothing (sinkExpireDays, ours)
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
        """The size of the newest part of the log, which counts as in memory."""
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return memory * self.memory_percent // 100


# The keys


def _sync_flush(key: str, value: str) -> bool:
    if value.upper() not in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        raise UsageError(f"{key} is SYNC_FLUSH or ASYNC_FLUSH", value=value)
    return value.upper() == "SYNC_FLUSH"


def _units(key: str, value: str) -> int:
    file_bytes = keyfile.integer(key, value)
    if file_bytes < UNIT.size:
        raise UsageError(f"{key} must be at least {UNIT.size}: a unit of a queue", value=value)
    return file_bytes // UNIT.size


def _hour(key: str, value: str) -> int:
    hours = [part for part in value.split(";") if part]
    if len(hours) != 1:
        raise UsageError(f"{key} is one hour of the day", value=value)
    return keyfile.integer(key, hours[0])


def _percent_used(at_least: int) -> Callable[[str, str], int]:
    """A share of the disk, not below what the original takes; above 95 it is 95, as there."""

    def parse(key: str, value: str) -> int:
        percent = keyfile.integer(key, value)
        if not at_least <= percent <= 100:
            raise UsageError(f"{key} is {at_least} to 95 per cent", value=value)
        return min(percent, 95)

    return parse


def _make_room(store: dict[str, Any]) -> None:
    """Disk ratios that are not given make way for those that are: they must rise (delete, clean, refuse)."""
    usual = StoreSettings()
    highest = store.get("disk_refuse_ratio", 100)
    lowest = min(store.get("disk_clean_ratio", highest), highest)
    delete = store.setdefault("disk_delete_ratio", min(usual.disk_delete_ratio, lowest))
    clean = store.setdefault("disk_clean_ratio", min(max(usual.disk_clean_ratio, delete), highest))
    store.setdefault("disk_refuse_ratio", max(usual.disk_refuse_ratio, clean))


KEYS = Part(
    StoreSettings,
    {
        "flushDiskType": Key("sync_flush", _sync_flush, lambda sync: "SYNC_FLUSH" if sync else "ASYNC_FLUSH"),
        "mappedFileSizeCommitLog": Key("commit_log_file_bytes", keyfile.integer),
        "mappedFileSizeConsumeQueue": Key("consume_queue_file_units", _units, lambda units: str(units * UNIT.size)),
        "maxHashSlotNum": Key("index_slots", keyfile.integer),
        "maxIndexNum": Key("index_entries", keyfile.integer),
        "messageIndexEnable": Key("index", keyfile.flag),
        "flushIntervalCommitLog": Key("flush_interval_ms", keyfile.integer),
        "maxMessageSize": Key("max_message_bytes", keyfile.integer),
        "fileReservedTime": Key("file_reserved_hours", keyfile.integer),
        "deleteWhen": Key("delete_hour", _hour),
        "diskMaxUsedSpaceRatio": Key("disk_delete_ratio", _percent_used(10)),
        "diskSpaceCleanForciblyRatio": Key("disk_clean_ratio", _percent_used(30)),
        "diskSpaceWarningLevelRatio": Key("disk_refuse_ratio", _percent_used(35)),
        "maxTransferBytesOnMessageInMemory": Key("max_bytes_in_memory", keyfile.integer),
        "maxTransferCountOnMessageInMemory": Key("max_count_in_memory", keyfile.integer),
        "maxTransferBytesOnMessageInDisk": Key("max_bytes_on_disk", keyfile.integer),
        "maxTransferCountOnMessageInDisk": Key("max_count_on_disk", keyfile.integer),
        "accessMessageInMemoryMaxRatio": Key("memory_percent", keyfile.integer),
        "maxMsgsNumBatch": Key("max_query_count", keyfile.integer),
        "maxSinkPartitions": Key("max_sink_partitions", keyfile.integer),
        "sinkExpireDays": Key("sink_expire_days", keyfile.integer),
        "offsetCheckInSlave": Key("offset_check_in_slave", keyfile.flag),
        "queueEndsMayBeUnknown": Key("ends_may_be_unknown", keyfile.flag),
    },
    _make_room,
)
