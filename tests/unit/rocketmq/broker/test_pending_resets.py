"""Where operators set groups, until their consumers have heard of it."""

from __future__ import annotations

import pytest

from tallystick.rocketmq.broker import pending_resets
from tallystick.rocketmq.broker.pending_resets import PendingResets
from tallystick.rocketmq.broker.resets import Resets, ResetTable


def waiting() -> PendingResets:
    return Resets().pending


def test_a_consumer_is_told_until_it_goes_on_from_there() -> None:
    resets = waiting()
    resets.put("T@g", 0, 10)
    assert [resets.hear("T@g", 0, offset) for offset in (100, 101, 10, 11)] == [10, 10, None, None]
    assert resets.hear("U@h", 0, 5) is None and not resets


@pytest.mark.parametrize("forget", ["topic", "group"])
def test_what_is_deleted_takes_its_resets_along(forget: str) -> None:
    """Else what comes under its name is passed over."""
    resets = waiting()
    resets.put("T@g", 0, 100)
    resets.put("U@h", 0, 7)
    resets.forget_topic("T") if forget == "topic" else resets.forget_group("g")
    assert (resets.hear("T@g", 0, 0), resets.hear("U@h", 0, 0), len(resets)) == (None, 7, 1)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_resets, "MOST", 3)
    resets = waiting()
    for topic in (0, 1, 2, 0, 3):
        resets.put(f"T{topic}@g", 0, 9)
    assert [resets.hear(f"T{topic}@g", 0, 0) for topic in range(4)] == [9, None, 9, 9]
    for queue in range(5):
        resets.put("T@g", queue, 9)
    assert [resets.hear("T@g", queue, 0) for queue in range(5)] == [None, None, 9, 9, 9] and len(resets) == 3


@pytest.mark.rule("H13")
def test_h13_they_outlive_a_restart_and_are_copied_with_the_counters() -> None:
    """The consumer that has not heard would go on where it was, and commit that."""
    before = Resets()
    before.pending.put("T@g", 0, 10)
    before.pending.put("U@g", 1, 20)
    assert before.dirty, "to be saved"
    before.dirty = False
    assert before.pending.hear("U@g", 1, 20) is None and before.dirty, "heard, so to be saved without it"
    after, slave = Resets(before.table()), Resets()
    slave.replace(before.of(["T@g"], with_names=False))
    for resets in (after, slave):
        assert (resets.pending.hear("T@g", 0, 100), resets.pending.hear("U@g", 1, 0)) == (10, None)
    slave.dirty = False
    slave.replace(before.of(["T@g"], with_names=False))
    assert not slave.dirty
    slave.replace(ResetTable())
    assert slave.dirty and slave.pending.hear("T@g", 0, 100) is None
