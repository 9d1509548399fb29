"""Queues and index that somebody deleted, wholly or in part: noticed, waited for, built again; never from the dead."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from support.message_stores import ROOT, SMALL, Shelf, put_request
from tallystick.errors import QueueRebuilding
from tallystick.rocketmq.store.check import check_store
from tallystick.rocketmq.store.queue_state import Hole, QueueStateFile, read_queue_state
from tallystick.rocketmq.store.units import UNIT
from tallystick.rocketmq.store.values import GetStatus, TimeBoundary
from tallystick.sim.disk import Crashed, SimDisk

QUEUES = f"{ROOT}/consumequeue"
FULL = [b"%03d" % number for number in range(100)]  # a file of a queue has 16 units, one of the index 64 entries
NEW = [b"new %d" % number for number in range(20)]


def remove(disk: SimDisk, prefix: str) -> None:
    """What an operator's ``rm -r`` does, folders and all, for good."""
    for names in (disk._names, disk._durable):
        for path in [path for path in names if path.startswith(prefix)]:
            del names[path]


def filled() -> Shelf:
    shelf = Shelf()
    for number, body in enumerate(FULL):
        shelf.send(body, KEYS=f"key{number}")
        shelf.send(body, topic="Other", queue_id=number % 3)
    shelf.settle()
    return shelf


def rebuild(shelf: Shelf) -> None:
    while shelf.store.rebuilding:
        shelf.store.rebuild(1000)


def consistent(shelf: Shelf) -> None:
    shelf.settle()
    with shelf.disk.undisturbed():
        report = check_store(shelf.disk, ROOT, SMALL)
    assert report.findings == []


LOSSES: list[tuple[str, Callable[[SimDisk], None]]] = [
    ("all queues", lambda disk: remove(disk, f"{QUEUES}/")),
    ("the folder of all queues", lambda disk: remove(disk, QUEUES)),
    ("one topic", lambda disk: remove(disk, f"{QUEUES}/Topic")),
    ("one queue", lambda disk: remove(disk, f"{QUEUES}/Topic/0")),
    ("the first file", lambda disk: disk.unlink(f"{QUEUES}/Topic/0/{0:020}")),
    ("a file in the middle", lambda disk: disk.unlink(f"{QUEUES}/Topic/0/{640:020}")),
    ("the last file", lambda disk: disk.unlink(f"{QUEUES}/Topic/0/{1920:020}")),
    ("a short file", lambda disk: disk.open(f"{QUEUES}/Topic/0/{640:020}").truncate(7)),
    ("a short last file", lambda disk: disk.open(f"{QUEUES}/Topic/0/{1920:020}").truncate(0)),
]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lose", [loss for _, loss in LOSSES], ids=[name for name, _ in LOSSES])
def test_lost_queues_are_built_again_and_give_no_offset_out_twice(lose: Callable[[SimDisk], None], clean: bool) -> None:
    shelf = filled()
    if clean:
        shelf.store.close()
    shelf.disk.kill()
    lose(shelf.disk)
    shelf.open()
    assert shelf.store.rebuilding
    assert shelf.store.queue_range("Topic", 0) == (0, 100)
    (put,) = shelf.send(b"new")
    assert put.queue_offset == 100
    shelf.store.reput()
    rebuild(shelf)
    assert shelf.bodies() == [*FULL, b"new"]
    assert [body for number in range(3) for body in shelf.bodies("Other", number)] == [
        body for first in range(3) for body in FULL[first::3]
    ]
    consistent(shelf)


def test_whoever_reads_a_queue_that_is_being_built_again_stays_where_it_is() -> None:
    shelf = filled()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    for offset in (0, 50, 99):
        found = shelf.store.get("Topic", 0, offset, 32, 1 << 20)
        assert (found.status, found.next_offset) == (GetStatus.BEING_REBUILT, offset)
        assert (found.min_offset, found.max_offset) == (0, 100)
    assert shelf.store.get("Topic", 0, 100, 32, 1 << 20).status is GetStatus.OFFSET_OVERFLOW_ONE
    with pytest.raises(QueueRebuilding, match="ask again later"):
        shelf.store.offset_at("Topic", 0, 0, TimeBoundary.LOWER)
    with pytest.raises(QueueRebuilding):
        shelf.store.stored_at("Topic", 0, 5)
    arrivals = [arrival for arrival in shelf.store.rebuild(2000) if arrival.topic == "Topic"]
    (arrival,) = arrivals
    assert 0 < arrival.next_offset < 100
    found = shelf.store.get("Topic", 0, 0, 100, 1 << 20)
    assert (found.status, found.next_offset) == (GetStatus.FOUND, arrival.next_offset)
    assert shelf.store.get("Topic", 0, arrival.next_offset, 1, 1 << 20).status is GetStatus.BEING_REBUILT
    assert shelf.bodies("Other", 1) == FULL[1::3]  # others are not kept waiting


