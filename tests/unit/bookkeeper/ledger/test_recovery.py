"""RecoveryCore: the rules by their numbers, then every order of answers against a plain reading of the rules."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.add import Confirm, Replace, Resend, Send, Suspend
from tallystick.bookkeeper.ledger.recovery import (
    Abandon,
    Action,
    CloseLedger,
    Explain,
    FenceSlot,
    Measure,
    ReadEntry,
    RecoveryCore,
    ReplicaResponse,
)
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata, LedgerState

YES, NO, UNKNOWN, REFUSED = ReplicaResponse.YES, ReplicaResponse.NO, ReplicaResponse.UNKNOWN, ReplicaResponse.REFUSED


def metadata(ensemble: int = 3, write: int = 3, ack: int = 2, first: int = 0) -> LedgerMetadata:
    bookies = tuple("abcdef"[:ensemble])
    fragments = (
        [Fragment(0, bookies)] if first == 0 else [Fragment(0, tuple("uvwxyz"[:ensemble])), Fragment(first, bookies)]
    )
    return LedgerMetadata(ensemble, write, ack, tuple(fragments), state=LedgerState.IN_RECOVERY)


def told(actions: list[Action]) -> list[Action]:
    """Without the explanations."""
    return [action for action in actions if not isinstance(action, Explain)]


def reading(core: RecoveryCore, lac: int = -1) -> list[Action]:
    """FenceSlot with all bookies up to coverage; what it then asks for."""
    core.begin()
    for slot in range(core.striping.ensemble_size):
        actions = core.fenced(slot, YES, lac=lac, entry=lac, length=100) if lac >= 0 else core.fenced(slot, NO)
        if actions:
            return told(actions)
    raise AssertionError("never covered")


def ended(core: RecoveryCore, *answers: ReplicaResponse, entry: int = 0) -> list[Action]:
    """The actions after these answers of the write set, in its order."""
    last: list[Action] = []
    for slot, answer in zip(core.striping.slots(entry), answers, strict=False):
        last += told(core.answered(slot, entry, answer, length=1))
    return last


@pytest.mark.rule("Q11", "Q13")
def test_q13_fencing_asks_every_bookie_of_the_newest_ensemble_and_reads_nothing_yet() -> None:
    assert RecoveryCore(metadata()).begin() == [FenceSlot(0), FenceSlot(1), FenceSlot(2)]


@pytest.mark.rule("Q12", "P6")
@given(st.data())
def test_q12_no_recovery_read_before_every_write_set_is_fenced(data: st.DataObject) -> None:
    ensemble = data.draw(st.integers(1, 6))
    write = data.draw(st.integers(1, ensemble))
    core = RecoveryCore(metadata(ensemble, write, data.draw(st.integers(1, write))))
    core.begin()
    fenced: set[int] = set()
    for slot in data.draw(st.permutations(range(ensemble))):
        answer = data.draw(st.sampled_from(ReplicaResponse))
        actions = told(core.fenced(slot, answer, lac=2, entry=3, length=9))
        if answer is REFUSED:
            assert actions == [Abandon("the password is wrong", core.start + 1, unauthorized=True)]
            return
        if answer is not UNKNOWN:
            fenced.add(slot)
        if core.striping.covered(fenced):
            assert actions and all(isinstance(action, ReadEntry) for action in actions)
            return
        assert not any(isinstance(action, ReadEntry) for action in actions)
    assert actions == [Abandon("too few bookies confirmed the fence", core.start + 1)]


@pytest.mark.rule("Q13")
def test_q13_the_start_is_the_highest_of_all_lacs_and_the_fragments_floor() -> None:
    core = RecoveryCore(metadata(first=8))
    core.begin()
    core.fenced(0, YES, lac=5, entry=6, length=70)
    assert told(core.fenced(1, YES, lac=4, entry=7, length=80)) == [ReadEntry(2, 8), ReadEntry(0, 8), ReadEntry(1, 8)]
    core = RecoveryCore(metadata(first=8))
    core.begin()
    core.fenced(0, YES, lac=11, entry=12, length=70)
    assert told(core.fenced(1, NO))[0] == ReadEntry(0, 12)


@pytest.mark.rule("Q14")
def test_q14_one_positive_answer_suffices_and_is_written_back() -> None:
    core = RecoveryCore(metadata())
    assert reading(core, lac=4) == [ReadEntry(2, 5), ReadEntry(0, 5), ReadEntry(1, 5)]
    assert told(core.answered(0, 5, NO)) == []
    assert told(core.answered(1, 5, YES, length=120))[0] == Send(5, 5)
    assert ended(core, NO, NO, entry=6) == []  # the end is known, the write-back is not confirmed yet
    assert core.acked(0, 5, 5) == []
    assert told(core.acked(2, 5, 5)) == [Confirm(5), CloseLedger(5, 120, ())]


@pytest.mark.rule("Q14")
def test_q14_recovery_fails_when_a_write_back_cannot_get_its_quorum() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, YES)
    assert core.failed(0, 0, Code.IO_ERROR) == [Replace(("a",), first=0)]
    assert core.failed(1, 0) == []
    assert told(core.no_replacement()) == [Suspend(0), Suspend(1), Abandon("an entry could not be written back", 1)]


@pytest.mark.rule("Q14")
def test_q14_a_write_back_needs_its_quorum_and_no_bookie_more() -> None:
    """As a degraded writer: of three bookies one is dead, and there is no other."""
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, YES)
    assert core.failed(0, 0, Code.IO_ERROR) == [Replace(("a",), first=0)]
    assert told(core.no_replacement()) == [Suspend(0)]
    assert told(ended(core, NO, NO, entry=1)) == []
    assert core.acked(1, 0, 0) == []
    assert told(core.acked(2, 0, 0)) == [Confirm(0), CloseLedger(0, 1, ())]


@pytest.mark.rule("Q14")
def test_q14_an_entry_found_later_may_be_the_one_that_cannot_be_written_back() -> None:
    core = RecoveryCore(metadata(3, 2, 2))
    assert reading(core)[:1] == [ReadEntry(0, 0)]
    core.answered(1, 0, YES, length=1)
    assert core.failed(2, 1) == []  # of an entry that is not there yet
    core.acked(0, 0, 0), core.acked(1, 0, 0)
    actions = told(core.answered(1, 1, YES, length=2))
    assert Replace(("c",), first=1) in actions
    assert told(core.no_replacement())[-1] == Abandon("an entry could not be written back", 2)


@pytest.mark.rule("Q15")
@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((NO, NO, UNKNOWN), "closed"),
        ((UNKNOWN, NO, NO), "closed"),
        ((NO, UNKNOWN, UNKNOWN), "abandoned"),
        ((UNKNOWN, UNKNOWN, NO), "abandoned"),
        ((UNKNOWN, UNKNOWN, UNKNOWN), "abandoned"),
        ((NO, YES), "found"),
        ((UNKNOWN, UNKNOWN, YES), "found"),
    ],
)
def test_q15_unknown_is_never_a_no(answers: tuple[ReplicaResponse, ...], outcome: str) -> None:
    core = RecoveryCore(metadata(3, 3, 2))
    reading(core)
    kinds = {CloseLedger: "closed", Abandon: "abandoned", Send: "found"}
    assert [kinds[type(action)] for action in ended(core, *answers) if type(action) in kinds] == [outcome]


@pytest.mark.rule("Q15")
def test_q15_a_bookie_that_hangs_does_not_delay_a_certain_end() -> None:
    core = RecoveryCore(metadata(3, 3, 2))
    reading(core)
    assert ended(core, NO, NO) == [CloseLedger(-1, 0, ())]


@pytest.mark.rule("Q16")
def test_q16_the_length_of_a_ledger_that_ends_at_its_lac_is_measured() -> None:
    core = RecoveryCore(metadata())
    core.begin()
    core.fenced(0, YES, lac=3, entry=5, length=600)  # has 4 and 5, which nobody confirmed, and their length
    core.fenced(1, YES, lac=2, entry=3, length=300)
    assert ended(core, NO, NO, entry=4) == [CloseLedger(3, 300, ())]
    core = RecoveryCore(metadata())
    core.begin()
    core.fenced(0, YES, lac=3, entry=5, length=600)
    core.fenced(1, NO)
    assert ended(core, NO, NO, entry=4) == [Measure(3)]
    assert core.measured(321) == [CloseLedger(3, 321, ())]


def test_a_length_that_nobody_can_tell_does_not_block_the_close() -> None:
    core = RecoveryCore(metadata(first=8))
    core.begin()
    core.fenced(0, YES, lac=1, entry=2, length=30)
    core.fenced(1, NO)
    assert ended(core, NO, NO, entry=8) == [Measure(7)]
    bound = Explain("length is a lower bound", {"entry": 7, "length": 30})
    assert core.measured(None) == [bound, CloseLedger(7, 30, ())]


def test_reading_ahead_doubles_and_entries_beyond_a_gap_are_dropped() -> None:
    core = RecoveryCore(metadata(1, 1, 1), read_ahead=4)
    assert reading(core) == [ReadEntry(0, 0)]
    assert told(core.answered(0, 0, YES, length=1)) == [Send(0, 0), ReadEntry(0, 1), ReadEntry(0, 2)]
    assert told(core.answered(0, 2, YES, length=3)) == []  # not decided before entry 1 is
    assert told(core.answered(0, 1, YES, length=2)) == [Send(1, 2), *(ReadEntry(0, entry) for entry in range(3, 7))]
    for entry in (4, 5, 6):
        assert core.answered(0, entry, YES, length=9) == []
    core.acked(0, 0, 2)
    assert told(core.answered(0, 3, NO)) == [CloseLedger(2, 3, ())]
    assert core.answered(0, 4, YES) == []


@pytest.mark.rule("P3")
def test_two_changes_of_one_recovery_are_two_fragments() -> None:
    """A bug of a prototype: merged into one, the first entries are looked for on bookies that never had them."""
    core = RecoveryCore(metadata(first=5))
    reading(core)
    ended(core, YES, entry=5)
    assert told(core.failed(0, 5)) == [Replace(("a",), first=5)]
    assert told(core.ensemble_changed(("d", "b", "c"))) == [Resend(0, 5, 5)]
    core.acked(0, 5, 5)
    assert told(core.acked(1, 5, 5)) == [Confirm(5)]
    ended(core, YES, entry=6)
    assert told(core.failed(1, 6)) == [Replace(("b",), first=6)]
    core.ensemble_changed(("d", "e", "c"))
    core.acked(0, 6, 6)
    core.acked(1, 6, 6)
    expected = (Fragment(5, ("d", "b", "c")), Fragment(6, ("d", "e", "c")))
    assert ended(core, NO, NO, entry=7) == [CloseLedger(6, 1, expected)]


def test_two_changes_at_one_entry_are_one_fragment() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, YES)
    core.failed(0, 0)
    core.ensemble_changed(("d", "b", "c"))
    core.acked(0, 0, 0)
    core.acked(1, 0, 0)
    ended(core, YES, entry=1)
    core.failed(1, 1)
    core.ensemble_changed(("d", "e", "c"))
    core.failed(2, 1)
    core.ensemble_changed(("d", "e", "f"))
    core.acked(0, 1, 1)
    core.acked(1, 1, 1)
    expected = (Fragment(0, ("d", "b", "c")), Fragment(1, ("d", "e", "f")))
    assert ended(core, NO, NO, entry=2) == [CloseLedger(1, 1, expected)]


@pytest.mark.rule("Q14")
def test_q14_reads_stay_with_the_ensemble_as_it_was() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, YES)
    core.failed(0, 0)
    core.ensemble_changed(("d", "b", "c"))
    assert core.ensemble == ("a", "b", "c") and core.write_ensemble == ("d", "b", "c")


@pytest.mark.rule("P7")
def test_what_a_recovery_writes_back_never_claims_to_be_confirmed() -> None:
    core = RecoveryCore(metadata(1, 1, 1))
    reading(core, lac=2)
    core.answered(0, 3, YES, length=1)
    core.acked(0, 3, 3)
    assert core.lac == 2


def test_a_password_that_a_bookie_refuses_with_the_fence_ends_it_for_good() -> None:
    core = RecoveryCore(metadata())
    core.begin()
    assert core.fenced(1, REFUSED) == [Abandon("the password is wrong", 0, unauthorized=True)]
    assert core.fenced(0, YES) == []


@pytest.mark.rule("Q14", "Q15")
def test_q14_a_bookie_that_refuses_a_read_is_one_unknown() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    assert told(core.answered(0, 0, REFUSED)) == []
    assert told(core.answered(2, 0, YES, length=3))[0] == Send(0, 0)
    core = RecoveryCore(metadata())
    reading(core)
    assert ended(core, REFUSED, NO, NO) == [CloseLedger(-1, 0, ())]
    core = RecoveryCore(metadata())
    reading(core)
    assert ended(core, REFUSED, NO, UNKNOWN) == [Abandon("too few bookies gave a certain answer", 0)]


def test_a_read_that_all_refuse_is_a_wrong_password() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    assert ended(core, REFUSED, REFUSED, REFUSED) == [Abandon("the password is wrong", 0, unauthorized=True)]


@pytest.mark.rule("Q14")
def test_q14_a_bookie_that_refuses_a_write_back_is_replaced_as_any_other() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, YES)
    assert told(core.failed(0, 0, Code.UNAUTHORIZED)) == [Replace(("a",), first=0)]
    assert told(core.ensemble_changed(("d", "b", "c"))) == [Resend(0, 0, 0)]
    for refusals, refused in (([Code.UNAUTHORIZED] * 2, True), ([Code.UNAUTHORIZED, None], False)):
        core = RecoveryCore(metadata())
        reading(core)
        ended(core, YES)
        for slot, code in enumerate(refusals):
            core.failed(slot, 0, code)
        abandoned = Abandon("an entry could not be written back", 1, unauthorized=refused)
        assert told(core.no_replacement())[-1] == abandoned


def test_after_the_end_nothing_changes_it() -> None:
    core = RecoveryCore(metadata())
    reading(core)
    ended(core, NO, NO)
    assert core.answered(2, 0, YES) == [] and core.failed(0, 0) == [] and core.acked(0, 0, -1) == []
    assert core.ensemble_changed(("d", "b", "c")) == [] and core.no_replacement() == [] and core.measured(5) == []


def plain_end(striping: Striping, answers: dict[int, tuple[ReplicaResponse, ...]], start: int) -> tuple[str, int]:
    """Q14 and Q15 read aloud, with all answers of all entries known."""
    entry = start + 1
    while entry in answers:
        if YES not in answers[entry]:
            enough = answers[entry].count(NO) >= striping.write_quorum - striping.ack_quorum + 1
            return ("closed", entry - 1) if enough else ("abandoned", entry)
        entry += 1
    raise AssertionError("no end")


@settings(max_examples=200)
@given(st.data())
def test_any_order_of_answers_leads_to_an_end_that_the_rules_allow(data: st.DataObject) -> None:
    """A "no" quorum may settle an entry before its "yes" arrives: both ends are right then, and no other is."""
    ensemble = data.draw(st.integers(1, 4))
    write = data.draw(st.integers(1, ensemble))
    striping = Striping(ensemble, write, data.draw(st.integers(1, write)))
    start, found = data.draw(st.integers(-1, 3)), data.draw(st.integers(0, 5))
    held, beyond = st.sampled_from([YES, YES, NO, UNKNOWN]), st.sampled_from([NO, NO, UNKNOWN])
    answers = {
        entry: tuple(data.draw(held if entry <= start + found else beyond) for _ in range(write))
        for entry in range(start + 1, start + found + 60)
    }
    core = RecoveryCore(metadata(striping.ensemble_size, striping.write_quorum, striping.ack_quorum))
    waiting = [action for action in reading(core, start) if isinstance(action, ReadEntry)]
    outcome: tuple[str, int] | None = None
    sent: list[int] = []
    while waiting and outcome is None:
        read = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
        answer = answers[read.entry][striping.slots(read.entry).index(read.slot)]
        todo = core.answered(read.slot, read.entry, answer, length=1)
        while todo:
            action = todo.pop(0)
            if isinstance(action, ReadEntry):
                waiting.append(action)
            elif isinstance(action, Send):
                sent += range(action.first, action.last + 1)
                for slot in range(ensemble):
                    if striping.count(slot, action.first, action.last):
                        todo += core.acked(slot, action.first, action.last)
            elif isinstance(action, CloseLedger):
                outcome = ("closed", action.last_entry)
            elif isinstance(action, Abandon):
                outcome = ("abandoned", action.entry)
    assert outcome is not None
    early = {
        ("closed", entry - 1)
        for entry, given_answers in answers.items()
        if given_answers.count(NO) >= striping.no_quorum and entry <= plain_end(striping, answers, start)[1] + 1
    }
    assert outcome in {plain_end(striping, answers, start), *early}
    if outcome[0] == "closed":
        assert sent == list(range(start + 1, outcome[1] + 1)), "every entry up to the end is written back, once"


def first_certainty(answers: tuple[ReplicaResponse, ...]) -> type[Action]:
    """What Qw=3, Qa=2 must do at the first answer that settles the entry."""
    for count in range(1, 4):
        if YES in answers[:count]:
            return Send
        if answers[:count].count(NO) == 2:
            return CloseLedger
    return Abandon


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("answers", tuple(product(ReplicaResponse, repeat=3)))
def test_q15_every_combination_of_three_answers(answers: tuple[ReplicaResponse, ...]) -> None:
    core = RecoveryCore(metadata(3, 3, 2))
    reading(core)
    kinds = {type(action) for action in ended(core, *answers)}
    assert kinds & {Send, CloseLedger, Abandon} == {first_certainty(answers)}
