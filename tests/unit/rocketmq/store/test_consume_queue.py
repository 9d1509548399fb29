"""Queues: units over several files, fillers before the first, gaps, the end after a crash."""

from __future__ import annotations

import random

import msgspec
import pytest

from tallystick.errors import StorageError
from tallystick.rocketmq.store.commit_log import CommitLog
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.synced import SyncedFile
from tallystick.rocketmq.store.units import FILLER_SIZE, UNIT, Unit
from tallystick.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/cq")
    return disk


def queue_on(disk: SimDisk) -> ConsumeQueue:
    return ConsumeQueue(disk, root="/cq", topic="Topic", queue_id=3, file_units=16)


def log_of(disk: SimDisk, files: FileQueue, end: int, start: int) -> CommitLog:
    return CommitLog(files, end, start, SyncedFile(disk, "/cq"))


def units(first: int, count: int) -> list[Unit]:
    return [(number * 100, 100, number) for number in range(first, first + count)]


def stored(first: int, count: int) -> bytes:
    return b"".join(UNIT.pack(*unit) for unit in units(first, count))


def test_units_over_several_files(disk: SimDisk) -> None:
    queue = queue_on(disk)
    queue.write(0, stored(0, 40))
    assert (queue.first, queue.end) == (0, 40)
    assert queue.read(10, 20) == stored(10, 20)
    assert queue.read(39, 20) == stored(39, 1)
    assert queue.unit(17) == (1700, 100, 17)


def test_a_queue_that_begins_late_has_fillers_before(disk: SimDisk) -> None:
    queue = queue_on(disk)
    queue.write(20, stored(20, 3))
    assert (queue.first, queue.end) == (20, 23)
    assert queue.unit(16) == queue.unit(19) == (0, FILLER_SIZE, 0)
    assert disk.listdir("/cq/Topic/3") == [f"{320:020}"]


@pytest.mark.parametrize("repair", [False, True])
def test_fillers_before_a_message_that_is_gone_are_no_messages(disk: SimDisk, repair: bool) -> None:
    """Found by the simulator: a slave lost its log, and its queue went on behind the fillers of its first life."""
    queue = queue_on(disk)
    queue.write(20, stored(20, 3))
    queue.sync()
    disk.makedirs("/log")
    again = queue_on(disk)
    again.load(0, log_of(disk, FileQueue(disk, "/log", 4096), 0, 0), repair=repair)
    assert (again.first, again.end) == (0, 0)
    again.write(67, stored(67, 1))
    assert (again.first, again.end) == (67, 68)


def test_missing_offsets_are_filled(disk: SimDisk) -> None:
    queue = queue_on(disk)
    queue.write(0, stored(0, 2))
    queue.write(40, stored(40, 1))
    assert queue.end == 41
    assert queue.unit(2) == queue.unit(39) == (0, FILLER_SIZE, 0)


def test_what_is_beyond_the_log_goes(disk: SimDisk) -> None:
    """rmq#495: a queue that knows more than the log."""
    queue = queue_on(disk)
    queue.write(0, stored(0, 40))
    queue.sync()
    disk.power_loss()
    log = log_of(disk, FileQueue(disk, "/cq", 4096), 0, 0)
    again = queue_on(disk)
    again.load(1750, log, repair=False)
    assert (again.end, again.last_physical) == (18, 1700)


def test_messages_whose_files_are_gone(disk: SimDisk) -> None:
    queue = queue_on(disk)
    queue.write(0, stored(0, 40))
    queue.forget_before(1950)
    assert queue.first == 20
    queue.detach_files(1950)
    queue.delete_files()
    assert disk.listdir("/cq/Topic/3") == [f"{320:020}", f"{640:020}"]
    queue.forget_before(1 << 40)
    queue.detach_files(3200)
    queue.delete_files()  # of which 31 is the last message before it
    assert disk.listdir("/cq/Topic/3") == [f"{320:020}", f"{640:020}"]
    queue.detach_files(3201)
    queue.delete_files()
    assert (queue.first, queue.end) == (40, 40)
    assert disk.listdir("/cq/Topic/3") == [f"{640:020}"]


def test_a_torn_unit_is_no_unit_of_a_message_whose_file_is_gone(disk: SimDisk) -> None:
    """Half a physical offset is a smaller one, before all that the log still has."""
    queue = queue_on(disk)
    queue.write(0, stored(50, 4))
    queue.sync()
    disk.open("/cq/Topic/3/" + f"{0:020}").write([UNIT.pack(7, 100, 0)], 8 * UNIT.size)
    disk.makedirs("/log")
    files = FileQueue(disk, "/log", 400)
    files.prepare(5200)
    log = log_of(disk, files, 5600, 0)  # two of the four messages are gone
    again = queue_on(disk)
    again.load(5400, log, repair=True)
    assert (again.end, again.last_physical) == (2, 5100)  # those still there have no record in this log


