from __future__ import annotations

import random
import sys

import pytest

from support.copied_offsets import lacking, take_over
from support.stores import SteppingClock
from tallystick.rocketmq.broker.offset_keys import STEP_KEYS
from tallystick.rocketmq.broker.offsets import COMMITS_PER_VERSION, OffsetCommit, Offsets, SavedOffsets
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.broker.role import Role, Standing
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
    offsets.set_pull_offset("U", "g", 1, 9)
    assert (offsets.get("T", "g", 0), offsets.get_pull_offset("U", "g", 1)) == (4, 9)
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
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    for topic in ("T", "U"):
        offsets.commit(topic, "g", 0, 1)
        offsets.commit(topic, "h", 0, 1)
        offsets.set_pull_offset(topic, "g", 0, 1)
    offsets.forget_topic("T")
    forget_group(offsets, "h")
    saved = offsets.to_save()
    assert (saved.offsets, saved.pull_offsets, saved.own) == ({"U@g": {0: 1}}, {"U@g": {0: 1}}, {"U@g": {0: 1}})
    assert saved.own_resets is not None and list(saved.own_resets) == ["U@g"]
    saved_again = Offsets(SteppingClock(), endless, saved, standing=Standing(Role.SLAVE))
    assert saved_again.knows_group("g") and not saved_again.knows_group("h")


def test_a_master_knows_no_commits_of_its_own() -> None:
    offsets = Offsets(SteppingClock(), endless)
    offsets.commit("T", "g", 0, 1)
    assert offsets.to_save().own is None
    assert b"own" not in b"".join(dialect.write_lines(offsets.to_save()))


@pytest.mark.rule("H12")
def test_h12_a_slave_has_its_masters_offsets_word_for_word() -> None:
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    take_over(offsets, master(q0=5, q1=7))
    take_over(offsets, master(q0=3))  # the master went back, and forgot a queue
    assert offsets.table() == OffsetTable(DataVersion(0, 5, 5), {"T@g": {0: 3}}, {}, {"g": {"T"}})


@pytest.mark.rule("H12", "H13")
def test_h13_a_master_that_comes_back_does_not_set_offsets_back() -> None:
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    take_over(offsets, master(q0=5, q1=5))
    offsets.commit("T", "g", 0, 20)  # consumed here while the master was away
    old = master(q0=5, q1=5)
    assert lacking(offsets, old) == [OffsetCommit("T", "g", 0, 20)]
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
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    offsets.commit("T", "g", 0, 20)
    assert lacking(offsets, master(q0=30)) == []
    take_over(offsets, master(q0=30))
    assert offsets.get("T", "g", 0) == 30
    assert offsets.to_save().own is None


def test_what_the_master_was_told_is_its_own_no_more() -> None:
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    offsets.commit("T", "g", 0, 20)
    offsets.commit("T", "g", 0, 21)
    offsets.disown(OffsetCommit("T", "g", 0, 20))
    offsets.disown(OffsetCommit("T", "g", 9, 20))
    assert offsets.to_save().own == {"T@g": {0: 21}}
    offsets.disown(OffsetCommit("T", "g", 0, 21))
    assert offsets.to_save().own is None
    take_over(offsets, master())
    assert offsets.get("T", "g", 0) is None


@pytest.mark.rule("H13")
def test_h13_commits_of_a_slave_outlive_its_restart() -> None:
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    offsets.commit("T", "g", 0, 20)
    text = b"".join(dialect.write_lines(offsets.to_save()))
    again = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets), standing=Standing(Role.SLAVE))
    take_over(again, master(q0=5))
    assert again.get("T", "g", 0) == 20
    as_master = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets))
    assert as_master.to_save().own is None


@pytest.mark.rule("H13")
def test_h13_commits_of_a_slave_that_were_saved_without_counters_are_told() -> None:
    saved = SavedOffsets(DataVersion(0, 5, 5), {"T@g": {0: 20}}, own={"T@g": {0: 20}})  # of a version before
    offsets = Offsets(SteppingClock(), endless, saved, standing=Standing(Role.SLAVE))
    assert lacking(offsets, master(q0=5), ResetTable()) == [OffsetCommit("T", "g", 0, 20)]
    offsets.commit("T", "g", 0, 21)
    offsets.disown(OffsetCommit("T", "g", 0, 21))
    assert lacking(offsets, master(q0=5), ResetTable()) == []


@pytest.mark.rule("H13")
@pytest.mark.parametrize("went_back", [False, True])
def test_h13_what_a_crash_would_set_on_is_saved_at_once_whoever_says_that_it_went_back(went_back: bool) -> None:
    saves: list[int] = []
    offsets = Offsets(SteppingClock(), endless, save_now=lambda: saves.append(1))
    offsets.commit("T", "g", 0, 10)
    offsets.commit("T", "g", 0, 20)
    assert len(saves) == 1, "that the group has begun; what comes again after a crash may wait"
    offsets.commit("T", "g", 0, 5, went_back=went_back)
    assert len(saves) == 2


def test_the_saver_is_told_only_of_changes() -> None:
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
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
    assert offsets.cut(slave=False) == [OffsetCommit("T", "g", 0, 100)]
    assert dict(offsets.queues("T", "g")) == {0: 90, 1: 90}
    assert offsets.cut(slave=False) == []


@pytest.mark.rule("H13")
@pytest.mark.parametrize("slave", [False, True])
def test_h13_nobody_is_sent_on_by_a_reset_beyond_a_log_that_lost_its_tail(slave: bool) -> None:
    """New messages there were delivered to nobody. A slave has its master's word, until it is started as a master."""
    waiting = ResetTable(pending={"T@g": {0: 100, 1: 90}})
    offsets = Offsets(
        SteppingClock(),
        lambda topic, queue_id: 90,
        resets=waiting,
        standing=Standing(Role.SLAVE if slave else Role.ASYNC_MASTER),
    )
    offsets.cut(slave=slave)
    assert offsets.resets.pending.table() == {"T@g": {0: 100 if slave else 90, 1: 90}}
    assert offsets.resets.dirty is not slave, "to be saved"


