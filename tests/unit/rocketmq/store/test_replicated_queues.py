"""What a slave learned of its master's queues, when its log goes on as another master's."""

from __future__ import annotations

import contextlib

import pytest

from support.message_stores import Shelf
from tallystick.rocketmq.store.values import GetStatus
from tallystick.sim.disk import PLENTY, Crashed

OLD = [b"old"] * 5
NEW = [b"new%d" % number for number in range(10)]
LOG = "/store/commitlog/00000000000000000000"


def copy(master: Shelf, slave: Shelf, end: int | None = None) -> None:
    end = master.store.end if end is None else end
    while slave.store.end < end:
        at = slave.store.end
        slave.store.append_raw(at, bytes(master.store.slice(at, min(4096, end - at))))
    slave.settle()


def tell_deletions(master: Shelf, slave: Shelf) -> None:
    if (deletion := slave.store.replicated.learn_deletions(master.store.replicated.deletions)) is not None:
        deletion.run()


def promote(slave: Shelf, *, runs: bool = True) -> None:
    if runs:
        slave.store.promote()
        slave.store.take_role(slave=False)
    else:
        slave.settle()
        slave.disk.kill()
        slave.open(slave=False)


def told_ahead(*slaves: Shelf) -> Shelf:
    """A master "a" that deleted a topic, and slaves that know it: their logs end before that."""
    master = Shelf()
    master.send(*OLD)
    for slave in slaves:
        slave.store.replicated.follow("a")
        copy(master, slave)
    master.send(*[b"other"] * 30, topic="Other")
    master.store.delete_topics(["Topic"]).run()
    for slave in slaves:
        tell_deletions(master, slave)
        slave.settle()
        assert slave.store.end < master.store.end == slave.store.replicated.deletions["Topic"]
    return master


@pytest.mark.rule("H7", "H12")
@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("first_tables", [True, False])
def test_a_deletion_of_one_master_takes_nothing_that_another_one_stored(runs: bool, first_tables: bool) -> None:
    second, third = Shelf(seed=2, slave=True), Shelf(seed=3, slave=True)
    told_ahead(second, third)
    promote(second, runs=runs)
    second.send(*NEW)
    third.store.replicated.follow("b")
    if first_tables:
        tell_deletions(second, third)
    copy(second, third)
    tell_deletions(second, third)
    for _ in range(2):
        assert third.log() == second.log()
        assert third.bodies() == NEW
        third.disk.power_loss()
        third.open()
    promote(third, runs=runs)
    assert third.bodies() == NEW
    assert third.send(b"newest")[0].queue_offset == len(NEW)


@pytest.mark.rule("H12")
def test_a_deletion_takes_nothing_of_what_comes_when_master_and_slave_lost_the_log_before_it() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*OLD)
    master.settle()
    slave.store.replicated.follow("a")
    copy(master, slave)
    end = master.store.end
    master.send(*[b"other"] * 20, topic="Other")
    master.store.reput()
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096 - end)))
    slave.store.reput()
    master.store.delete_topics(["Topic"]).run()
    tell_deletions(master, slave)
    for shelf in (master, slave):
        shelf.disk._inode(LOG).pending.clear()
        shelf.disk.power_loss()
        shelf.open()
        assert shelf.store.end == end
    slave.store.replicated.follow("a, started anew")
    master.send(*NEW)
    master.settle()
    copy(master, slave)
    tell_deletions(master, slave)
    assert (master.bodies(), slave.bodies()) == (NEW, NEW)


@pytest.mark.rule("H12")
@pytest.mark.parametrize("kind", [None, "kill", "power_loss"])
def test_a_deletion_that_the_same_process_told_ahead_holds_through_links_and_starts(kind: str | None) -> None:
    slave = Shelf(seed=2, slave=True)
    master = told_ahead(slave)
    end = master.store.end
    master.send(*NEW)
    for at in (end - 1000, end, master.store.end):
        if kind is not None:
            getattr(slave.disk, kind)()
            slave.open()
        slave.store.replicated.follow("a")
        copy(master, slave, at)
        assert slave.bodies() == (NEW if at > end else [])
    assert not [event for event in slave.events if event.kind == "deletions cut"]


