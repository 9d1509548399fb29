"""When a stream goes on to its next ledger, by calling the core."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.stream.rollover import (
    GRACE_S,
    REPAIR_S,
    Action,
    EndLedger,
    Failure,
    GiveUp,
    LedgerLook,
    Limits,
    ListLedger,
    Look,
    MakeLedger,
    Open,
    Phase,
    RollOverCore,
    Settle,
    Wait,
)

LIMITS = Limits(max_entries=10, max_bytes=1000, max_age_s=100.0, patience_s=60.0)
END, MAKE, GIVE_UP, FENCED = [EndLedger(7)], MakeLedger(), [GiveUp(is_fenced=False)], [GiveUp(is_fenced=True)]


def core() -> RollOverCore:
    return RollOverCore(LIMITS, 7, 0.0)


def rolled(one: RollOverCore, now: float = 1.0) -> list[Action]:
    """Make and list ledger 8, after the end of 7."""
    assert one.made(8, now) == [ListLedger(8)]
    return one.listed(now)


@pytest.mark.rule("Q18")
@pytest.mark.parametrize(("count", "size", "now"), [(10, 0, 1.0), (1, 1000, 1.0), (1, 1, 100.0)])
def test_q18_a_ledger_is_full_by_entries_bytes_or_age(count: int, size: int, now: float) -> None:
    one = core()
    assert one.sent(count, size, now) == END and not one.is_open
    assert one.ended(count - 1, size, now) == [Settle(7, count - 1, size), MAKE]
    assert rolled(one, now) == [Open(8)] and one.is_open and one.ledger == 8
    assert (one.room, one.room_bytes, one.due_at) == (10, 1000, now + 100)


def test_below_its_limits_it_stays_open() -> None:
    one = core()
    assert one.sent(9, 999, 99.0) == [] and (one.room, one.room_bytes) == (1, 1)


def test_an_empty_ledger_is_never_rolled() -> None:
    one = core()
    assert one.asked(1.0) == [] and one.aged(500.0) == []
    assert one.sent(1, 1, 1.0) == []
    assert one.aged(99.0) == [] and one.aged(100.0) == END


def test_two_roll_overs_at_once_are_one() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    assert one.asked(1.0) == END
    assert one.asked(1.0) == one.aged(200.0) == one.failed(Failure.AWAY, 1.0) == one.appended(1.0) == []
    one.ended(0, 1, 1.0)
    assert one.asked(1.0) == []
    assert rolled(one) == [Open(8)]


@pytest.mark.rule("Q9")
def test_q9_a_failed_ledger_is_closed_before_anything_is_sent_on() -> None:
    one = core()
    one.sent(3, 3, 0.0)
    assert one.failed(Failure.AWAY, 0.0) == END
    assert one.ended(1, 2, 0.0) == [Settle(7, 1, 2), MAKE]


@pytest.mark.parametrize("step", ["ending", "making", "listing", "looking"])
def test_a_step_is_tried_again_while_the_services_are_away(step: str) -> None:
    one, began = core(), 90.0
    one.sent(1, 1, 0.0)
    again: list[Action]
    if step == "looking":
        again, fail = one.failed(Failure.FENCED, began), one.not_looked
        assert again == [Look(7)]
    else:
        again, fail = one.asked(began), one.not_ended
    if step in ("making", "listing"):
        one.ended(0, 1, began)
        again, fail = [MAKE], one.not_made
    if step == "listing":
        again, fail = one.made(8, began), one.not_listed
    pauses, now = [], began
    while now < began + 60:
        [wait] = fail(Failure.AWAY, now)
        assert isinstance(wait, Wait)
        pauses.append(wait.seconds)
        now += wait.seconds
        assert one.waited() == again
    assert pauses[:3] == [0.05, 0.1, 0.2] and max(pauses) == 2.0
    assert fail(Failure.AWAY, now) == GIVE_UP and one.state == "ClosedLedger"
    assert one.appended(now) == again, "the next append goes on where it stood"
    assert one.appended(now) == []
    assert isinstance(fail(Failure.AWAY, now)[0], Wait)


def test_a_ledger_that_stalls_is_closed_and_no_other_is_tried_until_the_next_append() -> None:
    one = core()
    one.sent(5, 5, 1.0)
    assert one.can_stall
    one.stalled()
    assert not one.can_stall and one.failed(Failure.AWAY, 66.0) == END
    assert one.ended(2, 3, 67.0) == [Settle(7, 2, 3), *GIVE_UP] and one.state == "ClosedLedger"
    assert one.appended(90.0) == [MAKE] and rolled(one, 90.0) == [Open(8)] and one.can_stall


def test_a_ledger_that_had_everything_when_it_stalled_has_a_next_one() -> None:
    one = core()
    one.sent(10, 5, 1.0)
    one.stalled()
    assert one.ended(9, 3, 67.0) == [Settle(7, 9, 3), MAKE] and rolled(one, 67.0) == [Open(8)]
    one.sent(1, 1, 68.0)
    assert one.failed(Failure.AWAY, 69.0) == [EndLedger(8)]
    assert one.ended(-1, 0, 69.0) == [Settle(8, -1, 0), MAKE], "the next one did not stall"


def test_the_end_of_a_ledger_that_stalls_is_not_waited_for_again() -> None:
    one = core()
    one.sent(5, 5, 1.0)
    one.stalled()
    assert one.failed(Failure.AWAY, 66.0) == END
    assert one.not_ended(Failure.AWAY, 67.0) == GIVE_UP
    assert one.appended(90.0) == END and one.not_ended(Failure.AWAY, 91.0) == [Wait(0.05)]


def test_a_ledger_that_stalls_while_the_stream_is_closed_ends() -> None:
    one = core()
    one.sent(5, 5, 1.0)
    one.stalled()
    assert one.stopped(66.0) == END
    assert one.ended(2, 3, 67.0) == [Settle(7, 2, 3)] and one.phase is Phase.ENDED


def test_what_cannot_be_done_is_not_tried_again() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    assert one.not_ended(Failure.REFUSED, 0.0) == GIVE_UP


def test_a_lost_compare_and_set_of_the_list_fences() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    one.ended(0, 1, 0.0)
    one.made(8, 0.0)
    assert one.not_listed(Failure.FENCED, 0.0) == FENCED and one.phase is Phase.FENCED
    assert one.appended(1.0) == FENCED and one.asked(1.0) == one.stopped(1.0) == []


@pytest.mark.rule("Q19")
@pytest.mark.parametrize("found_by", ["the writer", "the close"])
def test_q19_a_fenced_ledger_is_looked_at_and_another_owner_fences(found_by: str) -> None:
    one = core()
    one.sent(1, 1, 0.0)
    if found_by == "the writer":
        assert one.failed(Failure.FENCED, 0.0) == [Look(7)]
    else:
        assert one.asked(0.0) == END and one.not_ended(Failure.FENCED, 0.0) == [Look(7)]
    assert one.looked(LedgerLook.NOT_OURS, -1, 0, 1.0) == FENCED


def test_a_repairer_is_waited_for_and_believed() -> None:
    one = core()
    one.sent(5, 5, 0.0)
    one.failed(Failure.FENCED, 0.0)
    assert isinstance(one.looked(LedgerLook.OPEN, -1, 0, 1.0)[0], Wait)
    assert one.waited() == [Look(7)]
    assert one.looked(LedgerLook.CLOSED, 2, 3, 2.0) == [Settle(7, 2, 3), MAKE]
    assert rolled(one) == [Open(8)]


def test_a_repairer_has_so_long() -> None:
    one = core()
    one.failed(Failure.FENCED, 0.0)
    assert isinstance(one.looked(LedgerLook.OPEN, -1, 0, REPAIR_S - 0.01)[0], Wait)
    assert one.looked(LedgerLook.OPEN, -1, 0, REPAIR_S) == FENCED


def test_a_repairer_has_as_long_after_the_next_fence() -> None:
    one = core()
    one.failed(Failure.FENCED, 0.0)
    one.looked(LedgerLook.CLOSED, 3, 9, 1.0)
    rolled(one)
    assert one.failed(Failure.FENCED, 500.0) == [Look(8)]
    assert isinstance(one.looked(LedgerLook.OPEN, -1, 0, 501.0)[0], Wait)


def test_a_repairer_is_believed_once_in_a_while() -> None:
    one = core()
    for now, is_believed in ((0.0, True), (GRACE_S - 1, False)):
        one.failed(Failure.FENCED, now)
        assert (one.looked(LedgerLook.CLOSED, -1, 0, now) != FENCED) is is_believed
        if is_believed:
            rolled(one, now)
    one = core()
    for now in (0.0, GRACE_S):
        one.failed(Failure.FENCED, now)
        assert one.looked(LedgerLook.CLOSED, -1, 0, now) == [Settle(one.ledger, -1, 0), MAKE]
        rolled(one, now)


def test_a_lost_lease_fences_at_once_but_for_an_end_that_is_being_stored() -> None:
    one = core()
    assert one.lost() == FENCED
    assert one.failed(Failure.AWAY, 0.0) == FENCED, "what was sent later"
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    assert one.lost() == []
    assert one.ended(0, 1, 1.0) == [Settle(7, 0, 1), *FENCED]


def test_ledgers_that_store_nothing_count_from_the_last_one_that_stored_something() -> None:
    """One that failed long after had no next one, as if all between had stored nothing."""
    one = core()
    for now, last in ((0.0, -1), (1.0, 0), (80.0, -1)):
        one.sent(1, 1, now)
        assert one.failed(Failure.AWAY, now) == [EndLedger(one.ledger)]
        assert one.ended(last, 1, now) == [Settle(one.ledger, last, 1), MAKE]
        rolled(one, now)


def test_a_ledger_that_did_not_fail_is_none_that_failed_with_nothing_stored() -> None:
    """What the one before it did is no reason to wait before the next one."""
    one = core()
    one.sent(2, 2, 0.0)
    one.failed(Failure.AWAY, 0.0)
    one.ended(0, 1, 0.0)
    rolled(one, 0.0)
    for now in (1.0, 1.0 + GRACE_S):
        one.failed(Failure.FENCED, now)
        assert one.looked(LedgerLook.CLOSED, -1, 0, now) == [Settle(8, -1, 0), MAKE]
        rolled(one, now)


def test_a_lease_that_is_lost_while_nothing_is_tried_any_more_fences_at_once() -> None:
    """Nobody appends, perhaps, and who has the handle would never hear of it."""
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    assert one.not_ended(Failure.REFUSED, 1.0) == GIVE_UP
    assert one.lost() == FENCED and one.phase is Phase.FENCED


def test_a_lost_lease_fences_before_a_ledger_is_listed() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    one.ended(0, 1, 0.0)
    assert one.lost() == []
    assert one.made(8, 0.0) == FENCED


def test_the_last_ledger_is_ended_and_no_other_made() -> None:
    one = core()
    assert one.stopped(0.0) == END, "an empty one, too"
    assert one.ended(-1, 0, 0.0) == [Settle(7, -1, 0)] and one.phase is Phase.ENDED
    assert one.stopped(1.0) == []


def test_who_is_in_a_hurry_tries_once() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    assert isinstance(one.not_ended(Failure.AWAY, 0.0)[0], Wait)
    one.hurried()
    assert one.waited() == END and one.not_ended(Failure.AWAY, 0.1) == GIVE_UP
    assert one.stopped(0.1) == END and one.not_ended(Failure.AWAY, 0.2) == GIVE_UP
    assert one.stopped(5.0) == END and one.ended(0, 1, 5.0) == [Settle(7, 0, 1)]


def test_a_ledger_that_is_listed_at_the_end_is_ended_too() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    one.asked(0.0)
    one.ended(0, 1, 0.0)
    one.made(8, 0.0)
    one.hurried()
    assert one.not_listed(Failure.AWAY, 0.0) == GIVE_UP
    assert one.stopped(0.0) == [ListLedger(8)]
    assert one.listed(0.0) == [Open(8), EndLedger(8)]


def test_a_terminated_stream_has_no_open_ledger() -> None:
    one = RollOverCore(LIMITS, 7, 0.0, is_open=False)
    assert not one.is_open and one.stopped(0.0) == one.asked(0.0) == one.aged(500.0) == []


def test_the_names_of_states_are_those_of_pulsar() -> None:
    one = core()
    one.sent(1, 1, 0.0)
    states = [one.state]
    one.asked(0.0)
    states.append(one.state)
    one.ended(0, 1, 0.0)
    states.append(one.state)
    one.made(8, 0.0)
    states.append(one.state)
    one.not_listed(Failure.FENCED, 0.0)
    assert [*states, one.state] == ["LedgerOpened", "ClosingLedger", "CreatingLedger", "CreatingLedger", "Fenced"]
