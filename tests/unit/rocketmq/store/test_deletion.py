"""Deletions while everything else goes on: once noted they last, and what is made anew in between lasts too."""

from __future__ import annotations

import contextlib
from itertools import permutations

import pytest

from support.message_stores import ROOT, SMALL, Shelf
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.store.check import check_store
from tallystick.sim.disk import SimDisk

OLD, NEW = [b"old%03d" % number for number in range(40)], [b"new%d" % number for number in range(3)]
STEPS = ("note", "unlink", "made anew", "checkpoint")
ORDERS = [steps for steps in permutations(STEPS) if steps.index("note") < steps.index("unlink")]


def shelf_with_topic() -> Shelf:
    shelf = Shelf()
    shelf.send(*OLD)
    shelf.send(b"other", topic="Other")
    shelf.settle()
    return shelf


def crash(disk: SimDisk, kind: str) -> None:
    getattr(disk, kind)()


def consistent(shelf: Shelf) -> None:
    shelf.settle()
    with shelf.disk.undisturbed():
        assert check_store(shelf.disk, ROOT, SMALL).findings == []


@pytest.mark.parametrize("kind", ["kill", "power_loss"])
@pytest.mark.parametrize("steps", ORDERS)
def test_a_topic_made_anew_in_the_midst_of_its_deletion(steps: tuple[str, ...], kind: str) -> None:
    shelf = shelf_with_topic()
    deletion = shelf.store.delete_topics(["Topic"])
    expected: list[bytes] = []
    for step in steps:
        assert shelf.bodies() == expected
        if step == "note":
            deletion.note()
        elif step == "unlink":
            deletion.unlink()
        elif step == "made anew":
            assert shelf.send(*NEW)[0].queue_offset == 0
            shelf.store.flush()
            shelf.store.reput()
            expected = NEW
        else:
            shelf.settle()
        assert shelf.bodies() == expected
    for _ in range(2):
        crash(shelf.disk, kind)
        shelf.open()
        assert (shelf.bodies(), shelf.bodies("Other")) == (NEW, [b"other"])
        consistent(shelf)
    assert shelf.send(b"last")[0].queue_offset == len(NEW)


@pytest.mark.parametrize("kind", ["kill", "power_loss"])
def test_the_answer_lasts_though_no_file_went(kind: str) -> None:
    shelf = shelf_with_topic()
    shelf.store.delete_topics(["Topic"]).note()
    for _ in range(2):
        crash(shelf.disk, kind)
        shelf.open()
        assert (shelf.bodies(), shelf.store.queue_range("Topic", 0)) == ([], (0, 0))
        assert not shelf.disk.sizes(f"{ROOT}/consumequeue/Topic/0")
        consistent(shelf)


@pytest.mark.parametrize("kind", ["kill", "power_loss"])
@pytest.mark.parametrize("unlinked", [False, True])
def test_without_the_note_a_crash_brings_it_back_whole_or_not_at_all(kind: str, unlinked: bool) -> None:
    shelf = shelf_with_topic()
    deletion = shelf.store.delete_topics(["Topic"])
    if unlinked:
        deletion.unlink()
    crash(shelf.disk, kind)
    shelf.open()
    while shelf.store.rebuilding:
        shelf.store.rebuild()
    assert shelf.bodies() == OLD
    consistent(shelf)


def test_folders_go_with_the_last_queue_and_stay_for_the_next_of_the_name() -> None:
    shelf = shelf_with_topic()
    shelf.send(b"x", queue_id=1)
    shelf.settle()
    deletion = shelf.store.delete_topics(["Topic"])
    deletion.note()
    shelf.send(b"new", queue_id=1)
    shelf.store.reput()
    deletion.unlink()
    assert shelf.disk.listdir(f"{ROOT}/consumequeue/Topic") == ["1"]
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).run()
    assert shelf.disk.listdir(f"{ROOT}/consumequeue") == ["Other"]
    shelf.disk.makedirs(f"{ROOT}/consumequeue/Empty/0")  # of a version before
    shelf.settle()
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.disk.listdir(f"{ROOT}/consumequeue") == ["Other"]
    consistent(shelf)


def test_two_deletions_noted_in_the_other_order_are_both_noted() -> None:
    shelf = shelf_with_topic()
    first = shelf.store.delete_topics(["Topic"])
    second = shelf.store.delete_topics(["Other"])
    second.run()
    first.run()
    shelf.disk.power_loss()
    shelf.open()
    assert (shelf.bodies(), shelf.bodies("Other")) == ([], [])
    assert set(shelf.store.replicated.deletions) == {"Topic", "Other"}


def test_a_deletion_that_cannot_be_noted_takes_the_files_all_the_same() -> None:
    shelf = shelf_with_topic()
    deletion = shelf.store.delete_topics(["Topic"])
    shelf.disk.fault = lambda operation, path: StorageError("bad") if "tally-queues" in path else None
    with pytest.raises(StorageError):
        deletion.run()
    shelf.disk.fault = None
    assert not shelf.disk.sizes(f"{ROOT}/consumequeue/Topic/0")
    shelf.settle()  # the next batch has everything
    shelf.disk.power_loss()
    shelf.open()
    assert shelf.bodies() == []


@pytest.mark.parametrize("lost", [0, 640, 1920])
def test_a_checkpoint_syncs_what_is_there_of_a_queue_that_lost_a_file(lost: int) -> None:
    """A deletion told late changes such a queue before it is built again; retention does, too."""
    master, slave = Shelf(), Shelf(slave=True)
    master.send(*[b"%03d" % number for number in range(100)])
    slave.store.append_raw(0, master.log())
    slave.settle()
    slave.disk.kill()
    slave.disk.unlink(f"{ROOT}/consumequeue/Topic/0/{lost:020}")
    slave.open()
    deletion = slave.store.replicated.learn_deletions({"Topic": master.store.end - 500})
    assert deletion is not None
    deletion.run()
    slave.settle()
    while slave.store.rebuilding:
        slave.store.rebuild()
    slave.settle()
    for _ in range(2):
        assert slave.bodies()[-1] == b"099"
        slave.disk.power_loss()
        slave.open()


@pytest.mark.parametrize(("operation", "error"), [("unlink", StorageError), ("sync_dir", DiskFull)])
def test_a_deletion_that_fails_when_its_topic_is_made_anew_takes_nothing_of_the_new_one(
    operation: str, error: type[StorageError]
) -> None:
    """What was left to be deleted had the names of the new files."""
    shelf = shelf_with_topic()
    deletion = shelf.store.delete_topics(["Topic"])
    deletion.note()
    shelf.send(*NEW)
    shelf.store.flush()
    shelf.disk.fault = lambda done, path: error("bad") if done == operation and "Topic/0" in path else None
    with contextlib.suppress(StorageError):
        shelf.store.reput()
    shelf.disk.fault = None
    shelf.store.reput()
    deletion.unlink()
    shelf.settle()
    assert shelf.disk.sizes(f"{ROOT}/consumequeue/Topic/0")
    shelf.disk.power_loss()
    shelf.open()
    assert (shelf.bodies(), shelf.store.rebuilding) == (NEW, False)
    consistent(shelf)
