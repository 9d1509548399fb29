from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from support.copied_offsets import lacking, take_over
from support.stores import SteppingClock
from tallystick.rocketmq.broker.offset_keys import STEP_KEYS
from tallystick.rocketmq.broker.offsets import COMMITS_PER_VERSION, Commit, Offsets, SavedOffsets
from tallystick.rocketmq.broker.resets import STRIDE, ResetTable
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion


def master(**offsets: int) -> OffsetTable:
    """A table of group g in topic T: queue q0, q1 … to offset."""
    queues = {int(queue[1:]): offset for queue, offset in offsets.items()}
    return OffsetTable(DataVersion(0, 5, 5), {"T@g": queues} if queues else {})


def endless(topic: str, queue_id: int) -> int:
    return sys.maxsize


def forget_group(offsets: Offsets, group: str) -> None:
    list(offsets.forgetting_group(group))


def test_commits() -> None:
    offsets = Offsets(SteppingClock(), endless)
    assert offsets.get("T", "g", 0) is None
    offsets.commit("T", "g", 0, 10)
    offsets.commit("T", "g", 0, 4)  # back, on purpose
    offsets.pulled("U", "g", 1, 9)
    assert (offsets.get("T", "g", 0), offsets.get_pulled("U", "g", 1)) == (4, 9)
    assert dict(offsets.queues("T", "g")) == {0: 4}
    assert (offsets.topics_of("g"), offsets.groups_of("T"), offsets.groups_of("U")) == (["T"], ["g"], [])
    assert offsets.table().group_topics == {"g": {"T"}}


def test_the_version_steps_once_in_many_commits() -> None:
    offsets = Offsets(SteppingClock(), endless)
    for number in range(COMMITS_PER_VERSION):
        assert offsets.version.counter == 0
        offsets.commit("T", "g", 0, number)
    assert offsets.version.counter == 1


def test_what_is_forgotten_is_gone_from_everywhere() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    for topic in ("T", "U"):
        offsets.commit(topic, "g", 0, 1)
        offsets.commit(topic, "h", 0, 1)
        offsets.pulled(topic, "g", 0, 1)
    offsets.forget_topic("T")
    forget_group(offsets, "h")
    saved = offsets.to_save()
    assert (saved.offsets, saved.pull_offsets, saved.own) == ({"U@g": {0: 1}}, {"U@g": {0: 1}}, {"U@g": {0: 1}})


def test_a_master_knows_no_commits_of_its_own() -> None:
    offsets = Offsets(SteppingClock(), endless)
    offsets.commit("T", "g", 0, 1)
    assert offsets.to_save().own is None
    assert b"own" not in b"".join(dialect.write_lines(offsets.to_save()))


@pytest.mark.rule("H12")
def test_h12_a_slave_has_its_masters_offsets_word_for_word() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    take_over(offsets, master(q0=5, q1=7))
    take_over(offsets, master(q0=3))  # the master went back, and forgot a queue
    assert offsets.table() == OffsetTable(DataVersion(0, 5, 5), {"T@g": {0: 3}}, {}, {"g": {"T"}})


@pytest.mark.rule("H12", "H13")
def test_h13_a_master_that_comes_back_does_not_set_offsets_back() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    take_over(offsets, master(q0=5, q1=5))
    offsets.commit("T", "g", 0, 20)  # consumed here while the master was away
    old = master(q0=5, q1=5)
    assert lacking(offsets, old) == [Commit("T", "g", 0, 20)]
    take_over(offsets, old)
    assert dict(offsets.queues("T", "g")) == {0: 20, 1: 5}
    take_over(offsets, old)  # for as long as the master does not know it
    assert offsets.get("T", "g", 0) == 20
    told = master(q0=20, q1=5)
    assert lacking(offsets, told) == []
    take_over(offsets, told)
    take_over(offsets, master(q0=2))  # from now on the master's word counts again
    assert offsets.get("T", "g", 0) == 2


