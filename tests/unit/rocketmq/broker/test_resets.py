from __future__ import annotations

from tallystick.rocketmq.broker.resets import STRIDE, Resets, ResetTable


def test_counters_step_by_group_and_queue() -> None:
    resets = Resets()
    assert not resets.dirty
    resets.went_back("T@g", 0)
    resets.went_back("T@g", 0)
    assert (resets.get("T@g", 0), resets.get("T@g", 1), resets.get("U@g", 0)) == (2, 0, 0)
    assert resets.dirty
    assert resets.of(["T@g", "U@g"]) == resets.table() == ResetTable(0, {"T@g": {0: 2}})


def test_an_operators_reset_is_beyond_all_steps_that_may_have_been_lost() -> None:
    resets = Resets(ResetTable(0, {"T@g": {0: 3}}))
    assert not resets.stepped_since("T@g", 0, 3) and resets.stepped_since("T@g", 0, 2)
    resets.set_on_purpose("T@g", 0)
    assert resets.get("T@g", 0) == STRIDE
    resets.went_back("T@g", 0)
    resets.set_on_purpose("T@g", 0)
    assert resets.get("T@g", 0) == 2 * STRIDE


def test_what_is_deleted_leaves_a_floor_that_no_counter_is_below() -> None:
    resets = Resets(ResetTable(0, {"T@g": {0: 7}, "U@g": {0: 3, 1: 9}}))
    resets.forget(["T@g", "never"])
    assert (resets.get("T@g", 0), resets.get("U@g", 0), resets.get("U@g", 1)) == (STRIDE,) * 3
    resets.went_back("U@g", 0)
    assert resets.get("U@g", 0) == STRIDE + 1
    resets.forget(["V@g"])
    assert resets.get("T@g", 0) == 2 * STRIDE


def test_a_slave_has_its_masters() -> None:
    resets = Resets()
    resets.replace(ResetTable())
    assert not resets.dirty
    resets.replace(ResetTable(4, {"T@g": {0: 7}}))
    assert (resets.get("T@g", 0), resets.get("T@g", 1), resets.dirty) == (7, 4, True)
