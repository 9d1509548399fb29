"""Where operators set groups, until their consumers have heard of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from tallystick.rocketmq.broker import pending_resets
from tallystick.rocketmq.broker.pending_resets import MOST_HEARD, OVERLAP_S, PendingResetsCore
from tallystick.rocketmq.broker.resets import STRIDE, ResetsCore, ResetTable


def waiting() -> PendingResetsCore:
    return ResetsCore().pending


def pull(
    resets: PendingResetsCore, key: str, queue_id: int, offset: int, who: str = "a", now: float = 0.0
) -> int | None:
    return resets.hear(key, queue_id, offset, who, now, commits=False)


def commit(resets: PendingResetsCore, offset: int, who: str, now: float = 0.0) -> int | None:
    return resets.hear("T@g", 0, offset, who, now, commits=True)


def test_a_consumer_is_told_until_it_goes_on_from_there() -> None:
    resets = waiting()
    resets.put("T@g", {0: 10})
    assert [pull(resets, "T@g", 0, offset) for offset in (100, 101, 10, 11)] == [10, 10, None, None]
    assert [pull(resets, "T@g", 0, 10, "b") for _ in range(2)] == [10, None], "it may stand there by itself"
    assert pull(resets, "U@h", 0, 5) is None
    resets.put("T@g", {0: 10})
    assert pull(resets, "T@g", 0, 11) == 10, "of the new one it has not heard"


@pytest.mark.rule("H13")
@pytest.mark.parametrize("old", [100, 3])
def test_h13_another_that_still_reads_where_it_was_does_not_undo_it(old: int) -> None:
    """The one that has heard may have to give the queue up at once; what is in between would never come."""
    resets = waiting()
    resets.put("T@g", {0: 10})
    assert commit(resets, 10, "b") is None
    assert (pull(resets, "T@g", 0, old, "a"), commit(resets, old + 1, "a")) == (10, 10)
    assert (commit(resets, 12, "b"), commit(resets, old + 1, "a")) == (None, 12), "it goes on where the group is now"
    assert [pull(resets, "T@g", 0, 12, "c") for _ in range(2)] == [12, None], "who takes over is there"
    assert (commit(resets, 8, "b"), commit(resets, 8, "d")) == (None, None), "sought back by itself"
    assert (commit(resets, 8, "a"), commit(resets, 9, "a")) == (None, None)
    assert (commit(resets, 8, "c"), commit(resets, 9, "c")) == (9, None), "the group was set back meanwhile, and it too"


@pytest.mark.rule("H13")
def test_h13_who_reads_ahead_of_where_the_group_is_set_does_not_undo_it() -> None:
    """It had pulled all and had done few, the group was to skip them: its next commit brought all of them again."""
    resets = waiting()
    resets.put("T@g", {0: 900})
    assert commit(resets, 6, "a") == 900
    pulled = [pull(resets, "T@g", 0, offset, "a") for offset in (900, 900, 932)]
    assert pulled == [900, None, None], (
        "the first does not show that it heard, nor do more that it is done with the rest"
    )
    assert (commit(resets, 7, "a"), commit(resets, 899, "a", OVERLAP_S)) == (900, 900), "of what it has from before"
    assert (commit(resets, 901, "a", OVERLAP_S - 1), commit(resets, 7, "a", OVERLAP_S - 1)) == (None, None), "sought"
    assert commit(resets, 8, "a", OVERLAP_S) is None and not resets


@pytest.mark.rule("H13")
def test_h13_who_has_pulled_there_is_taken_at_its_word_from_where_it_was_told() -> None:
    """Another went on from there, and with it the group: what lies in between the first one has done itself."""
    resets = waiting()
    resets.put("T@g", {0: 10})
    assert [pull(resets, "T@g", 0, 10, "a") for _ in range(2)] == [10, None]
    assert (commit(resets, 10, "b"), commit(resets, 20, "b")) == (None, None)
    assert commit(resets, 9, "a") == 20, "it may be of before"
    assert (commit(resets, 12, "a"), pull(resets, "T@g", 0, 100, "c")) == (None, 12)


@pytest.mark.rule("H13")
def test_h13_each_change_of_what_waits_is_saved() -> None:
    """Else a restart sends on to where the group was at first, or what is deleted."""

    def is_saved() -> bool:
        dirty, resets.dirty = resets.dirty, False
        return dirty

    resets = ResetsCore()
    pending = resets.pending
    pending.put("T@g", {0: 10})
    pending.put("U@g", {0: 10})
    pending.put("V@g", {0: 10})
    assert is_saved()
    assert commit(pending, 10, "a") is None and not is_saved(), "who has heard is not"
    assert pull(pending, "T@g", 0, 15, "a") is None and not is_saved(), "a pull moves no group"
    assert commit(pending, 20, "a") is None and is_saved()
    assert commit(pending, 20, "a") is None and not is_saved()
    pending.moved("T@g", 0, 20)
    assert not is_saved()
    pending.moved("T@g", 0, 30)
    assert is_saved()
    pending.cut(lambda topic, queue_id: 30)
    assert not is_saved()
    pending.cut(lambda topic, queue_id: 25)
    assert is_saved() and pending.table() == {"T@g": {0: 25}, "U@g": {0: 10}, "V@g": {0: 10}}
    pending.forget(["never@g"])
    assert not is_saved()
    pending.forget(["U@g"])
    assert is_saved()
    assert pull(pending, "T@g", 0, 40, "a", OVERLAP_S) is None and is_saved(), "it has ended"
    assert pending.table() == {"V@g": {0: 10}}


def test_it_is_forgotten_when_who_has_heard_reads_on_for_long() -> None:
    resets = waiting()
    resets.put("T@g", {0: 10})
    assert pull(resets, "T@g", 0, 100, "a", OVERLAP_S) == 10
    assert commit(resets, 10, "b", OVERLAP_S) is None
    assert pull(resets, "T@g", 0, 20, "b", 2 * OVERLAP_S - 1) is None and resets
    assert pull(resets, "T@g", 0, 100, "a", 3 * OVERLAP_S) == 10, "it has not, and nobody else is known to be there"
    assert commit(resets, 10, "c", 3 * OVERLAP_S) is None and resets, "the other may still be there"
    assert pull(resets, "T@g", 0, 20, "b", 3 * OVERLAP_S) is None and not resets
    assert pull(resets, "T@g", 0, 100, "a", 3 * OVERLAP_S) is None
    resets.put("T@g", {0: 10})  # of a group whose members keep their offsets themselves, and would go back for ever
    assert [pull(resets, "T@g", 0, 10, "a", now) for now in (0.0, 0.0, OVERLAP_S)] == [10, None, None] and not resets


def test_of_many_that_have_heard_the_first_are_told_again() -> None:
    resets = waiting()
    resets.put("T@g", {0: 10})
    for number in range(MOST_HEARD + 1):
        commit(resets, 10, str(number))
    assert [pull(resets, "T@g", 0, 11, str(number)) for number in (1, MOST_HEARD, 0)] == [None, None, 10]


def test_what_is_deleted_takes_its_resets_along() -> None:
    """Else what comes under its name is passed over."""
    resets = waiting()
    resets.put("T@g", {0: 100, 1: 100})
    resets.put("U@h", {0: 7})
    resets.forget(["T@g", "T@never"])
    assert (pull(resets, "T@g", 0, 0), pull(resets, "U@h", 0, 0)) == (None, 7)
    resets.forget(["U@h"])
    assert not resets


def test_what_is_deleted_or_gone_on_from_is_to_be_saved() -> None:
    """Else a restart brings back what nobody waits for, or tells consumers to go back to where they were set once."""
    saved = ResetsCore()
    saved.pending.put("T@g", {0: 10})
    changes: dict[str, Callable[[], object]] = {
        "goes on": lambda: saved.pending.hear("T@g", 0, 20, "a", 0.0, commits=True),
        "forgets": lambda: saved.pending.forget(["T@g"]),
    }
    assert saved.pending.hear("T@g", 0, 10, "a", 0.0, commits=True) is None
    for name, change in changes.items():
        saved.dirty = False
        change()
        assert saved.dirty, name


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_resets, "MOST", 3)
    resets = waiting()
    for topic in (0, 1, 2, 0, 3):
        resets.put(f"T{topic}@g", {0: 9})
    assert [pull(resets, f"T{topic}@g", 0, 0) for topic in range(4)] == [9, None, 9, 9]
    for queue in range(5):
        resets.put("T@g", {queue: 9})
    assert [pull(resets, "T@g", queue, 0) for queue in range(5)] == [None, None, 9, 9, 9]
    resets.put("U@g", {0: 8})
    resets.put("T@g", {queue: 7 for queue in range(4)})
    assert [pull(resets, "T@g", queue, 0) for queue in range(5)] == [None, 7, 7, 7, None], "at once, as one by one"
    assert pull(resets, "U@g", 0, 0) is None
    resets.forget(["T@g"])
    for topic in range(4):
        resets.put(f"T{topic}@g", {0: 9})
    assert [pull(resets, f"T{topic}@g", 0, 0) for topic in range(4)] == [None, 9, 9, 9], "the deleted count no more"
    after = ResetsCore(ResetTable(pending={"T@g": {0: 9, 1: 9, 2: 9}})).pending
    after.put("U@g", {0: 8})
    assert [pull(after, "T@g", queue, 0) for queue in range(3)] == [None, 9, 9], "what was saved counts"


def test_who_has_heard_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave has as many resets as its master says."""
    monkeypatch.setattr(pending_resets, "MOST", 2)
    resets = waiting()
    resets.replace({f"T{topic}@g": {0: 9} for topic in range(3)})
    for topic in range(3):
        assert resets.hear(f"T{topic}@g", 0, 9, "a", 0.0, commits=True) is None
    assert [pull(resets, f"T{topic}@g", 0, 10) for topic in (2, 1, 0)] == [None, None, 9]


