"""When writers tell their LAC, and whom they are still telling it."""

from __future__ import annotations

from tallystick.bookkeeper.ledger.lac_schedule import MOST_WAIT_S, LacScheduleCore


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
    assert core.answered("b1", 7, 1.0, taken=True) is None
    assert core.answered("b0", 7, 1.0, taken=True) == "w"
    assert core.tells("w", "b0", 7)
    assert core.answered("b0", 7, 1.0, taken=True) is None


def refused(core: LacScheduleCore[str], now: float, *bookies: str) -> None:
    for bookie in bookies:
        assert core.tells("w", bookie, 7)
    for bookie in bookies:
        core.answered(bookie, 7, now, taken=False)


def test_a_lac_that_no_bookie_took_is_told_again_ever_more_seldom() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(1.0)
    now, waits = 5.0, []
    for _ in range(6):
        refused(core, now, "b0", "b1")
        at = core.wake_at()
        assert at is not None and core.take_due(at - 0.1, 10) == [] and core.take_due(at, 10) == ["w"]
        assert core.wake_at() is None, "once"
        waits.append(at - now)
        now = at
    assert waits == [1.0, 2.0, 4.0, 8.0, MOST_WAIT_S, MOST_WAIT_S]


def test_one_that_waits_for_a_connection_is_current_until_the_writer_sends_entries() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(1.0)
    assert core.tells("w", "b0", 7) and core.is_current("b0", 7)
    core.appended("w")
    assert not core.is_current("b0", 7)
    assert not core.tells("w", "b0", 7) and not core.is_current("b0", 7)
    assert core.answered("b0", 7, 5.0, taken=False) == "w" and core.wake_at() is None
    assert core.tells("w", "b0", 7) and core.is_current("b0", 7)


def test_one_that_a_bookie_took_is_not() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(1.0)
    assert core.tells("w", "b0", 7) and core.tells("w", "b1", 7)
    core.answered("b0", 7, 5.0, taken=True)
    core.answered("b1", 7, 5.0, taken=False)
    assert core.wake_at() is None


def test_nor_is_one_after_which_the_writer_sent_entries() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(1.0)
    refused(core, 5.0, "b0")
    core.appended("w")
    assert core.take_due(99.0, 10) == [] and core.wake_at() is None
    assert core.tells("w", "b0", 7)
    core.appended("w")
    core.answered("b0", 7, 5.0, taken=False)
    assert core.wake_at() is None


def test_nor_does_the_time_of_an_older_one_count_for_a_newer_one_that_no_bookie_took() -> None:
    core: LacScheduleCore[str] = LacScheduleCore(1.0)
    refused(core, 5.0, "b0")
    assert core.take_due(6.0, 10) == ["w"]
    refused(core, 6.0, "b0")  # it would be told again at 8.0
    core.confirmed("w", 6.5)
    assert core.take_due(7.5, 10) == ["w"]
    refused(core, 7.5, "b0")
    assert core.take_due(8.25, 10) == [] and core.take_due(8.5, 10) == ["w"]
