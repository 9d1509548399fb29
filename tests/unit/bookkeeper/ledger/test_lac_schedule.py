"""When writers tell their LAC, and whom they are still telling it."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.lac_schedule import LacScheduleCore


def test_a_writer_is_due_when_it_was_idle_for_the_interval() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(0.1)
    assert core.wake_at() is None
    core.confirmed("a", 1.0)
    core.confirmed("b", 1.05)
    assert (core.wake_at(), core.take_due(1.0, 10)) == (1.1, [])
    core.confirmed("a", 1.08)  # it appended, and that is confirmed
    assert (core.wake_at(), core.take_due(1.16, 10)) == (1.05 + 0.1, ["b"])
    core.appended("a")
    assert (core.wake_at(), core.take_due(9.0, 10)) == (None, [])


def test_a_turn_takes_so_many_and_the_others_are_still_due() -> None:
    core: LacScheduleCore[int] = LacScheduleCore(0.1)
    for writer in range(5):
        core.confirmed(writer, 1.0)
    assert core.take_due(2.0, 2) == [0, 1]
    assert core.wake_at() == 1.1
    assert core.take_due(2.0, 10) == [2, 3, 4]


def test_a_bookie_is_told_one_lac_of_a_ledger_at_a_time_and_then_the_newest() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(0.1)
    assert core.tells("w", "b0", 7)
    assert core.tells("w", "b1", 7) and core.tells("v", "b0", 8)
    assert not core.tells("w", "b0", 7)
    assert not core.tells("w", "b0", 7)
    assert core.answered("b1", 7) is None
    assert core.answered("b0", 7) == "w"
    assert core.tells("w", "b0", 7)
    assert core.answered("b0", 7) is None