@pytest.mark.rule("H13")
def test_h13_they_outlive_a_restart_and_are_copied_with_the_counters() -> None:
    """The consumer that has not heard would go on where it was, and commit that."""
    before = ResetsCore()
    before.pending.put("T@g", {0: 10})
    before.pending.put("U@g", {1: 20})
    assert before.dirty, "to be saved"
    before.dirty = False
    for now in (0.0, OVERLAP_S):
        assert not before.dirty, "who has heard is not saved"
        assert before.pending.hear("U@g", 1, 20, "a", now, commits=True) is None
    assert before.dirty, "to be saved without it"
    after, slave = ResetsCore(before.table()), ResetsCore()
    slave.replace(before.of(["T@g"], with_names=False))
    for resets in (after, slave):
        assert (pull(resets.pending, "T@g", 0, 100), pull(resets.pending, "U@g", 1, 0)) == (10, None)
    slave.replace(ResetTable())
    assert pull(slave.pending, "T@g", 0, 100) is None


@pytest.mark.rule("H13")
def test_h13_who_has_heard_at_a_slave_is_told_anew_of_another_reset_alone() -> None:
    """Else each copy set it back, and a reader that commits nothing, or seldom, came no further."""
    master, slave = ResetsCore(), ResetsCore()
    for _ in range(2):
        master.set_on_purpose("T@g", 0)
        master.pending.put("T@g", {0: 10})
        slave.replace(deepcopy(master.table()))
        assert (pull(slave.pending, "T@g", 0, 50), pull(slave.pending, "T@g", 0, 10)) == (10, None)
        for copy in range(3):
            assert pull(slave.pending, "T@g", 0, 50, now=copy * OVERLAP_S) is None
            master.went_back("T@g", 0)
            slave.replace(deepcopy(master.table()))
    assert master.get("T@g", 0) > 2 * STRIDE


@pytest.mark.rule("H13")
def test_h13_what_was_committed_at_a_slave_after_it_stands() -> None:
    resets = waiting()
    resets.moved("T@g", 0, 7)
    assert not resets
    resets.put("T@g", {0: 10})
    resets.moved("T@g", 0, 20)
    assert (pull(resets, "T@g", 0, 100), pull(resets, "T@g", 0, 20)) == (20, None)
    resets.moved("T@g", 0, 15)
    assert pull(resets, "T@g", 0, 100, "b") == 15, "it went back there"
