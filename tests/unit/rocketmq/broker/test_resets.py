from __future__ import annotations

from tallystick.rocketmq.broker.resets import MAX_NAMES, STRIDE, ResetsCore, ResetTable


def test_counters_step_by_group_and_queue() -> None:
    resets = ResetsCore()
    assert not resets.dirty
    resets.went_back("T@g", 0)
    resets.went_back("T@g", 0)
    assert (resets.get("T@g", 0), resets.get("T@g", 1), resets.get("U@g", 0)) == (2, 0, 0)
    assert resets.dirty
    assert resets.of(["T@g", "U@g"], with_names=True) == resets.table() == ResetTable(0, {"T@g": {0: 2}})


def test_an_operators_reset_is_beyond_all_steps_that_may_have_been_lost() -> None:
    resets = ResetsCore(ResetTable(0, {"T@g": {0: 3}}))
    assert not resets.stepped_since("T@g", 0, 3) and resets.stepped_since("T@g", 0, 2)
    resets.set_on_purpose("T@g", 0)
    assert resets.get("T@g", 0) == STRIDE
    resets.went_back("T@g", 0)
    resets.set_on_purpose("T@g", 0)
    assert resets.get("T@g", 0) == 2 * STRIDE


def test_what_is_deleted_has_counters_beyond_all_it_had_and_nothing_else_does() -> None:
    resets = ResetsCore(ResetTable(0, {"T@g": {0: 7, 1: STRIDE}, "U@g": {0: 3}, "U@h": {0: 4}}))
    resets.forget_topic("T", ["T@g", "T@never"])
    assert [resets.get(key, 0) for key in ("T@g", "T@new", "U@g", "U@h")] == [2 * STRIDE, 2 * STRIDE, 3, 4]
    resets.went_back("T@g", 0)
    assert (resets.get("T@g", 0), resets.get("T@g", 1)) == (2 * STRIDE + 1, 2 * STRIDE)
    resets.forget_group("g", ["T@g", "U@g"])
    assert [resets.get(key, 0) for key in ("T@g", "V@g", "U@h", "T@h")] == [3 * STRIDE, 3 * STRIDE, 4, 2 * STRIDE]
    resets.forget_topic("T", ["T@h"])
    assert resets.get("T@h", 0) == 3 * STRIDE


def test_names_of_what_was_deleted_are_bounded_and_the_oldest_are_a_floor_for_all() -> None:
    resets = ResetsCore()
    resets.forget_topic("first", ["first@g"])
    for number in range(MAX_NAMES - 1):
        resets.forget_topic(f"T{number}", [f"T{number}@g"])
    assert (resets.get("first@g", 0), resets.get("other@g", 0)) == (STRIDE, 0)
    resets.forget_topic("last", ["last@g"])
    assert (resets.get("first@g", 0), resets.get("other@g", 0)) == (STRIDE, STRIDE)
    assert len(resets.table().topics) == MAX_NAMES // 2 + 1 and "last" in resets.table().topics
    resets.forget_topic("last", ["last@g"])
    assert resets.get("last@g", 0) == 2 * STRIDE


def test_a_slave_has_its_masters() -> None:
    resets = ResetsCore()
    assert resets.replace(ResetTable(4, {"T@g": {0: 7}})) == ResetTable()
    assert (resets.get("T@g", 0), resets.get("T@g", 1)) == (7, 4)
    assert resets.replace(ResetTable(4, {"T@g": {0: 7}}, {"U": STRIDE})) == ResetTable(4, {"T@g": {0: 7}})
    assert (resets.get("U@g", 0), resets.of(["T@g"], with_names=False)) == (STRIDE, ResetTable(4, {"T@g": {0: 7}}))
