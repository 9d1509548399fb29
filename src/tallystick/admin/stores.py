"""A broker's store directory, ours or the original's, seen from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tallystick.errors import NotFound, UsageError
from tallystick.rocketmq.store.check import CheckReport, check_store
from tallystick.rocketmq.store.consume_queues import list_queues
from tallystick.rocketmq.store.index_file import ENTRY, HEADER_BYTES, SLOT_BYTES
from tallystick.rocketmq.store.settings import KEYS, StoreSettings
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime.disk import Disk, OsDisk

SIZE_KEYS = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")

# An index file's size does not tell how many slots and how many entries it has, but for the usual ratio of the two.
_ENTRIES_PER_SLOT = 4
_SLOT_SHARE = SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY.size


def check(directory: str, overrides: Mapping[str, str]) -> CheckReport:
    """Check it all; nothing is written. ``overrides``: sizes that its files do not tell, by key.

    Raises NotFound, UsageError, StorageError.
    """
    disk = OsDisk()
    if not disk.exists(directory):
        raise NotFound("there is no such folder", directory=directory)
    if not disk.exists(os.path.join(directory, "commitlog")):
        below = os.path.join(directory, "data")  # as of a development cluster's brokers
        hint = f"; there is one in {below}" if disk.exists(os.path.join(below, "commitlog")) else ""
        raise NotFound(f"no store of a broker here: it has no folder commitlog{hint}", directory=directory)
    return check_store(disk, directory, settings_of(disk, directory, overrides))


def settings_of(disk: Disk, directory: str, overrides: Mapping[str, str]) -> StoreSettings:
    """The sizes that a store was made with. All files of a kind have one size, so the first tells that of all."""
    unknown = sorted({*overrides} - {*SIZE_KEYS})
    if unknown:
        raise UsageError(f"the check knows these settings: {', '.join(SIZE_KEYS)}", given=",".join(unknown))
    found_sizes: dict[str, Any] = {}
    if size := _first_size(disk, os.path.join(directory, "commitlog")):
        found_sizes["commit_log_file_bytes"] = size
    queues = os.path.join(directory, "consumequeue")
    for topic, queue_id in list_queues(disk, queues):
        if size := _first_size(disk, os.path.join(queues, topic, str(queue_id))):
            found_sizes["consume_queue_file_units"] = size // UNIT.size
            break
    if (size := _first_size(disk, os.path.join(directory, "index"))) and not (size - HEADER_BYTES) % _SLOT_SHARE:
        slots = (size - HEADER_BYTES) // _SLOT_SHARE
        found_sizes["index_slots"], found_sizes["index_entries"] = slots, slots * _ENTRIES_PER_SLOT
    overriding = dict(KEYS.parse(name, text) for name, text in overrides.items())
    return replace(StoreSettings(), **{**found_sizes, **overriding})


def _first_size(disk: Disk, folder: str) -> int:
    """0: there is no file, or an empty one."""
    names = sorted(name for name in disk.listdir(folder) if name.isdecimal()) if disk.exists(folder) else []
    return os.path.getsize(os.path.join(folder, names[0])) if names else 0
