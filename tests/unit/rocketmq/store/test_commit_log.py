"""The log's files: what a disk that fails between two of them does to the log."""

from __future__ import annotations

import random

import pytest

from tallystick.errors import StorageError
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.synced import SyncedFile
from tallystick.sim.disk import SimDisk

SIZE = 1000


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/log")
    return disk


def test_a_log_stops_where_the_name_of_its_file_cannot_be_made_durable(disk: SimDisk) -> None:
    log = CommitLog(FileQueue(disk, "/log", SIZE, mapped=True), 0, 0, SyncedFile(disk, "/log"))
    log.append([bytes(900)], 900)
    disk.fault = lambda operation, path: StorageError("broken") if operation == "sync_dir" else None
    with pytest.raises(StorageError, match="broken"):
        log.end_file()
    disk.fault = None
    with pytest.raises(StorageError, match="the store stopped after a disk error"):
        log.flush()
    assert log.end == 900