@pytest.mark.rule("H12")
@pytest.mark.parametrize("kind", ["kill", "power_loss"])
def test_a_crash_at_any_operation_brings_no_deletion_of_another_log_back(kind: str) -> None:
    for operation in range(1, 12):
        second, slave = Shelf(seed=2, slave=True), Shelf(seed=3, slave=True)
        told_ahead(second, slave)
        promote(second)
        second.send(*NEW)
        slave.disk.crash_at = slave.disk.operations + operation
        try:
            slave.store.replicated.follow("b")
            copy(second, slave)
        except Crashed:
            getattr(slave.disk, kind)()
        slave.disk.crash_at = None
        slave.open()
        slave.store.replicated.follow("b")
        copy(second, slave)
        assert slave.bodies() == NEW, operation


@pytest.mark.rule("H12")
def test_a_deletion_that_is_noted_late_is_noted_as_it_is_by_then() -> None:
    """The link to the next master may come while the deletion waits for its thread."""
    second, slave = Shelf(seed=2, slave=True), Shelf(seed=3, slave=True)
    master = told_ahead(second)
    slave.store.replicated.follow("a")
    copy(master, slave, second.store.end)
    deletion = slave.store.replicated.learn_deletions(master.store.replicated.deletions)
    assert deletion is not None
    promote(second)
    second.send(*NEW)
    slave.store.replicated.follow("b")
    deletion.run()
    copy(second, slave)
    slave.disk.kill()
    slave.open()
    assert slave.bodies() == NEW


@pytest.mark.rule("H12")
def test_of_another_masters_record_that_begins_as_one_here_nothing_is_taken() -> None:
    """A slave may have a part of a record: it is not known to be one of the deleted topic."""
    second, slave = Shelf(seed=2, slave=True), Shelf(seed=3, slave=True)
    master = told_ahead(second, slave)
    part = 8  # the size, and what all records have
    at = slave.store.end
    promote(second)
    second.send(*NEW)
    begin = bytes(second.store.slice(at, part))
    slave.store.append_raw(at, begin)
    slave.settle()
    slave.store.replicated.follow("b")
    copy(second, slave)
    assert slave.bodies() == NEW
    assert master.store.end > at


@pytest.mark.rule("H12")
@pytest.mark.parametrize("runs", [True, False])
def test_what_a_store_deleted_as_a_master_is_none_of_its_old_masters_deletions(runs: bool) -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    slave.store.replicated.follow("a")
    master.send(*OLD)
    copy(master, slave)
    master.store.delete_topics(["Gone"]).run()
    tell_deletions(master, slave)
    promote(slave, runs=runs)
    end = slave.store.end
    slave.send(*[b"lost"] * 5, topic="Other")
    slave.store.delete_topics(["Topic"]).run()
    slave.disk._inode(LOG).pending.clear()
    slave.disk.power_loss()
    slave.open(slave=True)
    assert slave.store.end == end
    slave.store.replicated.follow("a")
    master.send(*NEW)
    copy(master, slave)
    assert slave.bodies() == NEW