@pytest.mark.parametrize("number", range(3))
def test_lost_index_files_are_built_again(number: int) -> None:
    shelf = filled()
    shelf.disk.kill()
    names = shelf.disk.listdir(f"{ROOT}/index")
    assert len(names) > 1
    if number < 2:
        shelf.disk.unlink(f"{ROOT}/index/{names[number]}")
    else:
        remove(shelf.disk, f"{ROOT}/index/")
    shelf.open()
    shelf.send(b"new", KEYS="new")
    shelf.store.reput()
    rebuild(shelf)
    for key in (*(f"key{number}" for number in range(100)), "new"):
        assert len(shelf.store.query("Topic", key, 10, 0, 1 << 60)) == 1, key
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    assert not shelf.store.rebuilding
    assert len(shelf.store.query("Topic", "key7", 10, 0, 1 << 60)) == 1


@pytest.mark.parametrize("damage", [b"\x7f" * 40, b"\xff" * 40, bytes(40)])
def test_an_index_file_of_a_damaged_header_is_built_again(damage: bytes) -> None:
    shelf = filled()
    shelf.disk.kill()
    newest = shelf.disk.open(f"{ROOT}/index/{shelf.disk.listdir(f'{ROOT}/index')[-1]}")
    newest.write([damage], 0)
    newest.sync()
    newest.close()
    shelf.open()
    rebuild(shelf)
    for number in range(100):
        assert len(shelf.store.query("Topic", f"key{number}", 10, 0, 1 << 60)) == 1, number


def test_what_a_deletion_took_does_not_come_back_from_the_log() -> None:
    shelf = filled()
    shelf.store.delete_topics(["Topic"]).run()
    shelf.send(b"anew", b"and on")
    shelf.settle()
    shelf.store.delete_topics(["Other"]).run()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/")
    shelf.open()
    assert shelf.store.queue_range("Topic", 0) == (0, 2)
    rebuild(shelf)
    assert shelf.bodies() == [b"anew", b"and on"]
    assert shelf.store.queues() == {"Topic": [0]}
    assert shelf.send(b"third")[0].queue_offset == 2


@pytest.mark.parametrize("seed", range(40))
def test_a_rebuild_that_is_interrupted_goes_on_and_ends_right(seed: int) -> None:
    """Whatever interrupts it: the process, or the power; in the rebuild, in a checkpoint, in the start after it."""
    shelf = Shelf(seed=seed)
    chance = random.Random(seed)
    print(f"seed {seed}")
    for number, body in enumerate(FULL):
        shelf.send(body, KEYS=f"key{number}")
    shelf.settle()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/" if seed % 2 else f"{QUEUES}/Topic/0/{640:020}")
    for _ in range(4):
        shelf.disk.crash_at = shelf.disk.operations + chance.randint(20, 90)
        try:
            shelf.open()
            while shelf.store.rebuilding:
                shelf.store.rebuild(500)
                if chance.random() < 0.3:
                    shelf.settle()
        except Crashed:
            pass
        if chance.random() < 0.5:
            shelf.disk.power_loss()
        else:
            shelf.disk.kill()
    shelf.open()
    rebuild(shelf)
    assert shelf.store.queue_range("Topic", 0) == (0, 100)
    assert shelf.bodies() == FULL
    consistent(shelf)


def test_a_restart_after_a_kill_reads_no_queue() -> None:
    shelf = filled()
    shelf.send(b"behind the checkpoint")
    shelf.store.reput()
    shelf.disk.kill()
    read: list[str] = []

    def fault(operation: str, path: str) -> None:
        if operation == "read" and path.startswith(QUEUES):
            read.append(path)

    shelf.disk.fault = fault
    shelf.open()
    assert read == []
    shelf.disk.fault = None
    assert shelf.bodies() == [*FULL, b"behind the checkpoint"]


