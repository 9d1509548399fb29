"""A slave's store that becomes a master's: queue offsets go on where the old master's ended (rmq#8539)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.message_stores import SMALL, Shelf
from tallystick.errors import UsageError
from tallystick.rocketmq.store.values import GetStatus
from tallystick.sim.disk import Crashed

ENDS = {("Old", 0): 40, ("Topic", 0): 103}
LOG = "/store/commitlog"


def partial() -> tuple[Shelf, Shelf]:
    """A master, and a slave that has what came last: nothing of one topic, and not the newest of the other."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"old"] * 40, topic="Old")
    master.send(*[b"%03d" % number for number in range(100)])
    master.settle()
    start = master.store.end // 4096 * 4096 - 4096
    for at in range(start, master.store.end, 4096):
        slave.store.append_raw(at, bytes(master.store.slice(at, 4096)))
    slave.settle()
    master.send(*[b"after"] * 3)
    return master, slave


def copy_deletions(master: Shelf, slave: Shelf) -> None:
    if (deletion := slave.store.replicated.learn_deletions(master.store.replicated.deletions)) is not None:
        deletion.run()


def promoted(slave: Shelf) -> Shelf:
    slave.settle()
    slave.disk.kill()
    slave.open(slave=False)
    return slave


def test_queue_offsets_go_on_where_the_masters_ended() -> None:
    master, slave = partial()
    assert not slave.store.replicated.ends_known
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
    assert slave.store.replicated.ends_known
    assert dict(master.store.replicated.next_offsets) == ENDS
    promoted(slave)
    for (topic, queue_id), end in ENDS.items():
        assert slave.store.queue_range(topic, queue_id)[1] == end
        assert slave.send(b"new", topic=topic, queue_id=queue_id)[0].queue_offset == end
    slave.settle()
    assert slave.bodies("Old") == [b"new"]
    assert slave.store.get("Old", 0, 7, 1, 1 << 20).status is GetStatus.OFFSET_TOO_SMALL
    assert slave.store.queue_range("Old", 0) == (40, 41)
    first, end = slave.store.queue_range("Topic", 0)
    assert (first > 0, end) == (True, 104)
    read, at = [], first
    while at < end:
        found = slave.store.get("Topic", 0, at, 32, 1 << 20)
        read += [bytes(view)[88:91] for view in found.buffers]
        assert found.next_offset > at
        at = found.next_offset
    assert read
    for _ in range(2):  # and once it is a master, it is one
        slave.disk.kill()
        slave.open()
    assert slave.store.queue_range("Topic", 0) == (first, 104)


def test_without_the_ends_it_is_refused_and_says_what_to_do() -> None:
    _, slave = partial()
    with pytest.raises(UsageError, match="never told where the master's queues end"):
        promoted(slave)
    slave.disk.kill()
    slave.settings = replace(SMALL, ends_may_be_unknown=True)
    slave.open(slave=False)
    assert slave.send(b"new", topic="Old")[0].queue_offset == 0


def test_ends_from_before_the_copy_began_do_not_count() -> None:
    master, slave = partial()
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), 4000)
    assert not slave.store.replicated.ends_known
    with pytest.raises(UsageError, match="queueEndsMayBeUnknown"):
        promoted(slave)


def test_a_slave_with_the_whole_log_needs_no_ends() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"a", b"b")
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    assert slave.store.replicated.ends_known
    promoted(slave)
    assert slave.send(b"new")[0].queue_offset == 2


def test_a_slave_drops_what_its_master_deleted_and_shows_what_came_after() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"old", b"older")
    master.send(b"other", topic="Other")
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.settle()
    master.store.delete_topics(["Topic"]).run()
    start = master.store.end
    copy_deletions(master, slave)
    assert slave.store.queue_range("Topic", 0) == (0, 0)
    master.send(b"new")
    slave.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    slave.settle()
    for _ in range(2):
        copy_deletions(master, slave)  # it hears of it in each round
        assert (slave.bodies(), slave.bodies("Other")) == ([b"new"], [b"other"])
        slave.disk.power_loss()
        slave.open()


def test_a_slave_that_hears_of_a_deletion_before_it_has_the_messages_never_shows_them() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"old", b"older")
    master.store.delete_topics(["Topic"]).run()
    master.send(b"new")
    copy_deletions(master, slave)
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.store.reput()
    assert slave.bodies() == [b"new"]