def test_a_master_that_is_further_on_is_not_told_older_numbers() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    offsets.commit("T", "g", 0, 20)
    assert lacking(offsets, master(q0=30)) == []
    take_over(offsets, master(q0=30))
    assert offsets.get("T", "g", 0) == 30
    assert offsets.to_save().own is None


def test_what_the_master_was_told_is_its_own_no_more() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    offsets.commit("T", "g", 0, 20)
    offsets.commit("T", "g", 0, 21)
    offsets.disown(Commit("T", "g", 0, 20))
    offsets.disown(Commit("T", "g", 9, 20))
    assert offsets.to_save().own == {"T@g": {0: 21}}
    offsets.disown(Commit("T", "g", 0, 21))
    assert offsets.to_save().own is None
    take_over(offsets, master())
    assert offsets.get("T", "g", 0) is None


@pytest.mark.rule("H13")
def test_h13_commits_of_a_slave_outlive_its_restart() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    offsets.commit("T", "g", 0, 20)
    text = b"".join(dialect.write_lines(offsets.to_save()))
    again = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets), slave=True)
    take_over(again, master(q0=5))
    assert again.get("T", "g", 0) == 20
    as_master = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets))
    assert as_master.to_save().own is None


@pytest.mark.rule("H13")
def test_h13_commits_of_a_slave_that_were_saved_without_counters_are_told() -> None:
    saved = SavedOffsets(DataVersion(0, 5, 5), {"T@g": {0: 20}}, own={"T@g": {0: 20}})  # of a version before
    offsets = Offsets(SteppingClock(), endless, saved, slave=True)
    assert lacking(offsets, master(q0=5), ResetTable()) == [Commit("T", "g", 0, 20)]
    offsets.commit("T", "g", 0, 21)
    offsets.disown(Commit("T", "g", 0, 21))
    assert lacking(offsets, master(q0=5), ResetTable()) == []


def test_the_saver_is_told_only_of_changes() -> None:
    offsets = Offsets(SteppingClock(), endless, slave=True)
    take_over(offsets, master(q0=5))
    assert offsets.dirty
    offsets.dirty = False
    take_over(offsets, master(q0=5))
    assert not offsets.dirty
    offsets.commit("T", "g", 0, 5)
    offsets.dirty = False
    take_over(offsets, master(q0=5))
    assert offsets.dirty  # the commit is no longer its own


def test_no_offset_stays_beyond_a_log_that_lost_its_tail() -> None:
    offsets = Offsets(SteppingClock(), lambda topic, queue_id: 90)
    offsets.commit("T", "g", 0, 100)
    offsets.commit("T", "g", 1, 90)
    assert offsets.cut() == [Commit("T", "g", 0, 100)]
    assert dict(offsets.queues("T", "g")) == {0: 90, 1: 90}
    assert offsets.cut() == []


@pytest.mark.rule("H13")
def test_h13_a_slave_tells_of_nothing_beyond_the_messages_it_has() -> None:
    ends = {0: 40}
    offsets = Offsets(SteppingClock(), lambda topic, queue_id: ends[queue_id], slave=True)
    offsets.commit("T", "g", 0, 50)  # read at the master, which then lost these messages
    assert offsets.get("T", "g", 0) == 50
    assert lacking(offsets, master(q0=30)) == [Commit("T", "g", 0, 40)]
    assert lacking(offsets, master(q0=40)) == []
    ends[0] = 35  # and this slave, at a restart
    assert offsets.cut() == [Commit("T", "g", 0, 40)]
    assert lacking(offsets, master(q0=30)) == [Commit("T", "g", 0, 35)]


def test_a_slave_cuts_nothing_that_it_copied() -> None:
    """It catches up, and the number is its master's business."""
    offsets = Offsets(SteppingClock(), lambda topic, queue_id: 3, slave=True)
    take_over(offsets, master(q0=5))
    assert offsets.cut() == []
    assert offsets.get("T", "g", 0) == 5


