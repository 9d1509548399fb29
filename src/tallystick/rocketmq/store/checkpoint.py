"""Small files beside the log: what is durable, and whether the last process stopped in order.

``checkpoint``, of the original, big-endian, 4,096 bytes; times are store times in ms, 0 for never::

    log synced up to 8 | queues synced up to 8 | index synced up to 8 | master's flushed offset 8 | confirm offset 8
    physical offset from which to dispatch again after a crash 8

``abort`` is there while a process uses the store. ``tally-synced``: ``synced.py``.
Sources: ``StoreCheckpoint``, ``StorePathConfigHelper``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from tallystick.runtime.disk import Disk

CHECKPOINT, ABORT = "checkpoint", "abort"
LOCK, LOCK_CONTENT = "lock", b"lock"  # held by ``runtime.folder_lock.ByteLock``, as the original holds it
CHECKPOINT_BYTES = 4096
_CHECKPOINT = struct.Struct(">6q")
_SLACK_MS = 3000  # the original's: how far it goes back behind its own times


@dataclass(frozen=True)
class Checkpoint:
    """The times of the last messages that are synced; ``dispatch_from`` 0: unknown."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed: int = 0
    confirm: int = 0
    dispatch_from: int = 0

    @property
    def min_ms(self) -> int:
        """The store time before which all messages are dispatched and durable."""
        return max(0, min(self.log_ms, self.queues_ms) - _SLACK_MS)


class CheckpointFile:
    """The file ``checkpoint``: read once, then written in place, as it fits one sector."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._file = disk.open(os.path.join(directory, CHECKPOINT), create=True)
        data = self._file.read(_CHECKPOINT.size, 0)
        self.value = Checkpoint(*_CHECKPOINT.unpack(data)) if len(data) == _CHECKPOINT.size else Checkpoint()
        if self._file.size() < CHECKPOINT_BYTES:
            self._file.truncate(CHECKPOINT_BYTES)

    def write(self, value: Checkpoint) -> None:
        """Write a checkpoint. It is durable when this returns."""
        numbers = (value.log_ms, value.queues_ms, value.index_ms, value.master_flushed, value.confirm)
        self._file.write([_CHECKPOINT.pack(*numbers, value.dispatch_from)], 0)
        self._file.sync()
        self.value = value

    def close(self) -> None:
        self._file.close()


def stopped_in_order(disk: Disk, directory: str) -> bool:
    return not disk.exists(os.path.join(directory, ABORT))


def mark_running(disk: Disk, directory: str) -> None:
    """Make ``abort``: it stays if this process does not stop in order."""
    file = disk.open(os.path.join(directory, ABORT), create=True)
    pid = b"%07d" % os.getpid()  # of one length: whatever a crash leaves of it is as long in each run
    try:
        file.write([pid], 0)
        file.truncate(len(pid))
        file.sync()
    finally:
        file.close()
    disk.sync_dir(directory)


def mark_stopped(disk: Disk, directory: str) -> None:
    disk.unlink(os.path.join(directory, ABORT))
    disk.sync_dir(directory)
