"""A commit at a slave against what was set on purpose, at the slave or at its master: by counters, no clocks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from support.copied_offsets import lacking, take_over
from support.stores import SteppingClock
from tallystick.rocketmq.broker.offset_keys import split
from tallystick.rocketmq.broker.offsets import OffsetCommit, Offsets, SavedOffsets
from tallystick.rocketmq.broker.pending_resets import PendingResetsCore
from tallystick.rocketmq.broker.resets import STRIDE, ResetTable
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import DataVersion


def endless(topic: str, queue_id: int) -> int:
    return sys.maxsize


def forget_group(offsets: Offsets, group: str) -> None:
    list(offsets.forgetting_group(group))


def taken_from(at_slave: Offsets, at_master: Offsets) -> list[bool]:
    """What becomes of the slave's commits at its master."""
    counters = at_master.resets.table()
    return [at_master.take(commit) for commit in lacking(at_slave, at_master.table(), counters)]


@pytest.fixture
def two() -> tuple[Offsets, Offsets]:
    """A master, where a group stands at 50, and its slave, which has copied that."""
    at_master, at_slave = (
        Offsets(SteppingClock(), endless),
        Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE)),
    )
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
    assert not at_master.take(OffsetCommit("T", "g", 0, 100, resets=0))  # it was told before the slave could look
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
def test_h13_who_goes_back_at_a_slave_behind_the_master_is_back_at_both(two: tuple[Offsets, Offsets]) -> None:
    """The master was away when a consumer sought: what it asked for again never came."""
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 20, went_back=True)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())  # the master could not be told at once
    assert at_slave.get("T", "g", 0) == 20
    at_slave.commit("T", "g", 0, 25)
    assert taken_from(at_slave, at_master) == [True]
    assert (at_master.get("T", "g", 0), at_master.resets.get("T@g", 0)) == (25, 1)
    take_over(at_slave, copy_of(at_master), at_master.resets.table())
    at_slave.commit("T", "g", 0, 30)
    assert taken_from(at_slave, at_master) == [True]
    assert at_master.get("T", "g", 0) == 30


@pytest.mark.rule("H13")
def test_h13_who_goes_back_at_a_slave_does_not_undo_a_later_reset(two: tuple[Offsets, Offsets]) -> None:
    at_master, at_slave = two
    at_slave.commit("T", "g", 0, 20, went_back=True)
    at_master.reset("T", "g", 0, 70)
    assert taken_from(at_slave, at_master) == []
    assert not at_master.take(OffsetCommit("T", "g", 0, 20, resets=1)) and at_master.get("T", "g", 0) == 70


def test_a_counter_that_no_slave_can_have_sets_nobody_back(two: tuple[Offsets, Offsets]) -> None:
    """A stranger says any, and one near the largest number there is could be stepped no more."""
    at_master, _ = two
    assert at_master.take(OffsetCommit("T", "g", 0, 20, resets=(1 << 63) - 1))
    assert (at_master.get("T", "g", 0), at_master.resets.get("T@g", 0)) == (50, 0)


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
    assert not again.take(OffsetCommit("T", "g", 0, 100, resets=lost))
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
    at_master, at_slave = (
        Offsets(SteppingClock(), endless),
        Offsets(SteppingClock(), endless, standing=Standing(Role.SLAVE)),
    )
    at_slave.commit("T", "g", 0, 100)
    forget(at_master, "g" if forget is forget_group else "T")
    assert taken_from(at_slave, at_master) == []
    assert at_master.get("T", "g", 0) is None


def test_the_deletion_of_a_name_that_a_stranger_invents_is_not_noted() -> None:
    offsets = Offsets(SteppingClock(), endless)
    offsets.forget_topic("T", was_there=False)
    list(offsets.forgetting_group("g", was_there=False))
    assert (offsets.resets.dirty, offsets.resets.table()) == (False, ResetTable())


def forget_its_resets(offsets: Offsets, group: str) -> None:
    list(offsets.forgetting_resets(group))


@pytest.mark.parametrize("forget", [Offsets.forget_topic, forget_group, forget_its_resets])
@pytest.mark.parametrize("saved", [False, True])
def test_nobody_is_told_of_resets_of_what_was_deleted(forget: Callable[[Offsets, str], None], saved: bool) -> None:
    """Also where a crash left the reset on the disk, and not the offset."""
    offsets = Offsets(SteppingClock(), endless, resets=ResetTable(pending={"T@g": {0: 10}} if saved else {}))
    offsets.resets.pending.put("T@g", {1: 10})
    offsets.resets.pending.put("U@h", {1: 10})
    assert saved or offsets.reset("T", "g", 1, 10)
    forget(offsets, "T" if forget is Offsets.forget_topic else "g")
    assert offsets.resets.pending.table() == {"U@h": {1: 10}}
    assert offsets.get("T", "g", 1) == (10 if forget is forget_its_resets and not saved else None)


def after_a_crash(*keys: str) -> Offsets:
    """A master's: of resets of these keys the disk had the numbers, and not the offsets."""
    before = Offsets(SteppingClock(), endless)
    for key in keys:
        before.reset(*split(key), 3, 10)
        before.resets.pending.put(key, {3: 10})
    return Offsets(SteppingClock(), endless, resets=before.resets.table())


@pytest.mark.rule("H13")
def test_h13_a_slave_forgets_with_its_topic_what_it_copied_of_a_reset_without_an_offset() -> None:
    """As its next master."""
    at_master = after_a_crash("T@g", "T@h", "U@g")
    offsets = Offsets(SteppingClock(), endless, standing=(standing := Standing(Role.SLAVE)))
    take_over(offsets, copy_of(at_master), at_master.resets.table())
    assert offsets.knows_group("g") and not offsets.groups_of("T") and not offsets.topics_of("g"), "without an offset"
    standing.role = Role.ASYNC_MASTER
    offsets.take_role()
    offsets.forget_topic("T")
    counters = offsets.resets.table()
    assert (set(counters.counts), set(counters.pending), list(offsets.keys_of_resets)) == ({"U@g"}, {"U@g"}, ["U@g"])
    assert counters.topics["T"] > STRIDE, "another topic of that name has other counters"


def test_who_deletes_what_nobody_has_makes_nobody_look_at_resets_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 of them each such request was a turn of 40 ms."""
    offsets = Offsets(SteppingClock(), endless)
    offsets.reset("T", "g", 0, 10)
    looked: list[str] = []
    monkeypatch.setattr(PendingResetsCore, "forget", lambda _, keys: looked.extend(keys))
    offsets.forget_topic("invented", was_there=False)
    list(offsets.forgetting_group("invented", was_there=False))
    list(offsets.forgetting_resets("invented"))
    assert not looked


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
    assert at_master.take(OffsetCommit("T", "g", 0, 40))
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
    again = Offsets(SteppingClock(), endless, dialect.read_as(text, SavedOffsets), standing=Standing(Role.SLAVE))
    assert lacking(again, at_master.table()) == [OffsetCommit("T", "g", 0, 100, resets=STRIDE)]
    assert taken_from(again, at_master) == [True]


def test_an_original_master_has_no_counters(two: tuple[Offsets, Offsets]) -> None:
    at_slave = two[1]
    at_slave.commit("T", "g", 0, 100)
    take_over(at_slave, OffsetTable(DataVersion(), {"T@g": {0: 10}}))
    assert at_slave.get("T", "g", 0) == 100
    assert lacking(at_slave, OffsetTable(DataVersion(), {"T@g": {0: 10}})) == [OffsetCommit("T", "g", 0, 100)]
