"""AddCore: directed cases, then random schedules against a twin that keeps one object an entry."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.add import (
    Action,
    AddCore,
    Confirm,
    Fail,
    Reason,
    Replace,
    Resend,
    Resume,
    Send,
    Suspend,
)
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import Code

ABC = ("a", "b", "c")


def core(ensemble: int = 3, write: int = 3, ack: int = 2) -> AddCore:
    return AddCore(Striping(ensemble, write, ack), tuple("abcdef"[:ensemble]))


@pytest.mark.rule("Q5")
def test_q5_an_entry_waits_for_its_quorum_and_for_every_earlier_one() -> None:
    adds = core()
    assert adds.append(2) == [Send(0, 1)]
    assert adds.acked(0, 1, 1) == []
    assert adds.acked(1, 1, 1) == []  # entry 1 has its quorum, entry 0 has nothing
    assert adds.acked(2, 0, 0) == []
    assert adds.acked(0, 0, 0) == [Confirm(1)]


@pytest.mark.rule("Q6")
def test_q6_the_lac_is_the_end_of_the_confirmed_prefix() -> None:
    adds = core()
    assert adds.lac == -1
    adds.append(10)
    adds.acked(0, 0, 9)
    assert adds.acked(1, 0, 4) == [Confirm(4)]
    assert adds.lac == 4


@pytest.mark.rule("Q7")
def test_q7_a_failure_before_the_quorum_changes_the_ensemble_at_once() -> None:
    adds = core()
    adds.append(3)
    adds.acked(0, 0, 2)
    assert adds.failed(2, 0) == [Replace(("c",), first=0)]


@pytest.mark.rule("Q7")
def test_q7_a_failure_after_the_quorum_waits_for_the_next_append() -> None:
    adds = core()
    adds.append(1)
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 0) == [Confirm(0)]
    assert adds.failed(2, 0) == []
    assert adds.append(1) == [Replace(("c",), first=1), Send(1, 1)]


@pytest.mark.rule("Q7")
@pytest.mark.parametrize(("code", "reason"), [(Code.FENCED, Reason.FENCED), (Code.UNAUTHORIZED, Reason.UNAUTHORIZED)])
def test_q7_unrecoverable_answers_change_no_ensemble(code: Code, reason: Reason) -> None:
    adds = core()
    adds.append(3)
    adds.acked(0, 0, 1)
    adds.acked(1, 0, 0)
    assert adds.failed(2, 1, code) == [Fail(1, 2, reason)]
    assert adds.acked(1, 1, 2) == [] and adds.failed(0, 1) == [] and adds.lac == 0


@pytest.mark.rule("Q7")
@pytest.mark.parametrize("code", [None, *(set(Code) - {Code.OK, Code.FENCED, Code.UNAUTHORIZED})])
def test_q7_every_other_answer_is_the_bookies_own_failure(code: Code | None) -> None:
    adds = core()
    adds.append(1)
    assert adds.failed(1, 0, code) == [Replace(("b",), first=0)]


@pytest.mark.rule("Q8")
def test_q8_a_change_starts_at_lac_plus_1_and_resends_what_is_not_confirmed() -> None:
    adds = core()
    adds.append(5)
    adds.acked(0, 0, 1)
    adds.acked(1, 0, 1)
    assert adds.failed(2, 2) == [Replace(("c",), first=2)]
    assert adds.ensemble_changed(("a", "b", "d")) == [Resend(2, 2, 4)]
    assert adds.ensemble == ("a", "b", "d")


@pytest.mark.rule("Q8")
def test_q8_nothing_is_confirmed_during_a_change() -> None:
    adds = core()
    adds.append(1)
    adds.failed(2, 0)
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 0) == []
    assert adds.ensemble_changed(("a", "b", "d")) == [Resend(2, 0, 0), Confirm(0)]


@pytest.mark.rule("Q8", "P1")
def test_q8_acks_of_a_replaced_bookie_are_withdrawn_before_anything_is_confirmed() -> None:
    """The original confirms while it still withdraws (its bug 3005): entry 1 would be confirmed by c's void ack."""
    adds = core(3, 3, 2)
    adds.append(3)
    adds.acked(2, 1, 2)  # c has 1 and 2, then dies
    adds.failed(2, 0)
    adds.acked(0, 0, 2)
    adds.acked(1, 0, 0)
    assert adds.ensemble_changed(("a", "b", "d")) == [Resend(2, 0, 2), Confirm(0)]
    assert adds.acked(2, 0, 2) == [Confirm(2)]


