"""``tally-queues``: what the batches of a file say together."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from support.message_stores import ROOT, Shelf
from tallystick.errors import DiskFull
from tallystick.rocketmq.store.queue_state import Hole, QueueRow, QueueState, QueueStateFile, read_queue_state
from tallystick.rocketmq.store.synced import read_synced
from tallystick.sim.disk import SimDisk


def state() -> QueueState:
    state, rows = QueueState(), [QueueRow("Topic", number, 0, 50, 50, 0, 1000) for number in range(2)]
    state.take(state.change(queues=rows, holes=[Hole("Topic", number, 10, 50) for number in range(2)]))
    return state


def test_a_queue_that_goes_takes_its_hole_along() -> None:
    found = state()
    found.take(found.change(removed_queues=[("Topic", 0)]))
    assert found.holes == found.whole().holes == found.change().holes == [Hole("Topic", 1, 10, 50)]


def test_a_hole_is_of_a_row_that_reaches_it() -> None:
    found = state()
    found.take(found.change(removed_queues=[("Topic", 0)], queues=[QueueRow("Topic", 0, 0, 5, 5, 0, 2000)]))
    assert found.holes == [Hole("Topic", 1, 10, 50)]
    found.take(found.change(holes=[Hole("Unknown", 0, 0, 1)]))
    assert found.holes == []


PATH = f"{ROOT}/tally-queues"


def with_deletion() -> Shelf:
    """A store with a deletion in its last batch, which was answered."""
    shelf = Shelf()
    shelf.send(b"other", topic="Other")
    shelf.send(b"old 0", b"old 1")
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).note()
    return shelf


def flip(at: int) -> Callable[[SimDisk], None]:
    def damage(disk: SimDisk) -> None:
        file = disk.open(PATH)
        byte = file.read(1, at % file.size())[0]
        file.write([bytes([byte ^ 0x40])], at % file.size())
        file.close()

    return damage


def told(shelf: Shelf) -> list[str]:
    return [event.kind for event in shelf.events if event.kind == "tally-queues damaged"]


@pytest.mark.parametrize("damage", [flip(20), flip(-3), lambda disk: disk.open(PATH).truncate(40)])
def test_a_damaged_batch_is_told_from_a_torn_one(damage: Callable[[SimDisk], None]) -> None:
    shelf = with_deletion()
    shelf.disk.kill()
    damage(shelf.disk)
    shelf.open()
    assert told(shelf)
    assert shelf.bodies("Other") == [b"other"]
    shelf.settle()
    shelf.events.clear()
    shelf.disk.kill()
    shelf.open()
    assert not told(shelf)


def test_a_missing_file_is_told() -> None:
    shelf = with_deletion()
    shelf.disk.kill()
    shelf.disk.unlink(PATH)
    shelf.open()
    assert told(shelf)
    assert shelf.bodies("Other") == [b"other"]


def test_a_deletion_behind_a_damaged_batch_is_kept() -> None:
    shelf = Shelf()
    shelf.send(b"other", topic="Other")
    shelf.settle()
    with shelf.disk.undisturbed():
        first = shelf.disk.open(PATH).size()
    shelf.send(b"old 0", b"old 1")
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).note()
    shelf.disk.kill()
    flip(first - 3)(shelf.disk)
    shelf.open()
    assert told(shelf)
    assert shelf.store.queue_range("Topic", 0) == (0, 0)
    assert shelf.bodies("Other") == [b"other"]
    assert shelf.send(b"new")[0].queue_offset == 0
    shelf.settle()
    assert shelf.bodies() == [b"new"]


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_tail_is_no_damage(seed: int) -> None:
    """The power goes while a batch is written: what was noted before is there, and nothing is told."""
    shelf = Shelf(seed=seed)
    shelf.send(b"one")
    shelf.settle()
    shelf.send(b"two")
    shelf.store.flush()
    shelf.store.reput()
    file = shelf.disk.open(PATH)
    torn = b"TLYQ\0\0\0\x40" + random.Random(seed).randbytes(seed)
    file.write([torn], file.size())
    shelf.disk.kill()
    shelf.open()
    assert not told(shelf)
    assert shelf.bodies() == [b"one", b"two"]


def test_what_is_durable_of_it_is_noted_with_each_checkpoint_and_deletion() -> None:
    shelf = with_deletion()
    synced = read_synced(shelf.disk, ROOT)
    assert synced is not None
    assert synced.queues[1] == shelf.disk.size(PATH)
    assert read_queue_state(shelf.disk, ROOT).deletions.keys() == {"Topic"}


def test_a_queue_that_was_being_built_again_is_made_anew_when_nothing_tells_of_its_hole() -> None:
    shelf = Shelf()
    bodies = [b"%03d" % number for number in range(60)]
    shelf.send(*bodies)
    shelf.settle()
    shelf.disk.kill()
    shelf.disk.unlink(f"{ROOT}/consumequeue/Topic/0/{320:020}")
    shelf.open()
    for _ in range(2):
        shelf.store.rebuild(300)
    assert shelf.store.rebuilding
    shelf.settle()
    shelf.disk.kill()
    flip(-3)(shelf.disk)
    shelf.open()
    assert told(shelf)
    assert shelf.store.queue_range("Topic", 0) == (0, 60)
    assert shelf.bodies() == bodies


def test_a_file_that_begins_as_the_one_before_is_another_one() -> None:
    """It is replaced by what it said already, and the power goes before anybody notes how much of it is durable."""
    disk = SimDisk(random.Random(1))
    disk.makedirs(ROOT)
    file = QueueStateFile(disk, ROOT)
    file.append(state().whole())
    file.append(state().change(dispatched=7))
    noted = file.durable
    again = QueueStateFile(disk, ROOT, noted)
    again.append(state().whole())
    assert again.durable[1] < noted[1]
    assert QueueStateFile(disk, ROOT, noted).damage is None


def test_a_file_that_cannot_be_replaced_for_lack_of_room_is_not_left_open() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/store")
    file = QueueStateFile(disk, "/store")
    before = set(disk.open_files)

    def full(operation: str, path: str) -> DiskFull | None:
        return DiskFull("no space left", path=path) if operation in ("write", "sync", "rename") else None

    disk.fault = full
    for _ in range(3):
        with pytest.raises(DiskFull):
            file.append(state().whole())
    assert disk.open_files == before