def test_a_torn_unit_is_from_no_place_before_the_log_ever_began(disk: SimDisk) -> None:
    """Found by the simulator: half an offset, on a slave that began in the middle and deleted nothing."""
    queue = queue_on(disk)
    queue.write(4, UNIT.pack(5272, 208, 0))
    queue.sync()
    disk.open("/cq/Topic/3/" + f"{0:020}").write([UNIT.pack(152, 208, 0)], 4 * UNIT.size)
    disk.makedirs("/log")
    again = queue_on(disk)
    again.load(5480, log_of(disk, FileQueue(disk, "/log", 4096), 8192, 4096), repair=True)
    assert (again.first, again.end) == (0, 0)


def test_fillers_between_messages_hide_none_of_those_before_them(disk: SimDisk) -> None:
    """A slave with 5 messages became master of a queue that its master had told it ended at 9."""
    queue = queue_on(disk)
    queue.write(0, stored(0, 5))
    queue.write(40, stored(40, 5))
    assert not queue.forget_before(0)
    for physical, first in ((0, 0), (250, 3), (400, 4), (401, 40), (4100, 41)):
        queue.forget_before(physical)
        assert queue.first == first
    for physical, filled, end in ((4300, 43, 43), (4000, 5, 40), (300, 3, 3), (0, 0, 0)):
        queue.cut_behind(physical)
        assert (queue.filled, queue.end) == (filled, end)


def test_nothing_writes_over_a_unit(disk: SimDisk) -> None:
    """A rebuild makes what is lost, reput what comes: one in the place of the other stops, before units are hidden."""
    queue = queue_on(disk)
    queue.write(0, stored(0, 20))
    with pytest.raises(StorageError, match="written over"):
        queue.write(19, stored(19, 1))
    queue.open_hole(5, 20)
    queue.write(20, stored(20, 1))
    with pytest.raises(StorageError, match="written over"):
        queue.rebuild([], 21)
    assert queue.unit(20) == (2000, 100, 20)
    with pytest.raises(StorageError, match="written over"):
        queue.write(10, stored(10, 1))
    assert queue.rebuild([(number, unit) for number, unit in enumerate(units(5, 15), 5)])
    assert queue.read(0, 21) == stored(0, 21)


def adopted(disk: SimDisk, *lost_files: int, first: int = 0, end: int = 40, born: int = 1) -> ConsumeQueue:
    """A queue of 40 units, as a checkpoint noted it, that lost these of its three files."""
    queue = queue_on(disk)
    queue.write(0, stored(0, 40))
    queue.sync()
    row = msgspec.structs.replace(queue.row(), first=first, end=end, born=born)
    queue.close()
    for number in lost_files:
        disk.unlink(f"/cq/Topic/3/{number * 320:020}")
    queue = queue_on(disk)
    queue.adopt(row)
    return queue


def test_lost_files_of_expired_messages_alone_are_done_without(disk: SimDisk) -> None:
    queue = adopted(disk, 0, 1, first=33)
    assert (queue.has_hole, queue.first, queue.row().start) == (False, 33, 32)
    queue.delete_files()
    assert disk.listdir("/cq/Topic/3") == [f"{640:020}"] and queue.read(33, 9) == stored(33, 7)


def test_a_queue_whose_files_are_lost_and_whose_messages_have_expired_begins_at_its_end(disk: SimDisk) -> None:
    queue = adopted(disk, 0, 1, 2, first=40, end=50)
    assert (queue.has_hole, queue.has_files, queue.first, queue.end, queue.filled) == (False, False, 50, 50, 0)
    queue.write(50, stored(50, 2))
    assert (queue.first, queue.read(50, 9)) == (50, stored(50, 2))


def test_the_log_is_dispatched_again_from_where_lost_units_may_be_and_no_sooner(disk: SimDisk) -> None:
    assert adopted(disk, 1).cut_behind(3800) == 1500, "the message before the lost ones"


def test_the_log_is_dispatched_again_from_where_the_topic_was_made_anew_and_no_sooner(disk: SimDisk) -> None:
    queue = adopted(disk, 0, born=500)
    assert (queue.cut_behind(3800), queue.born) == (500, 500)


def test_a_queue_of_a_topic_whose_making_the_log_lost_takes_what_comes_there(disk: SimDisk) -> None:
    queue = adopted(disk, born=3000)
    assert (queue.cut_behind(2000), queue.born) == (2000, 2000)