def test_a_deletion_beyond_the_log_of_a_promoted_slave_takes_nothing_that_is_new() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(b"old")
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    master.send(*[b"lost with the master"] * 20, topic="Other")
    master.store.delete_topics(["Topic"]).run()
    copy_deletions(master, slave)
    promoted(slave)
    assert slave.send(b"new")[0].queue_offset == 0
    slave.settle()
    assert slave.bodies() == [b"new"]
    slave.disk.kill()
    slave.open()
    assert slave.bodies() == [b"new"]


@pytest.mark.parametrize("first", [2, 5, 9])
def test_a_slave_that_hears_late_of_a_deletion_has_what_was_made_anew_behind_it(first: int) -> None:
    """The master was a slave once, and goes on at the offset that its master told of, not at 0."""
    master, slave = made_anew(first)
    copy_deletions(master, slave)
    for _ in range(2):
        slave.settle()
        assert slave.bodies() == [b"new"] * 6
        assert slave.store.queue_range("Topic", 0) == (first, first + 6)
        slave.disk.power_loss()
        slave.open()


@pytest.mark.parametrize("first", [0, 1, 4])
@pytest.mark.parametrize("killed", [False, True])
def test_a_slave_that_never_hears_of_a_deletion_loses_nothing_that_came_after_it(first: int, killed: bool) -> None:
    """A log steps back for no other reason; ``first``: where a master that was a slave goes on."""
    _, slave = made_anew(first)
    if killed:
        slave.settle()
        slave.disk.kill()
        slave.open()
    promoted(slave)
    for _ in range(2):
        assert slave.bodies() == [b"new"] * 6
        assert slave.store.queue_range("Topic", 0) == (first, first + 6)
        slave.disk.power_loss()
        slave.open()
    assert slave.send(b"newest")[0].queue_offset == first + 6


def made_anew(first: int) -> tuple[Shelf, Shelf]:
    """Five messages, a deletion that the slave does not hear of, six messages from the queue offset ``first`` on."""
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"old"] * 5)
    master.settle()
    master.store.delete_topics(["Topic"]).run()
    master.store._queues.of("Topic", 0).advance(first)
    master.store._appender.next_offsets["Topic", 0] = first
    master.send(*[b"new"] * 6)
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.settle()
    return master, slave


@pytest.mark.parametrize("first", [0, 2, 5, 9])
@pytest.mark.parametrize("kind", ["kill", "power_loss"])
def test_a_deletion_that_a_slave_hears_of_late_lasts_from_its_note_on(first: int, kind: str) -> None:
    master, slave = made_anew(first)
    copy_deletions(master, slave)
    for _ in range(2):
        assert slave.bodies() == [b"new"] * 6
        assert slave.store.queue_range("Topic", 0) == (first, first + 6)
        getattr(slave.disk, kind)()
        slave.open()


@pytest.mark.parametrize("first", [2, 5, 9])
def test_a_deletion_that_a_slave_hears_of_late_holds_for_what_is_built_again(first: int) -> None:
    master, slave = made_anew(first)
    slave.disk.kill()
    slave.disk.unlink("/store/consumequeue/Topic/0/00000000000000000000")
    slave.open()
    assert slave.store.rebuilding
    copy_deletions(master, slave)
    while slave.store.rebuilding:
        slave.store.rebuild()
    for _ in range(2):
        assert slave.bodies() == [b"new"] * 6
        assert slave.store.queue_range("Topic", 0) == (first, first + 6)
        slave.settle()
        slave.disk.power_loss()
        slave.open()


def test_a_promoted_store_that_lost_the_end_of_tally_queues_goes_on_as_a_master() -> None:
    master, slave = partial()
    slave.store.replicated.learn_ends(dict(master.store.replicated.next_offsets), master.store.end)
    promoted(slave)
    slave.send(b"new", topic="Old")
    slave.settle()
    slave.disk.kill()
    slave.disk.flip("/store/tally-queues", slave.disk.sizes("/store")["tally-queues"] - 1)
    slave.open()
    assert any(event.kind == "tally-queues damaged" for event in slave.events)
    assert slave.store.queue_range("Topic", 0)[1] == 103
    assert slave.send(b"newer", topic="Old")[0].queue_offset == 41