@pytest.mark.rule("H13")
def test_h13_commits_and_copies_in_any_order_end_as_one_queue_at_a_time_would() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    offsets = Offsets(SteppingClock(), endless, slave=True)
    here: dict[int, int] = {}
    own: dict[int, int] = {}
    for _ in range(2000):
        if rng.randrange(3):
            queue_id, offset = rng.randrange(4), rng.randrange(50)
            offsets.commit("T", "g", queue_id, offset)
            here[queue_id] = own[queue_id] = offset
        else:
            theirs = {queue_id: rng.randrange(50) for queue_id in rng.sample(range(4), rng.randrange(5))}
            take_over(offsets, OffsetTable(DataVersion(), {"T@g": dict(theirs)}))
            own = {queue_id: offset for queue_id, offset in own.items() if theirs.get(queue_id, -1) < offset}
            here = theirs | own
        assert dict(offsets.queues("T", "g")) == here, f"seed {seed}"


# Resets (``resets``)


def taken_from(at_slave: Offsets, at_master: Offsets) -> list[bool]:
    """What becomes of the slave's commits at its master."""
    counters = at_master.resets.table()
    return [at_master.take(commit) for commit in lacking(at_slave, at_master.table(), counters)]


@pytest.fixture
def two() -> tuple[Offsets, Offsets]:
    """A master, where a group stands at 50, and its slave, which has copied that."""
    at_master, at_slave = Offsets(SteppingClock(), endless), Offsets(SteppingClock(), endless, slave=True)
    at_master.commit("T", "g", 0, 50)
    take_over(at_slave, copy_of(at_master), ResetTable())
    return at_master, at_slave


def copy_of(offsets: Offsets) -> OffsetTable:
    return dialect.read_as(dialect.write_strict(offsets.table()), OffsetTable)


@pytest.mark.rule("H13")
@pytest.mark.parametrize("to", [10, 50, 70])
def test_h13_a_commit_of_a_slave_does_not_undo_a_later_reset(two: tuple[Offsets, Offsets], to: int) -> None:
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 100)  # the master was away
    at_master.reset("T", "g", 0, to)
    assert taken_from(at_slave, at_master) == []
    assert not at_master.take(Commit("T", "g", 0, 100, resets=0))  # it was told before the slave could look
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    assert at_slave.get("T", "g", 0) == at_master.get("T", "g", 0) == to
    at_slave.commit("T", "g", 0, to + 5)  # from here on the slave knows
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == to + 5


@pytest.mark.rule("H13")
def test_h13_who_goes_back_at_a_slave_is_told_of_all_the_same(two: tuple[Offsets, Offsets]) -> None:
    """Counters are the master's: a slave that stepped them would be believed nothing any more."""
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 100)
    at_slave.commit("T", "g", 0, 60)
    assert at_slave.resets.get("T@g", 0) == 0
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == 60


@pytest.mark.rule("H13")
def test_h13_a_commit_that_outlives_a_copy_keeps_its_counter(two: tuple[Offsets, Offsets]) -> None:
    at_master, at_slave = two
    at_master.reset("T", "g", 0, 10)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 30)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())  # the master could not be told
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == 30


@pytest.mark.rule("H13")
def test_h13_who_goes_back_by_a_commit_at_the_master_does_so_on_purpose(two: tuple[Offsets, Offsets]) -> None:
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 100)
    at_master.commit("T", "g", 0, 10)
    assert taken_from(at_slave, at_master) == []
    at_master.commit("T", "g", 0, 20)
    assert at_master.resets.get("T@g", 0) == 1


@pytest.mark.rule("H13")
def test_h13_who_commits_the_same_again_does_not_go_back(two: tuple[Offsets, Offsets]) -> None:
    """A consumer without new messages does it every few seconds, and what comes after at a slave is to be taken."""
    at_master, at_slave = two
    at_master.commit("T", "g", 0, 50)
    assert at_master.resets.get("T@g", 0) == 0
    at_slave.commit("T", "g", 0, 100)
    assert taken_from(at_slave, at_master) == [True]