def test_a_second_failure_during_a_change_is_the_next_change() -> None:
    adds = core()
    adds.append(2)
    assert adds.failed(2, 0) == [Replace(("c",), first=0)]
    assert adds.failed(1, 0) == []
    assert adds.ensemble_changed(("a", "b", "d")) == [Resend(2, 0, 1), Replace(("b",), first=0)]
    assert adds.acked(0, 0, 1) == [] and adds.acked(2, 0, 1) == []
    assert adds.ensemble_changed(("a", "e", "d")) == [Resend(1, 0, 1), Confirm(1)]


def test_a_change_without_pending_entries_resends_nothing() -> None:
    adds = core()
    adds.append(1)
    adds.acked(0, 0, 0)
    adds.acked(1, 0, 0)
    adds.failed(2, 0)
    assert adds.append(1)[0] == Replace(("c",), first=1)
    idle = AddCore(Striping(3, 3, 2), ABC)
    assert idle.ensemble_changed(("a", "b", "d")) == []


@pytest.mark.rule("Q9")
def test_q9_a_change_that_fails_fails_all_pending_entries() -> None:
    adds = core()
    adds.append(3)
    adds.acked(0, 0, 0)
    adds.acked(1, 0, 0)
    adds.failed(2, 1)
    adds.acked(0, 1, 2)
    adds.acked(1, 1, 2)
    # They have their quorum by the old metadata, but the new metadata may have been stored all the same.
    assert adds.change_failed() == [Fail(1, 2, Reason.NO_CHANGE)]
    assert adds.change_failed() == [] and adds.ensemble_changed(("a", "b", "d")) == []
    with pytest.raises(AssertionError):
        adds.append(1)


@pytest.mark.rule("Q5", "Q7", "P1")
def test_q7_where_no_bookie_can_be_had_the_ledger_goes_on_without_the_failed_one() -> None:
    adds = core()
    adds.append(2)
    assert adds.failed(2, 0) == [Replace(("c",), first=0)]
    adds.acked(0, 0, 1)
    assert adds.acked(1, 0, 0) == []  # what the change will come to is not known yet
    assert adds.no_replacement() == [Suspend(2), Confirm(0)]
    assert adds.missing_bookies == ("c",) and not adds.starved
    assert adds.append(1) == [Send(2, 2)]  # no change for each append
    assert adds.acked(1, 1, 2) == [Confirm(1)]
    assert adds.acked(0, 2, 2) == [Confirm(2)]


@pytest.mark.rule("P1")
def test_a_missing_bookie_counts_for_what_it_has_acked_and_for_nothing_else() -> None:
    adds = core()
    adds.append(3)
    adds.acked(2, 1, 1)
    adds.failed(2, 0)
    adds.no_replacement()
    assert adds.acked(0, 0, 2) == []
    assert adds.acked(1, 0, 0) == [Confirm(1)]  # 1 is on a and c
    assert adds.acked(1, 1, 2) == [Confirm(2)]


@pytest.mark.rule("P1", "Q8")
def test_a_bookie_that_is_back_gets_what_is_unconfirmed_and_lacks_the_rest() -> None:
    adds = core()
    adds.append(1)
    adds.failed(2, 0)
    adds.no_replacement()
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 0) == [Confirm(0)]
    adds.append(2)
    assert adds.resumed("c") == [Resume(2), Resend(2, 1, 2)]
    assert adds.missing_bookies == () and adds.resumed("c") == []
    assert adds.acked(2, 1, 2) == []
    assert adds.acked(1, 1, 2) == [Confirm(2)]
    assert adds.failed(2, 2) == [] and adds.append(1) == [Replace(("c",), first=3), Send(3, 3)]


@pytest.mark.rule("Q7", "Q8")
def test_as_soon_as_another_bookie_can_be_had_the_ensemble_changes() -> None:
    adds = core()
    adds.append(1)
    adds.failed(2, 0)
    adds.no_replacement()
    assert adds.retry() == [Replace(("c",), first=0)]
    assert adds.retry() == [] and adds.resumed("c") == []  # one thing at a time
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 0) == []
    assert adds.ensemble_changed(("a", "b", "d")) == [Resend(2, 0, 0), Confirm(0)]
    assert adds.missing_bookies == ()
    assert adds.retry() == [], "nothing is missing any more"


def test_one_spare_for_two_failed_bookies_is_taken() -> None:
    adds = core()
    adds.append(1)
    adds.failed(2, 0)
    adds.failed(1, 0)
    assert adds.ensemble_changed(("a", "d", "c")) == [Resend(1, 0, 0), Replace(("c",), first=0)]
    assert adds.no_replacement() == [Suspend(2)]
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 0) == [Confirm(0)]