@pytest.mark.rule("H13")
def test_h13_a_slave_tells_of_nothing_beyond_the_messages_it_has() -> None:
    ends = {0: 40}
    offsets = Offsets(SteppingClock(), lambda topic, queue_id: ends[queue_id], standing=Standing(Role.SLAVE))
    assert offsets.is_beyond("T", 0, 41) and not offsets.is_beyond("T", 0, 40)
    offsets.commit("T", "g", 0, 40)
    assert lacking(offsets, master(q0=30)) == [OffsetCommit("T", "g", 0, 40)]
    assert lacking(offsets, master(q0=40)) == []
    ends[0] = 35  # it lost its tail at a restart
    assert offsets.cut(slave=True) == [OffsetCommit("T", "g", 0, 40)]
    assert lacking(offsets, master(q0=30)) == [OffsetCommit("T", "g", 0, 35)]


def test_a_slave_cuts_nothing_that_it_copied() -> None:
    """It catches up, and the number is its master's business."""
    offsets = Offsets(SteppingClock(), lambda topic, queue_id: 3, standing=Standing(Role.SLAVE))
    take_over(offsets, master(q0=5))
    assert offsets.cut(slave=True) == []
    assert offsets.get("T", "g", 0) == 5


@pytest.mark.rule("H13")
def test_h13_commits_and_copies_in_any_order_end_as_one_queue_at_a_time_would() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    offsets = Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE))
    here: dict[int, int] = {}
    own: dict[int, int] = {}
    back: set[int] = set()  # of them: went back here, which the master is to be told whatever it has
    for _ in range(2000):
        if rng.randrange(3):
            queue_id, offset = rng.randrange(4), rng.randrange(50)
            offsets.commit("T", "g", queue_id, offset)
            if offset < here.get(queue_id, 0):
                back.add(queue_id)
            here[queue_id] = own[queue_id] = offset
        else:
            theirs = {queue_id: rng.randrange(50) for queue_id in rng.sample(range(4), rng.randrange(5))}
            take_over(offsets, OffsetTable(DataVersion(), {"T@g": dict(theirs)}))
            own = {queue: offset for queue, offset in own.items() if theirs.get(queue, -1) < offset or queue in back}
            back &= own.keys()
            here = theirs | own
        assert dict(offsets.queues("T", "g")) == here, f"seed {seed}"


def test_offsets_have_a_bound_that_a_copy_does_not() -> None:
    full = Offsets(SteppingClock(), endless, most=2)
    assert [full.commit("T", "g", queue_id, 1) for queue_id in range(3)] == [True, True, False]
    assert full.commit("T", "g", 0, 2)
    assert not full.reset("T", "h", 0, 2)
    assert full.resets.get("T@h", 0) == 0, "nothing was set"
    full.set_pull_offset("T", "g", 0, 1)
    full.set_pull_offset("T", "g", 1, 1)
    full.set_pull_offset("T", "g", 2, 1)
    assert full.get_pull_offset("T", "g", 2) is None
    full.set_pull_offset("U", "g", 0, 1)
    assert "U@g" not in full.pull_offsets
    full.forget_topic("T")
    assert full.commit("T", "g", 2, 1)
    take_over(full, master(q0=1, q1=2, q2=3))
    assert len(full.queues("T", "g")) == 3


def test_what_is_forgotten_leaves_its_room_and_nothing_else_is_looked_at() -> None:
    offsets = Offsets(SteppingClock(), endless, most=4)
    for topic in ("T", "U"):
        assert offsets.commit(topic, "g", 0, 1)
        assert offsets.commit(topic, "h", 0, 1)
        offsets.set_pull_offset(topic, "only pulls", 0, 1)
    assert not offsets.commit("V", "g", 0, 1)
    offsets.forget_topic("T")
    assert offsets.get_pull_offset("T", "only pulls", 0) is None
    assert offsets.table().group_topics == {"g": {"U"}, "h": {"U"}}
    assert offsets.commit("V", "g", 0, 1)
    assert offsets.commit("V", "h", 0, 1)
    assert not offsets.commit("W", "g", 0, 1)
    removals = offsets.removals
    offsets.forget_topic("T")
    assert offsets.removals == removals
    forget_group(offsets, "only pulls")
    assert (offsets.removals, dict(offsets.pull_offsets)) == (removals + 1, {})


def test_a_group_in_very_many_topics_is_forgotten_in_steps_amid_which_consumers_commit() -> None:
    """One in 20,000 topics was a turn of 74 ms."""
    told: list[str] = []
    offsets = Offsets(SteppingClock(), endless, save_now=lambda: told.append("done"))
    for number in range(3 * STEP_KEYS):
        offsets.commit(f"T{number}", "g", 0, 1)
    told.clear()
    removals, before = [], len(offsets.committed_offsets)
    for step, _ in enumerate(offsets.forgetting_group("g")):
        assert before - len(offsets.committed_offsets) <= STEP_KEYS
        assert len(told) == min(step, 1)  # that it begins anew in T0
        offsets.commit("T0", "g", 0, 2)  # its step was the first one
        before = len(offsets.committed_offsets)
        removals.append(offsets.removals)
    assert removals == [STEP_KEYS, 2 * STEP_KEYS, 3 * STEP_KEYS] and told == ["done", "done"]
    assert (offsets.committed_offsets, offsets.topics_of("g")) == ({"T0@g": {0: 2}}, ["T0"])
