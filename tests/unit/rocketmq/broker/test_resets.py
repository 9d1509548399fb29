from __future__ import annotations

from tallystick.rocketmq.broker.resets import Resets, ResetTable


def test_counters_step_by_group_and_queue() -> None:
    resets = Resets()
    assert not resets.dirty
    resets.step("T@g", 0)
    resets.step("T@g", 0)
    assert (resets.get("T@g", 0), resets.get("T@g", 1), resets.get("U@g", 0)) == (2, 0, 0)
    assert resets.dirty
    assert resets.of(["T@g", "U@g"]) == resets.table() == ResetTable(0, {"T@g": {0: 2}})


def test_what_is_deleted_leaves_a_floor_that_no_counter_is_below() -> None:
    resets = Resets(ResetTable(0, {"T@g": {0: 7}, "U@g": {0: 3, 1: 9}}))
    resets.forget(["T@g", "never"])
    assert (resets.get("T@g", 0), resets.get("U@g", 0), resets.get("U@g", 1)) == (8, 8, 9)
    resets.step("U@g", 0)
    assert resets.get("U@g", 0) == 9
    resets.forget(["V@g"])
    assert resets.get("T@g", 0) == 9


def test_a_slave_has_its_masters() -> None:
    resets = Resets()
    resets.replace(ResetTable())
    assert not resets.dirty
    resets.replace(ResetTable(4, {"T@g": {0: 7}}))
    assert (resets.get("T@g", 0), resets.get("T@g", 1), resets.dirty) == (7, 4, True)
