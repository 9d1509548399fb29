"""The small files: what the original reads, and what it leaves."""

from __future__ import annotations

import pytest

from support.message_stores import Shelf, store_disk
from tallystick.rocketmq.store.checkpoint import (
    Checkpoint,
    CheckpointFile,
    mark_running,
    mark_stopped,
    stopped_in_order,
)
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return store_disk()


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


def test_abort_tells_whether_the_stop_was_orderly(disk: SimDisk) -> None:
    assert stopped_in_order(disk, "/store")
    mark_running(disk, "/store")
    disk.power_loss()
    assert not stopped_in_order(disk, "/store")
    mark_stopped(disk, "/store")
    disk.power_loss()
    assert stopped_in_order(disk, "/store")


def test_the_checkpoint_learns_of_a_sync_that_came_while_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the original, killed and opened with an idle log, drops an index file that is whole."""
    shelf = Shelf()
    shelf.send(b"one", KEYS="k")
    shelf.store.reput()
    queues = shelf.store._queues
    sync = queues.sync

    def sync_slowly(changed: list[ConsumeQueue]) -> None:
        sync(changed)
        shelf.store.flush()

    monkeypatch.setattr(queues, "sync", sync_slowly)
    for _ in range(2):
        shelf.store.maintain(shelf.clock.ms)
    value = CheckpointFile(shelf.disk, "/store").value
    assert value.dispatch_from == shelf.store.end > 0
    assert value.log_ms == value.index_ms > 0
