"""Small files beside the log: what is durable, and whether the last process stopped in order.

``checkpoint``, of the original, big-endian, 4,096 bytes; times are store times in ms, 0 for never::

    log synced up to 8 | queues synced up to 8 | index synced up to 8 | master's flushed offset 8 | confirm offset 8
    physical offset from which to dispatch again after a crash 8

``abort`` is there while a process uses the store. ``tally-synced`` is ours alone; the original takes no notice of it.
It has two copies, at 0 and at 512, written in turn, so one of them is whole at any time::

    magic "TALLYST1" 8 | number 8 | synced 8 | dispatched 8 | border 8 | start 8 | file bytes 8 | CRC32C of that 4

Whatever is damaged below ``synced`` was once durable: damage, not a torn tail (R5). It is written once a second, so it
lags what is synced, and never leads. Sources: ``StoreCheckpoint``, ``StorePathConfigHelper``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace

from tallystick.codec.checksum import crc32c
from tallystick.runtime.disk import Disk, read_file

CHECKPOINT, ABORT, SIDECAR = "checkpoint", "abort", "tally-synced"
LOCK, LOCK_CONTENT = "lock", b"lock"  # held by ``runtime.disk.ByteLock``, as the original holds it
CHECKPOINT_BYTES = 4096
_CHECKPOINT = struct.Struct(">6q")
_MAGIC = b"TALLYST1"
_SIDECAR = struct.Struct(">8s6q")
_CRC = struct.Struct(">I")
_COPIES = (0, 512)
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
        """Messages stored before this time are dispatched, whatever happened."""
        return max(0, min(self.log_ms, self.queues_ms) - _SLACK_MS)


@dataclass(frozen=True)
class Synced:
    """Physical offsets. All but ``start`` grow."""

    number: int = 0
    synced: int = 0  # the log is durable up to here
    dispatched: int = 0  # queues and index are durable up to here: the end of a record
    border: int = 0  # a record begins here, some way before both: where the check after a start begins
    start: int = 0  # where the log began, if in the middle of a file
    file_bytes: int = 0


class CheckpointFile:
    """Reads once, then writes in place; all of it fits one sector."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._file = disk.open(os.path.join(directory, CHECKPOINT), create=True)
        data = self._file.read(_CHECKPOINT.size, 0)
        self.value = Checkpoint(*_CHECKPOINT.unpack(data)) if len(data) == _CHECKPOINT.size else Checkpoint()
        if self._file.size() < CHECKPOINT_BYTES:
            self._file.truncate(CHECKPOINT_BYTES)

    def write(self, value: Checkpoint) -> None:
        """Durable when it returns."""
        numbers = (value.log_ms, value.queues_ms, value.index_ms, value.master_flushed, value.confirm)
        self._file.write([_CHECKPOINT.pack(*numbers, value.dispatch_from)], 0)
        self._file.sync()
        self.value = value

    def close(self) -> None:
        self._file.close()


class SyncedFile:
    """``value`` is None when this store never was ours."""

    def __init__(self, disk: Disk, directory: str) -> None:
        path = os.path.join(directory, SIDECAR)
        self._file = disk.open(path, create=True)
        found = [
            copy for at in _COPIES if (copy := _decode(self._file.read(_SIDECAR.size + _CRC.size, at))) is not None
        ]
        self.value = max(found, key=lambda copy: copy.number, default=None)

    def write(self, value: Synced) -> None:
        """Replace the older copy; durable when it returns."""
        number = self.value.number + 1 if self.value else 1
        packed = _SIDECAR.pack(
            _MAGIC, number, value.synced, value.dispatched, value.border, value.start, value.file_bytes
        )
        self._file.write([packed, _CRC.pack(crc32c(packed))], _COPIES[number % len(_COPIES)])
        self._file.sync()
        self.value = replace(value, number=number)

    def close(self) -> None:
        self._file.close()


def _newest(data: bytes) -> Synced | None:
    copies = [copy for at in _COPIES if (copy := _decode(data[at : at + _SIDECAR.size + _CRC.size])) is not None]
    return max(copies, key=lambda copy: copy.number, default=None)


def _decode(data: bytes) -> Synced | None:
    if len(data) < _SIDECAR.size + _CRC.size or _CRC.unpack_from(data, _SIDECAR.size)[0] != crc32c(
        data[: _SIDECAR.size]
    ):
        return None
    magic, *numbers = _SIDECAR.unpack_from(data)
    return Synced(*numbers) if magic == _MAGIC else None


def stopped_in_order(disk: Disk, directory: str) -> bool:
    return not disk.exists(os.path.join(directory, ABORT))


def mark_running(disk: Disk, directory: str) -> None:
    """From now on a process that does not stop in order leaves a trace."""
    file = disk.open(os.path.join(directory, ABORT), create=True)
    pid = str(os.getpid()).encode()
    file.write([pid], 0)
    file.truncate(len(pid))
    file.sync()
    file.close()
    disk.sync_dir(directory)


def mark_stopped(disk: Disk, directory: str) -> None:
    disk.unlink(os.path.join(directory, ABORT))
    disk.sync_dir(directory)


def read_synced(disk: Disk, directory: str) -> Synced | None:
    """For those that only look."""
    path = os.path.join(directory, SIDECAR)
    return _newest(read_file(disk, path)) if disk.exists(path) else None