@pytest.mark.rule("H13")
def test_h13_a_commit_after_a_step_that_the_master_lost_is_taken(two: tuple[Offsets, Offsets]) -> None:
    """Who goes back by a commit has the counter saved seconds later; the slave may have copied it before the crash."""
    at_master, at_slave = two
    saved = copy_of(at_master), ResetTable(0, {})
    at_master.commit("T", "g", 0, 40)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 100)  # the master was killed
    again = Offsets(SteppingClock(), endless, SavedOffsets(saved[0].version, saved[0].offsets), saved[1])
    assert taken_from(at_slave, again) == [True]
    assert again.get("T", "g", 0) == 100


@pytest.mark.rule("H13")
@pytest.mark.parametrize("lost", [1, 2, 10_000])
def test_h13_a_reset_is_later_than_any_step_that_the_master_lost(two: tuple[Offsets, Offsets], lost: int) -> None:
    at_master, at_slave = two
    saved = copy_of(at_master)
    for _ in range(lost):
        at_master.commit("T", "g", 0, 60)
        at_master.commit("T", "g", 0, 40)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 100)  # the master was killed
    again = Offsets(SteppingClock(), endless, SavedOffsets(saved.version, saved.offsets), ResetTable(0, {}))
    again.reset("T", "g", 0, 10)  # before it hears of the slave's commit
    assert taken_from(at_slave, again) == []
    assert not again.take(Commit("T", "g", 0, 100, resets=lost))
    take_over(at_slave, copy_of(again), again.resets.table())
    assert at_slave.get("T", "g", 0) == again.get("T", "g", 0) == 10


@pytest.mark.rule("H13")
@pytest.mark.parametrize("forget", [Offsets.forget_topic, forget_group])
def test_h13_what_was_deleted_and_made_again_has_no_commits_of_before(
    two: tuple[Offsets, Offsets], forget: Callable[[Offsets, str], None]
) -> None:
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 100)
    forget(at_master, "g" if forget is forget_group else "T")
    at_master.commit("T", "g", 0, 1)
    assert taken_from(at_slave, at_master) == []


@pytest.mark.rule("H13")
@pytest.mark.parametrize("forget", [Offsets.forget_topic, forget_group])
def test_h13_commits_to_what_was_deleted_count_no_more_though_the_master_knew_of_none(
    forget: Callable[[Offsets, str], None],
) -> None:
    at_master, at_slave = Offsets(SteppingClock(), endless), Offsets(SteppingClock(), endless, slave=True)
    at_slave.commit("T", "g", 0, 100)
    forget(at_master, "g" if forget is forget_group else "T")
    assert taken_from(at_slave, at_master) == []
    assert at_master.get("T", "g", 0) is None


def test_the_deletion_of_a_name_that_a_stranger_invents_is_not_noted() -> None:
    offsets = Offsets(SteppingClock(), endless)
    offsets.forget_topic("T", was_there=False)
    list(offsets.forgetting_group("g", was_there=False))
    assert (offsets.resets.dirty, offsets.resets.table()) == (False, ResetTable())


@pytest.mark.rule("H13")
@pytest.mark.parametrize("forget", [Offsets.forget_topic, forget_group])
def test_h13_a_deletion_at_the_master_leaves_the_commits_of_others_at_the_slave(
    two: tuple[Offsets, Offsets], forget: Callable[[Offsets, str], None]
) -> None:
    at_master, at_slave = two
    at_master.commit("U", "other", 0, 5)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 100)
    forget(at_master, "other" if forget is forget_group else "U")
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == 100