def test_what_is_dispatched_while_a_checkpoint_syncs_is_not_called_durable() -> None:
    """The loop goes on: how far the log was dispatched counts as of the moment when the queues were taken."""
    shelf = Shelf()
    shelf.send(b"one")
    shelf.store.reput()

    def fault(operation: str, path: str) -> None:
        if operation == "sync" and path.startswith(QUEUES):
            shelf.disk.fault = None
            shelf.send(b"two", topic="Late")
            shelf.store.reput()

    shelf.store.flush()
    shelf.disk.fault = fault
    shelf.store.maintain(shelf.clock.ms)
    assert shelf.disk.fault is None
    shelf.store.flush()
    for _ in range(2):
        shelf.disk.power_loss()
        shelf.open()
        assert (shelf.bodies(), shelf.bodies("Late")) == ([b"one"], [b"two"])


def test_a_store_of_before_whose_queues_were_deleted_is_built_again_at_once() -> None:
    shelf = filled()
    shelf.store.close()
    shelf.disk.kill()
    shelf.disk.unlink(f"{ROOT}/tally-queues")
    remove(shelf.disk, f"{QUEUES}/")
    (put,) = shelf.open().put([put_request(b"new")])
    assert put.queue_offset == 100
    assert not shelf.store.rebuilding
    assert shelf.bodies() == FULL


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_deletion_that_was_answered_outlives_a_crash(power_loss: bool) -> None:
    shelf = filled()
    shelf.store.flush()
    shelf.store.delete_topics(["Topic"]).run()
    if power_loss:
        shelf.disk.power_loss()
    else:
        shelf.disk.kill()
    shelf.open()
    rebuild(shelf)
    assert shelf.store.queue_range("Topic", 0) == (0, 0)
    assert shelf.send(b"anew")[0].queue_offset == 0
    shelf.settle()
    assert shelf.bodies() == [b"anew"]


def test_a_topic_that_is_deleted_while_it_is_built_again_leaves_no_hole_to_the_next_of_its_name() -> None:
    shelf = filled()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    shelf.store.rebuild(1000)
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).run()
    shelf.send(*FULL[:20])
    shelf.store.flush()
    shelf.store.reput()
    for _ in range(2):
        shelf.disk.kill()
        shelf.open()
        rebuild(shelf)
        assert shelf.bodies() == FULL[:20]
    consistent(shelf)


def test_what_was_not_dispatched_when_its_topic_was_deleted_stays_away() -> None:
    shelf = Shelf()
    shelf.send(b"old", b"older")
    shelf.store.delete_topics(["Topic"]).run()
    shelf.send(b"new")
    shelf.store.reput()
    assert shelf.bodies() == [b"new"]


def test_a_topic_made_anew_whose_old_queue_is_lost_does_not_keep_the_store_from_opening() -> None:
    shelf = filled()
    shelf.store.delete_topics(["Topic"])  # the crash comes before it is noted
    shelf.send(b"new", b"newer")
    shelf.store.flush()
    shelf.store.reput()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/Topic")
    for _ in range(2):
        shelf.open()
        rebuild(shelf)
        assert shelf.bodies() == [b"new", b"newer"]
        shelf.disk.kill()
    shelf.open()
    consistent(shelf)


def test_a_topic_whose_folder_is_gone_can_be_deleted() -> None:
    shelf = filled()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    shelf.store.delete_topics(["Topic"]).run()
    assert shelf.send(b"new")[0].queue_offset == 0
    shelf.settle()
    rebuild(shelf)
    assert shelf.bodies() == [b"new"]
    consistent(shelf)


def made_anew(old_count: int = 40) -> Shelf:
    """Of the topic's queue the log has so many old messages and 20 new ones."""
    shelf = Shelf()
    shelf.send(b"first", topic="Other")
    shelf.send(*FULL[:old_count])
    shelf.settle()
    shelf.store.delete_topics(["Topic"]).run()
    shelf.send(*NEW)
    shelf.settle()
    return shelf


@pytest.mark.parametrize("lost", [("tally-queues",), ("tally-queues", "tally-synced")])
def test_a_queue_whose_row_was_lost_is_not_built_again_of_messages_from_before_its_topic_was_made_anew(
    lost: Sequence[str],
) -> None:
    shelf = made_anew()
    shelf.store.close()
    for name in lost:  # both: as a directory of an original broker, whose queues are read
        shelf.disk.unlink(f"{ROOT}/{name}")
    shelf.open()
    assert shelf.events[-1].fields["queues_read"] == ("tally-synced" in lost)
    assert shelf.bodies() == NEW
    first = shelf.read()[0].physical_offset
    shelf.store.close()
    assert read_queue_state(shelf.disk, ROOT).queues["Topic", 0].born == first
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    rebuild(shelf)
    assert shelf.bodies() == NEW
    consistent(shelf)