@pytest.mark.parametrize("seed", range(24))
def test_a_queue_that_began_anew_is_what_it_was_when_power_loss_takes_the_record_that_told_of_it(seed: int) -> None:
    """Its files had the names of the old ones, and nothing was noted of them yet."""
    master, slave = Shelf(), Shelf(seed=seed, slave=True)
    old = [b"old%d" % number for number in range(21)]
    master.send(*old)
    end = master.store.end
    master.store.delete_topics(["Topic"]).run()
    master.send(*[b"new"] * 3)
    slave.store.append_raw(0, bytes(master.store.slice(0, end)))
    slave.settle()
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
    slave.store.reput()
    assert slave.bodies() == [b"new"] * 3
    slave.disk._inode(f"{LOG}/{0:020}").pending.clear()
    slave.disk.power_loss()
    slave.open()
    while slave.store.rebuilding:
        slave.store.rebuild()
    assert (slave.store.end, slave.bodies()) == (end, old)
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
    slave.settle()
    assert slave.bodies() == [b"new"] * 3


@pytest.mark.parametrize(("lost", "seen"), [(320, 16), (0, 0)])
def test_a_deletion_told_while_a_queue_is_built_again_hides_what_is_before_it(lost: int, seen: int) -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    master.send(*[b"old"] * 20)
    master.store.delete_topics(["Topic"]).run()
    master.store._queues.of("Topic", 0).advance(20)
    master.store._appender.next_offsets["Topic", 0] = 20
    master.send(*[b"new"] * 6)
    slave.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    slave.settle()
    slave.disk.kill()
    slave.disk.unlink(f"/store/consumequeue/Topic/0/{lost:020}")
    slave.open()
    assert slave.bodies() == [b"old"] * seen
    copy_deletions(master, slave)
    assert slave.bodies() == []
    while slave.store.rebuilding:
        slave.store.rebuild()
    assert (slave.bodies(), slave.store.queue_range("Topic", 0)) == ([b"new"] * 6, (20, 26))


def test_a_deletion_told_late_holds_for_a_queue_whose_log_loses_its_end() -> None:
    master, slave = made_anew(5)
    copy_deletions(master, slave)
    slave.settle()
    end = slave.store.end
    master.send(b"lost")
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
    slave.store.reput()
    slave.store.maintain(slave.clock.ms)
    slave.disk._inode(f"{LOG}/{0:020}").pending.clear()
    slave.disk.power_loss()
    slave.open()
    assert (slave.store.end, slave.bodies()) == (end, [b"new"] * 6)


def test_a_part_of_the_log_that_power_loss_took_as_a_whole_needs_no_ends() -> None:
    master, slave = partial()
    start = slave.store.first
    lost = Shelf(seed=3, slave=True)
    lost.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    lost.disk._inode(f"{LOG}/{start:020}").pending.clear()
    lost.disk.power_loss()
    lost.open()
    assert (lost.store.first, lost.store.end) == (0, 0)
    lost.store.append_raw(0, bytes(master.store.slice(0, 4096)))
    promoted(lost)
    assert lost.send(b"new", topic="Old")[0].queue_offset > 0


def test_a_slave_that_lost_its_first_file_goes_on_behind_it_and_needs_the_ends() -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    numbers = [b"%03d" % number for number in range(100)]
    master.send(*numbers)
    for at in (0, 4096):
        slave.store.append_raw(at, bytes(master.store.slice(at, 4096)))
    slave.store.replicated.learn_ends({}, 0, master.store.first)
    slave.disk._inode(f"{LOG}/{0:020}").pending.clear()
    slave.store._log.files.files[1].file.sync()
    slave.disk.sync_dir(LOG)
    slave.disk.unlink(f"{LOG}/{0:020}")
    slave.disk.sync_dir(LOG)
    slave.disk.power_loss()
    slave.open()
    assert (slave.store.first, slave.store.end, slave.store.reput_offset) == (4096, 8192, 8192)
    messages = slave.read()
    assert [message.stored_body for message in messages] == numbers[messages[0].queue_offset :][: len(messages)]
    assert slave.store.lacks_beginning("Topic", 0), "what the master said of it was before that"
    with pytest.raises(UsageError, match="never told where the master's queues end"):
        promoted(slave)


