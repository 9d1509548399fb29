"""The small files: what a torn write leaves, what the original reads."""

from __future__ import annotations

import random

import pytest

from tallystick.rocketmq.store.checkpoint import (
    SIDECAR,
    Checkpoint,
    CheckpointFile,
    Synced,
    SyncedFile,
    mark_running,
    mark_stopped,
    read_synced,
    stopped_in_order,
)
from tallystick.sim.disk import Crashed, SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/store")
    disk.sync_dir("/")
    return disk


def test_the_checkpoint_has_the_originals_layout(disk: SimDisk) -> None:
    file = CheckpointFile(disk, "/store")
    assert file.value == Checkpoint()
    file.write(Checkpoint(10_000, 9_000, 8_000, dispatch_from=77))
    data = disk.open("/store/checkpoint").read(4096, 0)
    assert len(data) == 4096
    assert data[:48].hex() == "00000000000027100000000000002328" + "0000000000001f40" + "00" * 23 + "4d"
    assert CheckpointFile(disk, "/store").value.dispatch_from == 77
    assert file.value.min_ms == 6_000
    assert Checkpoint(5, 5).min_ms == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_write_leaves_the_copy_before(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/store")
    disk.sync_dir("/")
    file = SyncedFile(disk, "/store")
    disk.sync_dir("/store")
    file.write(Synced(synced=100))
    file.write(Synced(synced=200))
    disk.crash_at = disk.operations + 1 + seed % 2
    with pytest.raises(Crashed):
        file.write(Synced(synced=300))
    disk.power_loss()
    found = read_synced(disk, "/store")
    assert found is not None
    assert found.synced in (200, 300)
    again = SyncedFile(disk, "/store")
    again.write(Synced(synced=400))
    assert read_synced(disk, "/store") == again.value


def test_a_flipped_bit_is_no_number(disk: SimDisk) -> None:
    assert read_synced(disk, "/store") is None
    file = SyncedFile(disk, "/store")
    file.write(Synced(synced=100))
    assert file.value is not None
    disk.flip(f"/store/{SIDECAR}", 512 + 20)
    assert SyncedFile(disk, "/store").value is None


def test_abort_tells_whether_the_stop_was_orderly(disk: SimDisk) -> None:
    assert stopped_in_order(disk, "/store")
    mark_running(disk, "/store")
    disk.power_loss()
    assert not stopped_in_order(disk, "/store")
    mark_stopped(disk, "/store")
    disk.power_loss()
    assert stopped_in_order(disk, "/store")