def as_before(shelf: Shelf, holes: Sequence[Hole] = (), rebuilt: int = 0) -> None:
    """What was noted by a version that did not know since when a queue is there, nor of the deletion."""
    file = QueueStateFile(shelf.disk, ROOT)
    assert file.state is not None
    file.state.queues = {key: structs.replace(row, born=0) for key, row in file.state.queues.items()}
    file.state.deletions, file.state.holes, file.state.rebuild_offset = {}, list(holes), rebuilt
    file.append(file.state.whole())
    file.close()


def test_rows_of_a_version_before_are_mended_while_the_files_are_there() -> None:
    shelf = made_anew()
    shelf.store.close()
    as_before(shelf)
    shelf.open()
    shelf.store.close()
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    rebuild(shelf)
    assert shelf.bodies() == NEW
    consistent(shelf)


@pytest.mark.parametrize("old", [40, 1])  # after one message queue offset 0 follows queue offset 0
@pytest.mark.parametrize("lost", [f"{QUEUES}/Topic", f"{QUEUES}/Topic/0/{0:020}", f"{QUEUES}/Topic/0/{320:020}"])
def test_a_queue_whose_beginning_nobody_knows_is_built_of_the_newest_messages(lost: str, old: int) -> None:
    shelf = made_anew(old)
    shelf.store.close()
    as_before(shelf)
    remove(shelf.disk, lost)
    shelf.open()
    shelf.store.rebuild(300)
    assert shelf.bodies()[:1] in ([], NEW[:1])
    shelf.settle()
    shelf.disk.kill()
    shelf.open()
    rebuild(shelf)
    assert shelf.bodies() == NEW
    consistent(shelf)


def test_a_queue_that_did_not_begin_anew_at_0_is_built_from_where_the_log_steps_back() -> None:
    shelf = Shelf()
    shelf.send(*FULL[:40])
    shelf.store.delete_topics(["Topic"]).run()
    shelf.store._appender.next_offsets["Topic", 0] = 7
    shelf.send(*NEW)
    shelf.store.close()
    as_before(shelf)
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    rebuild(shelf)
    assert (shelf.bodies(), shelf.read()[0].queue_offset) == (NEW, 7)
    consistent(shelf)


@pytest.mark.parametrize("reached", [0, 5])
@pytest.mark.parametrize("lost", [f"{QUEUES}/Topic", f"{QUEUES}/Topic/0/{320:020}"])
def test_a_hole_that_a_version_before_began_to_fill_with_old_messages_starts_over(lost: str, reached: int) -> None:
    """Also when it had passed some of the new messages, which it took for older ones of the queue."""
    shelf = made_anew()
    rebuilt = shelf.read()[reached].physical_offset if reached else 1400
    shelf.store.close()
    with shelf.disk.undisturbed():
        file = shelf.disk.open(f"{QUEUES}/Topic/0/{0:020}")
        for number in range(12):  # of the first 12 old messages, more or less
            file.write([UNIT.pack(100 * number + 1, 100, 0)], number * UNIT.size)
        file.close()
    as_before(shelf, [Hole("Topic", 0, 12, 20)], rebuilt=rebuilt)
    if lost.endswith("20"):
        remove(shelf.disk, lost)
    shelf.open()
    rebuild(shelf)
    assert shelf.bodies() == NEW
    consistent(shelf)


def test_an_interrupted_rebuild_goes_back_for_a_file_that_was_lost_meanwhile() -> None:
    shelf = filled()
    shelf.disk.kill()
    remove(shelf.disk, f"{QUEUES}/Topic")
    shelf.open()
    while shelf.store.get("Topic", 0, 60, 1, 1 << 20).status is GetStatus.BEING_REBUILT:
        shelf.store.rebuild(500)
    shelf.settle()
    shelf.disk.kill()
    shelf.disk.unlink(f"{QUEUES}/Topic/0/{320:020}")
    shelf.open()
    rebuild(shelf)
    assert shelf.bodies() == FULL
    assert [body for number in range(3) for body in shelf.bodies("Other", number)] == [
        body for first in range(3) for body in FULL[first::3]
    ]
    consistent(shelf)
