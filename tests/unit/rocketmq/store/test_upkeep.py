"""What checkpoints note, and in which order old files go."""

from __future__ import annotations

import dataclasses

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.rocketmq.store.checkpoint import CheckpointFile
from tallystick.rocketmq.store.retention import MAX_FILES
from tallystick.rocketmq.store.synced import read_synced
from tallystick.sim.disk import Crashed

DAY_MS = 24 * 3_600_000
LARGE_DISK = dataclasses.replace(SMALL, disk_delete_ratio=1, disk_clean_ratio=99, disk_refuse_ratio=99)


def fill(shelf: Shelf, count: int) -> None:
    """With files of the log of 11 messages each, and of the queue of 16."""
    shelf.send(*[b"%03d" % number * 80 for number in range(count)])
    shelf.settle()


def queue_files(shelf: Shelf) -> list[int]:
    """The queue offsets at which the files of the queue begin."""
    return sorted(int(name) // 20 for name in shelf.disk.listdir(f"{ROOT}/consumequeue/Topic/0"))


def expired(shelf: Shelf) -> int:
    """A time at which all are, at any hour but that of deletions."""
    return shelf.clock.ms + 30 * DAY_MS


def test_the_originals_checkpoint_has_nothing_that_is_not_synced() -> None:
    """An original broker begins to dispatch there after a crash: what was before it would be in no queue."""
    shelf = Shelf()
    shelf.send(*[b"a"] * 10)
    shelf.store.reput()
    shelf.store.maintain(shelf.clock.ms)
    assert CheckpointFile(shelf.disk, ROOT).value.dispatch_from == 0
    shelf.store.flush()
    shelf.store.maintain(shelf.clock.ms)
    assert CheckpointFile(shelf.disk, ROOT).value.dispatch_from == shelf.store.end


def test_how_much_of_tally_queues_is_durable_is_noted_though_nothing_was_dispatched() -> None:
    """Else a shorter one would pass for one that a crash cut."""
    shelf = Shelf(slave=True)
    shelf.settle()
    for end in (5, 6):
        shelf.store.replicated.learn_ends({("Topic", 0): end}, 100)
        shelf.store.maintain(shelf.clock.ms)
        found = read_synced(shelf.disk, ROOT)
        assert found is not None and found.queues == shelf.store._parts.state.durable


def test_a_queues_files_go_with_the_messages_that_they_have() -> None:
    shelf = Shelf(LARGE_DISK)
    fill(shelf, 80)
    assert queue_files(shelf) == [0, 16, 32, 48, 64]
    shelf.store.delete_expired()
    shelf.store.maintain(expired(shelf))
    first = shelf.store.queue_range("Topic", 0)[0]
    assert first > 48 and queue_files(shelf)[0] == first // 16 * 16


def test_whoever_asks_for_a_deletion_gets_all_of_it_some_files_at_a_time() -> None:
    shelf = Shelf(LARGE_DISK)
    fill(shelf, 30 * 11)
    count = len(shelf.disk.listdir(f"{ROOT}/commitlog"))
    assert count > 2 * MAX_FILES
    shelf.store.delete_expired()
    firsts = []
    for _ in range(5):
        shelf.store.maintain(expired(shelf))
        firsts.append(shelf.store.first // 4096)
    assert firsts[:2] == [MAX_FILES, 2 * MAX_FILES] and firsts[-1] == firsts[-2] > firsts[1]
    fill(shelf, 11)
    shelf.store.maintain(expired(shelf))
    assert shelf.store.first // 4096 == firsts[-1], "it was asked for once"


def test_a_crash_at_any_step_of_a_deletion_leaves_a_log_that_misses_no_file() -> None:
    """Where it begins is noted before they go: a start would look for their messages, and tell of damage."""
    step, whole = 0, False
    while not whole:
        step += 1
        shelf = Shelf(LARGE_DISK, seed=step)
        fill(shelf, 80)
        shelf.store.delete_expired()
        shelf.disk.crash_at = shelf.disk.operations + step
        try:
            shelf.store.maintain(expired(shelf))
            whole = True
        except Crashed:
            pass
        shelf.disk.crash_at = None
        shelf.disk.kill()
        shelf.events.clear()
        shelf.open()
        assert "log files missing" not in [event.kind for event in shelf.events], f"step {step}"
        low, high = shelf.store.queue_range("Topic", 0)
        assert high == 80 and len(shelf.bodies()) == high - low
    assert step > 10
