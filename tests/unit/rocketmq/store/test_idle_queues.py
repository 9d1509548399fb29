"""Queues whose messages have expired, and whose files somebody deleted: nothing needs them any more."""

from __future__ import annotations

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.rocketmq.store.check import check_store

HOURS_MS = 3_600_000
IDLE = 24  # messages: more than a file of a queue has units


def expire(shelf: Shelf) -> None:
    """Let retention delete what is older than three days."""
    upkeep = shelf.store._upkeep
    upkeep.deletion_asked = True
    upkeep.clean(shelf.clock.ms + 80 * HOURS_MS)
    shelf.settle()


def idle(last: int) -> Shelf:
    """A store in which all messages of one queue have expired but the ``last`` ones."""
    shelf = Shelf()
    shelf.send(*[b"expires"] * (IDLE - last), topic="Idle")
    shelf.send(*[b"x" * 500] * 20)
    if last:
        shelf.send(*[b"stays"] * last, topic="Idle")
    shelf.settle()
    expire(shelf)
    assert shelf.store.queue_range("Idle", 0) == (IDLE - last, IDLE)
    return shelf


@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.parametrize("files", [(0,), (1,), (0, 1)])
def test_files_that_nothing_needs_are_not_missed_by_retention(last: int, files: tuple[int, ...]) -> None:
    """The broker ended at each retention run, after every start again."""
    shelf = idle(last)
    shelf.disk.kill()
    folder = f"{ROOT}/consumequeue/Idle/0"
    names = [f"{number * SMALL.consume_queue_file_units * 20:020}" for number in files]
    there = shelf.disk.listdir(folder)
    for name in names:
        if name in there:
            shelf.disk.unlink(f"{folder}/{name}")
    for _ in range(2):
        shelf.open()
        while shelf.store.rebuilding:
            shelf.store.rebuild()
        shelf.send(*[b"y" * 500] * 20)
        shelf.settle()
        assert shelf.bodies("Idle") == [b"stays"] * last
        expire(shelf)
        last = 0  # they have expired, too
        shelf.disk.kill()
    shelf.open()
    assert shelf.send(b"new", topic="Idle")[0].queue_offset == IDLE
    shelf.settle()
    assert shelf.bodies("Idle") == [b"new"]


@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize("unsynced", [1, 20])
def test_a_queue_without_its_first_file_gives_no_offset_again_after_its_log_lost_its_end(
    count: int, unsynced: int
) -> None:
    """Nothing was left of its units, and it began at 0: offsets of messages that had expired were given out again."""
    shelf = Shelf()
    shelf.send(*[b"expired"] * count)
    shelf.send(*[b"x" * 200] * 100, topic="Other")
    for _ in range(2):
        shelf.settle()
    shelf.expire()
    shelf.settle()
    shelf.send(*[b"unsynced"] * unsynced)
    shelf.store.reput()
    shelf.store._upkeep.save()
    shelf.disk.power_loss()
    folder = f"{ROOT}/consumequeue/Topic/0"
    shelf.disk.unlink(f"{folder}/{min(shelf.disk.sizes(folder))}")
    shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    assert shelf.send(b"next")[0].queue_offset >= count
    shelf.settle()
    assert shelf.bodies()[-1] == b"next"
    assert check_store(shelf.disk, ROOT, SMALL).findings == []