@pytest.mark.rule("Q9")
def test_a_ledger_starves_while_its_oldest_entry_cannot_reach_its_quorum() -> None:
    adds = core(3, 2, 2)  # entry 0 on a and b, 1 on b and c, 2 on c and a
    adds.append(3)
    adds.failed(2, 1)
    assert not adds.starved  # a change is under way
    adds.no_replacement()
    assert not adds.starved  # entry 0 can have its acks
    adds.acked(0, 0, 0)
    assert adds.acked(1, 0, 1) == [Confirm(0)]
    assert adds.starved
    adds.retry()
    assert adds.starved, "trying again is no quorum yet"
    adds.no_replacement()
    assert adds.change_failed(Reason.NO_QUORUM) == [Fail(1, 2, Reason.NO_QUORUM)]
    assert adds.no_replacement() == [] and adds.retry() == [] and adds.resumed("c") == []


def test_an_entry_that_the_missing_bookie_has_does_not_starve() -> None:
    adds = core(3, 2, 2)
    adds.append(2)
    adds.acked(2, 1, 1)
    adds.failed(2, 1)
    adds.append(0)
    adds.no_replacement()
    adds.acked(0, 0, 0)
    adds.acked(1, 0, 0)
    assert not adds.starved
    assert adds.acked(1, 1, 1) == [Confirm(1)]
    assert not adds.starved, "nothing waits"


@dataclass
class PlainEntry:
    acks: set[int] = field(default_factory=set)


class Twin:
    """The same rules, one entry at a time, nothing clever."""

    def __init__(self, striping: Striping, ensemble: tuple[str, ...], lac: int = -1) -> None:
        self.striping, self.ensemble, self.lac, self.first = striping, ensemble, lac, lac + 1
        self.entries: list[PlainEntry] = []
        self.failed_bookies: list[str] = []
        self.missing: list[str] = []
        self.changing = False

    def entry(self, number: int) -> PlainEntry:
        return self.entries[number - self.first]

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    def quorum(self, number: int) -> bool:
        return len(self.entry(number).acks) >= self.striping.ack_quorum

    def append(self, count: int) -> list[Action]:
        start = self.end
        self.entries += [PlainEntry() for _ in range(count)]
        return [*self.replace(), Send(start, self.end - 1)]

    def acked(self, slot: int, first: int, last: int) -> list[Action]:
        for number in range(first, last + 1):
            if slot in self.striping.slots(number):
                self.entry(number).acks.add(slot)
        return self.confirm()

    def failed(self, slot: int, number: int) -> list[Action]:
        if self.ensemble[slot] not in self.failed_bookies:
            self.failed_bookies.append(self.ensemble[slot])
        return self.replace() if number > self.lac and not self.quorum(number) else []

    def ensemble_changed(self, ensemble: tuple[str, ...]) -> list[Action]:
        changed = [slot for slot in range(len(ensemble)) if ensemble[slot] != self.ensemble[slot]]
        for number in range(self.lac + 1, self.end):
            self.entry(number).acks.difference_update(changed)
        self.ensemble, self.changing = ensemble, False
        self.failed_bookies = [bookie for bookie in self.failed_bookies if bookie in ensemble]
        self.missing = [bookie for bookie in self.missing if bookie in ensemble]
        pending = self.lac + 1 < self.end
        resends: list[Action] = [Resend(slot, self.lac + 1, self.end - 1) for slot in changed if pending]
        return [*resends, *self.replace(), *self.confirm()]

    def no_replacement(self) -> list[Action]:
        lost = [bookie for bookie in self.failed_bookies if bookie not in self.missing]
        self.missing += lost
        self.changing = False
        suspended: list[Action] = [Suspend(slot) for slot, bookie in enumerate(self.ensemble) if bookie in lost]
        return [*suspended, *self.confirm()]

    def resumed(self, bookie: str) -> list[Action]:
        self.missing.remove(bookie)
        self.failed_bookies.remove(bookie)
        slot = self.ensemble.index(bookie)
        pending = self.lac + 1 < self.end
        return [Resume(slot), *([Resend(slot, self.lac + 1, self.end - 1)] if pending else [])]

    def retry(self) -> list[Action]:
        self.changing = True
        return [Replace(tuple(self.failed_bookies), first=self.lac + 1)]

    @property
    def starved(self) -> bool:
        if self.lac + 1 == self.end:
            return False
        acks = self.entry(self.lac + 1).acks
        alive = [slot for slot in self.striping.slots(self.lac + 1) if self.ensemble[slot] not in self.missing]
        return len(acks.union(alive)) < self.striping.ack_quorum

    def confirm(self) -> list[Action]:
        before = self.lac
        while not self.changing and self.lac + 1 < self.end and self.quorum(self.lac + 1):
            self.lac += 1
        return [Confirm(self.lac)] if self.lac > before else []

    def replace(self) -> list[Action]:
        if self.changing or all(bookie in self.missing for bookie in self.failed_bookies):
            return []
        self.changing = True
        return [Replace(tuple(self.failed_bookies), first=self.lac + 1)]