def lagging() -> tuple[Shelf, Shelf]:
    """A master with ten messages of each of two topics, and a slave with five of one, which was told of all."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*OLD)
    slave.store.replicated.follow("a")
    copy(master, slave)
    master.send(*NEW[:5])
    master.send(*NEW, topic="Other")
    master.settle()
    tell_ends(master, slave)
    return master, slave


def tell_ends(master: Shelf, slave: Shelf) -> None:
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end, master.store.first)


def give_back(slave: Shelf, *, runs: bool) -> None:
    if runs:
        slave.store.take_role(slave=True)
    else:
        slave.settle()
        slave.disk.kill()
        slave.open(slave=True)


@pytest.mark.rule("H12")
@pytest.mark.parametrize("runs", [True, False])
def test_a_master_that_is_a_slave_again_sends_nobody_over_messages_that_may_come(runs: bool) -> None:
    master, slave = lagging()
    promote(slave, runs=runs)
    assert slave.store.queue_range("Topic", 0) == (0, 10)
    assert slave.store.queue_range("Other", 0) == (10, 10)
    give_back(slave, runs=runs)
    for _ in range(2):
        assert (slave.store.queue_range("Topic", 0), slave.store.queue_range("Other", 0)) == ((0, 5), (0, 0))
        result = slave.store.get("Topic", 0, 5, 32, 1 << 20)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 5)
        slave.settle()
        slave.disk.power_loss()
        slave.open()
    slave.store.replicated.follow("a")
    copy(master, slave)
    assert (slave.bodies(), slave.bodies("Other")) == ([*OLD, *NEW[:5]], NEW)


@pytest.mark.parametrize("runs", [True, False])
def test_a_master_that_was_a_slave_in_between_gives_no_queue_offset_out_again(runs: bool) -> None:
    _, slave = lagging()
    for _ in range(2):
        promote(slave, runs=runs)
        give_back(slave, runs=runs)
    promote(slave, runs=runs)
    assert [slave.send(b"new", topic=topic)[0].queue_offset for topic in ("Topic", "Other")] == [10, 10]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("noted", [False, True])
def test_a_store_that_was_opened_as_a_masters_and_is_a_slaves_again_gives_no_queue_offset_out_again(
    noted: bool, full: bool
) -> None:
    _, slave = lagging()
    promote(slave, runs=False)
    if noted:
        slave.settle()  # that is the checkpoint for which the ends were told
    slave.disk.capacity = 0 if full else PLENTY
    give_back(slave, runs=True)
    slave.disk.capacity = PLENTY
    slave.settle()
    promote(slave)
    assert [slave.send(b"new", topic=topic)[0].queue_offset for topic in ("Topic", "Other")] == [10, 10]


@pytest.mark.parametrize("kind", ["kill", "power_loss"])
def test_a_crash_at_any_operation_of_a_master_that_becomes_a_slave_gives_no_queue_offset_out_again(kind: str) -> None:
    for operation in range(1, 30):
        _, slave = lagging()
        promote(slave)
        slave.disk.crash_at = slave.disk.operations + operation
        with contextlib.suppress(Crashed):
            give_back(slave, runs=True)
            slave.settle()
        getattr(slave.disk, kind)()
        slave.disk.crash_at = None
        slave.open(slave=True)
        assert slave.store.queue_range("Topic", 0) == (0, 5)
        promote(slave, runs=False)
        assert [slave.send(b"new", topic=topic)[0].queue_offset for topic in ("Topic", "Other")] == [10, 10]


def test_a_master_becomes_a_slave_on_a_full_disk_too() -> None:
    _, slave = lagging()
    promote(slave)
    slave.disk.capacity = 0
    give_back(slave, runs=True)
    assert slave.store.queue_range("Topic", 0) == (0, 5)
    slave.disk.capacity = PLENTY
    slave.settle()
    slave.disk.power_loss()
    slave.open(slave=False)
    assert slave.send(b"new")[0].queue_offset == 10


@pytest.mark.parametrize("runs", [True, False])
def test_where_the_next_master_says_that_its_queues_end_a_slave_goes_on(runs: bool) -> None:
    """The old one lost what it had given out, and nobody has it."""
    _, slave = lagging()
    promote(slave, runs=runs)
    give_back(slave, runs=runs)
    slave.store.replicated.learn_ends({("Topic", 0): 7}, slave.store.end, 0)
    promote(slave, runs=runs)
    assert [slave.send(b"new", topic=topic)[0].queue_offset for topic in ("Topic", "Other")] == [7, 0]


def test_a_slave_that_lost_its_logs_end_and_reads_its_queues_again_ends_them_where_the_log_does() -> None:
    master, slave = lagging()
    end = slave.store.end
    slave.store.append_raw(end, bytes(master.store.slice(end, 250)))
    slave.store.reput()
    assert 5 < slave.store.queue_range("Topic", 0)[1] < 10
    slave.store.maintain(slave.clock.ms)
    slave.disk._inode(LOG).pending.clear()
    slave.disk.power_loss()
    slave.disk.unlink("/store/tally-synced")
    slave.open()
    assert (slave.store.end, slave.store.queue_range("Topic", 0)) == (end, (0, 5))
    promote(slave)
    assert [slave.send(b"new", topic=topic)[0].queue_offset for topic in ("Topic", "Other")] == [10, 10]