def test_a_commit_of_a_slave_sets_nobody_back(two: tuple[Offsets, Offsets]) -> None:
    at_master, at_slave = two
    assert at_master.take(Commit("T", "g", 0, 40))
    assert at_master.get("T", "g", 0) == 50
    at_slave.commit("T", "g", 0, 60)
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == 60
    assert at_master.resets.get("T@g", 0) == 0


def test_the_counter_of_a_commit_outlives_the_slaves_restart(two: tuple[Offsets, Offsets]) -> None:
    at_master, at_slave = two
    at_master.reset("T", "g", 0, 50)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 100)
    text = b"".join(dialect.write_lines(at_slave.to_save()))
    again = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets), slave=True)
    assert lacking(again, at_master.table()) == [Commit("T", "g", 0, 100, resets=STRIDE)]
    assert taken_from(again, at_master) == [True]


def test_an_original_master_has_no_counters(two: tuple[Offsets, Offsets]) -> None:
    at_slave = two[1]
    at_slave.commit("T", "g", 0, 100)
    take_over(at_slave, master(q0=10))
    assert at_slave.get("T", "g", 0) == 100
    assert lacking(at_slave, master(q0=10)) == [Commit("T", "g", 0, 100)]


def test_offsets_have_a_bound_that_a_copy_does_not() -> None:
    full = Offsets(SteppingClock(), endless, most=2)
    assert [full.commit("T", "g", queue_id, 1) for queue_id in range(3)] == [True, True, False]
    assert full.commit("T", "g", 0, 2)
    assert not full.reset("T", "h", 0, 2)
    assert full.resets.get("T@h", 0) == 0, "nothing was set"
    full.pulled("T", "g", 0, 1)
    full.pulled("T", "g", 1, 1)
    full.pulled("T", "g", 2, 1)
    assert full.get_pulled("T", "g", 2) is None
    full.pulled("U", "g", 0, 1)
    assert "U@g" not in full.pulled_to
    full.forget_topic("T")
    assert full.commit("T", "g", 2, 1)
    take_over(full, master(q0=1, q1=2, q2=3))
    assert len(full.queues("T", "g")) == 3


def test_what_is_forgotten_leaves_its_room_and_nothing_else_is_looked_at() -> None:
    offsets = Offsets(SteppingClock(), endless, most=4)
    for topic in ("T", "U"):
        assert offsets.commit(topic, "g", 0, 1)
        assert offsets.commit(topic, "h", 0, 1)
        offsets.pulled(topic, "only pulls", 0, 1)
    assert not offsets.commit("V", "g", 0, 1)
    offsets.forget_topic("T")
    assert offsets.get_pulled("T", "only pulls", 0) is None
    assert offsets.table().group_topics == {"g": {"U"}, "h": {"U"}}
    assert offsets.commit("V", "g", 0, 1)
    assert offsets.commit("V", "h", 0, 1)
    assert not offsets.commit("W", "g", 0, 1)
    removals = offsets.removals
    offsets.forget_topic("T")
    assert offsets.removals == removals
    forget_group(offsets, "only pulls")
    assert (offsets.removals, dict(offsets.pulled_to)) == (removals + 1, {})


def test_a_group_in_very_many_topics_is_forgotten_in_steps_amid_which_consumers_commit() -> None:
    """One in 20,000 topics was a turn of 74 ms."""
    told: list[str] = []
    offsets = Offsets(SteppingClock(), endless, reset_done=lambda: told.append("done"))
    for number in range(3 * STEP_KEYS):
        offsets.commit(f"T{number}", "g", 0, 1)
    removals, before = [], len(offsets.committed)
    for _ in offsets.forgetting_group("g"):
        assert before - len(offsets.committed) <= STEP_KEYS and not told
        offsets.commit("T0", "g", 0, 2)  # its step was the first one
        before = len(offsets.committed)
        removals.append(offsets.removals)
    assert removals == [1, 2, 3] and told == ["done"]
    assert (offsets.committed, offsets.topics_of("g")) == ({"T0@g": {0: 2}}, ["T0"])