@pytest.mark.parametrize("lost", [("Topic", "Other"), ("Topic",)])
@pytest.mark.parametrize("killed", [False, True])
def test_a_queue_that_lost_a_file_and_then_its_logs_end_has_all_when_that_comes_again(
    killed: bool, lost: tuple[str, ...]
) -> None:
    master, slave = Shelf(), Shelf(seed=2, slave=True)
    numbers = [b"%03d" % number for number in range(32)]
    master.send(*numbers[:20])
    master.send(b"other", topic="Other")
    end = master.store.end
    master.send(*numbers[20:])
    slave.store.append_raw(0, bytes(master.store.slice(0, end)))
    slave.settle()
    slave.disk.kill()
    for topic in lost:
        slave.disk.unlink(f"/store/consumequeue/{topic}/0/{0:020}")
    slave.open()
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
    slave.store.reput()
    slave.store.maintain(slave.clock.ms)  # it notes more than power loss leaves of the log
    slave.disk._inode(f"{LOG}/{0:020}").pending.clear()
    slave.disk.power_loss()
    slave.open()
    assert slave.store.end == end
    if killed:
        slave.disk.kill()
        slave.open()
    slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
    for _ in range(2):
        slave.settle()
        while slave.store.rebuilding:
            slave.store.rebuild()
        assert (slave.bodies(), slave.bodies("Other")) == (numbers, [b"other"])
        slave.disk.kill()
        slave.open()


def test_a_promotion_that_is_refused_leaves_a_store_stopped_in_order() -> None:
    """Else its start as the slave that it is would take it for one that was killed."""
    _, slave = partial()
    slave.settle()
    slave.store.close()
    with pytest.raises(UsageError, match="never told"):
        slave.open(slave=False)
    slave.open()
    assert [event.fields["clean"] for event in slave.events if event.kind == "store opened"][-1]


def test_a_part_of_the_log_that_power_loss_took_as_a_whole_needs_no_ends_of_who_is_started_as_a_master() -> None:
    master, slave = partial()
    start = slave.store.first
    lost = Shelf(seed=3, slave=True)
    lost.store.append_raw(start, bytes(master.store.slice(start, 4096)))
    lost.disk._inode(f"{LOG}/{start:020}").pending.clear()
    lost.disk.power_loss()
    lost.open(slave=False)
    assert lost.send(b"new", topic="Old")[0].queue_offset == 0


def lose_first_file(shelf: Shelf) -> None:
    """Power loss, after which the second file of the log is there: nothing was synced."""
    shelf.disk._inode(f"{LOG}/{0:020}").pending.clear()
    shelf.store._log.files.files[1].file.sync()
    shelf.disk.sync_dir(LOG)
    shelf.disk.unlink(f"{LOG}/{0:020}")
    shelf.disk.sync_dir(LOG)
    shelf.disk.power_loss()


def test_a_master_that_lost_its_first_file_is_a_master_as_before() -> None:
    """There is nobody who could tell it where its queues ended."""
    master = Shelf()
    master.send(*[b"%03d" % number for number in range(60)])
    lose_first_file(master)
    master.open()
    assert master.store.first == 4096
    first, end = master.store.queue_range("Topic", 0)
    assert 0 < first < end == master.send(b"new")[0].queue_offset


def test_a_queue_that_lost_a_file_and_then_its_logs_end_is_read_by_no_start_wherever_one_was_killed() -> None:
    """What ``tally-synced`` has of the queues goes back with them, and first: else the last batch is not believed."""
    master, whole, step = Shelf(), False, 0
    numbers = [b"%03d" % number for number in range(32)]
    master.send(*numbers[:20])
    end = master.store.end
    master.send(*numbers[20:])
    while not whole:
        slave = Shelf(seed=2, slave=True)
        slave.store.append_raw(0, bytes(master.store.slice(0, end)))
        slave.settle()
        slave.store.append_raw(end, bytes(master.store.slice(end, 4096)))
        slave.store.reput()
        slave.store.maintain(slave.clock.ms)  # it notes more than power loss leaves of the log
        slave.disk._inode(f"{LOG}/{0:020}").pending.clear()
        slave.disk.unlink(f"/store/consumequeue/Topic/0/{0:020}")
        slave.disk.power_loss()
        slave.events.clear()
        step += 1
        slave.disk.crash_at = slave.disk.operations + step
        try:
            slave.open()
            whole = True
        except Crashed:
            pass
        slave.disk.kill()
        slave.open()
        slave.disk.kill()
        opened = [event.fields["queues_read"] for event in slave.events if event.kind == "store opened"]
        assert opened == [False] * len(opened), f"killed at step {step}"
    assert step > 10