class Schedule:
    """One writer with a core and its twin, and what each bookie was sent and has not answered."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.size = self.draw(st.integers(1, 5), "ensemble")
        write = self.draw(st.integers(1, self.size), "write quorum")
        self.striping = Striping(self.size, write, self.draw(st.integers(1, write), "ack quorum"))
        lac, self.names = self.draw(st.integers(-1, 4), "lac"), (f"b{number}" for number in itertools.count())
        ensemble = tuple(itertools.islice(self.names, self.size))
        self.adds, self.twin = AddCore(self.striping, ensemble, lac), Twin(self.striping, ensemble, lac)
        self.unacked: list[list[int]] = [[] for _ in range(self.size)]  # by slot
        self.suspended: set[int] = set()

    def step(self) -> None:
        steps = {
            "append": self.append, "ack": self.ack, "fail": self.fail, "change": self.change, "none": self.none,
            "back": self.back,
        }  # fmt: skip
        name = self.draw(st.sampled_from(["append", "ack", "ack", "ack", "fail", "change", "none", "back"]))
        for action in steps[name]():
            self.perform(action)
        assert self.adds.lac == self.twin.lac and self.adds._next == self.twin.end
        assert self.adds.missing_bookies == tuple(self.twin.missing)
        assert self.adds.starved == (bool(self.twin.missing) and self.twin.starved)

    def both(self, event: Callable[[AddCore | Twin], list[Action]]) -> list[Action]:
        """What the core orders; its twin orders the same."""
        actions = event(self.adds)
        assert actions == event(self.twin)
        return actions

    def append(self) -> list[Action]:
        count = self.draw(st.integers(1, 7))
        return self.both(lambda core: core.append(count))

    def ack(self) -> list[Action]:
        """A bookie answers for some of what it was sent, from the front or out of the middle."""
        slot, actions = self.slot(), list[Action]()
        if waiting := self.unacked[slot]:
            start = self.draw(st.integers(0, len(waiting) - 1)) if self.draw(st.booleans()) else 0
            stop = self.draw(st.integers(start + 1, len(waiting)))
            run, self.unacked[slot] = waiting[start:stop], waiting[:start] + waiting[stop:]
            for first, last in self.striping.runs(slot, run):
                actions += self.both(methodcaller("acked", slot, first, last))
        return actions

    def fail(self) -> list[Action]:
        slot = self.slot()
        if not self.unacked[slot]:
            return []
        entry = self.draw(st.sampled_from(self.unacked[slot]))
        return self.both(lambda core: core.failed(slot, entry))

    def change(self) -> list[Action]:
        twin = self.twin
        if not twin.changing:
            return []
        changed = tuple(next(self.names) if b in twin.failed_bookies else b for b in twin.ensemble)
        self.suspended.difference_update(slot for slot in range(self.size) if changed[slot] != twin.ensemble[slot])
        return self.both(lambda core: core.ensemble_changed(changed))

    def none(self) -> list[Action]:
        return self.both(lambda core: core.no_replacement()) if self.twin.changing else []

    def back(self) -> list[Action]:
        if not self.twin.missing or self.twin.changing:
            return []
        if self.draw(st.booleans()):
            return self.both(lambda core: core.retry())
        bookie = self.draw(st.sampled_from(self.twin.missing))
        return self.both(lambda core: core.resumed(bookie))

    def slot(self) -> int:
        return self.draw(st.integers(0, self.size - 1))

    def perform(self, action: Action) -> None:
        if isinstance(action, Send):
            for slot in set(range(self.size)) - self.suspended:
                self.unacked[slot] += self.striping.stripe(slot, action.first, action.last)
        elif isinstance(action, Suspend):
            self.suspended.add(action.slot)
            self.unacked[action.slot] = []
        elif isinstance(action, Resume):
            self.suspended.remove(action.slot)
        elif isinstance(action, Resend):
            self.unacked[action.slot] = list(self.striping.stripe(action.slot, action.first, action.last))


@settings(max_examples=300)
@given(st.data())
def test_the_core_equals_its_plain_twin(data: st.DataObject) -> None:
    schedule = Schedule(data)
    for _ in range(data.draw(st.integers(1, 40), "steps")):
        schedule.step()
