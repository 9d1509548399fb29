"""A power loss took the unsynced end of the log, and with it what told where queues ended."""

from __future__ import annotations

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.rocketmq.store.check import check_store
from tallystick.sim.disk import SimDisk

QUEUE = f"{ROOT}/consumequeue/Topic/0"
COUNT = 100  # a file of a queue has 16 units


@pytest.mark.parametrize("kept_files", [0, 6], ids=["all files lost", "the first file lost"])
def test_a_queue_with_a_hole_that_loses_its_end_gives_no_offset_out_twice(kept_files: int) -> None:
    """Retention had deleted all that the log had of the queue: it went on at the first offset that its files lacked,
    below those of messages that had been durable, and read."""
    shelf = Shelf()
    shelf.send(*[b"old"] * COUNT)
    shelf.settle()
    shelf.disk.kill()
    lose_files(shelf.disk, kept_files)
    shelf.open()
    shelf.send(*[b"x" * 900] * 6, topic="Other")
    shelf.settle()
    shelf.expire()
    assert shelf.store.rebuilding
    durable = shelf.store.end
    shelf.send(b"lost")
    shelf.store.reput()
    shelf.store.maintain(shelf.clock.ms)
    lose_end(shelf.disk, durable)
    shelf.open()
    assert shelf.store.end == durable
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    (put,) = shelf.send(b"new")
    assert put.queue_offset == COUNT
    shelf.settle()
    assert shelf.bodies() == [b"new"]
    with shelf.disk.undisturbed():
        assert check_store(shelf.disk, ROOT, SMALL).findings == []


def test_a_queue_that_was_built_again_from_where_the_log_begins_loses_no_more_than_the_log() -> None:
    """Its file had zeros where the messages had expired: the search for its end took these for messages behind the end
    of the log, and all that the queue had was gone."""
    shelf = Shelf()
    shelf.send(*[b"expired" + b"x" * 400] * 10)
    shelf.send(*[b"kept" + b"x" * 400] * 4)
    shelf.settle()
    shelf.expire()
    first, end = shelf.store.queue_range("Topic", 0)
    assert end == 14 and first % 16 > end // 2  # where the search looks first
    shelf.disk.kill()
    lose_files(shelf.disk, 0)
    shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    shelf.settle()
    kept = shelf.bodies()
    durable = shelf.store.end
    shelf.send(b"lost")
    shelf.store.reput()
    shelf.store.maintain(shelf.clock.ms)
    lose_end(shelf.disk, durable)
    shelf.open()
    assert shelf.store.end == durable
    assert shelf.bodies() == kept
    assert shelf.store.queue_range("Topic", 0) == (first, end)


def test_a_file_of_expired_messages_before_a_lost_one_goes_with_it() -> None:
    """It stayed for good behind a kill, and a check of the store found a gap behind it."""
    shelf = Shelf()
    for _ in range(2):
        shelf.send(*[b"x" * 400] * (COUNT // 2))
        for _ in range(3):
            shelf.store.reput()
            shelf.store.maintain(shelf.clock.ms)
        if shelf.store.rebuilding:  # till then no file of the queue goes
            shelf.expire()
        shelf.disk.kill()
        lose_files(shelf.disk, 0)
        shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    shelf.settle()
    first, end = shelf.store.queue_range("Topic", 0)
    names = sorted(shelf.disk.listdir(QUEUE))
    assert int(names[2]) // 20 <= first < end == COUNT, "files whose messages have all expired"
    shelf.disk.kill()
    shelf.disk.unlink(f"{QUEUE}/{names[1]}")
    shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    assert sorted(shelf.disk.listdir(QUEUE)) == names[2:]
    assert shelf.store.queue_range("Topic", 0) == (first, end) and len(shelf.bodies()) == end - first
    with shelf.disk.undisturbed():
        assert check_store(shelf.disk, ROOT, SMALL).findings == []


def test_a_promoted_slave_that_loses_what_came_since_gives_no_offset_of_its_master_out_again() -> None:
    """It had a part of the log, and was told where the queues end. The first messages behind that were lost before
    they were durable, and with them what was told: their queue went on where the part of the log ends."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"copied"] * 10)
    slave.store.append_raw(0, bytes(master.store.slice(0, 1 << 20)))
    slave.settle()
    slave.store.replicated.learn_ends({("Topic", 0): COUNT}, master.store.end, 0)
    slave.store.promote()
    slave.store.take_role(slave=False)
    durable = slave.store.end
    assert slave.send(b"lost")[0].queue_offset == COUNT
    slave.store.reput()
    slave.store.maintain(slave.clock.ms)
    lose_end(slave.disk, durable)
    slave.open()
    assert slave.store.end == durable
    assert slave.send(b"new")[0].queue_offset == COUNT
    slave.settle()
    assert slave.bodies() == [*[b"copied"] * 10, b"new"]


def lose_files(disk: SimDisk, kept_count: int) -> None:
    """Somebody deletes the first files of the queue."""
    names = sorted(disk.listdir(QUEUE))
    for name in names[: len(names) - kept_count]:
        disk.unlink(f"{QUEUE}/{name}")
    disk.sync_dir(QUEUE)


def lose_end(disk: SimDisk, end: int) -> None:
    """A power loss that takes from the log all that is behind ``end``, in its last file."""
    file_bytes = SMALL.commit_log_file_bytes
    file = disk.open(f"{ROOT}/commitlog/{end - end % file_bytes:020}")
    file.write([bytes(file_bytes - end % file_bytes)], end % file_bytes)
    file.sync()
    disk.power_loss()
