"""A collection looks at very many ledgers in steps, and decides as it would at once."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.garbage import DAY_S, HERE, Service, core_of
from tallystick.bookkeeper.bookie import garbage, steps, waiting_deletions
from tallystick.bookkeeper.bookie.garbage import Finish, GarbageCore, GarbageRules, Look
from tallystick.bookkeeper.bookie.steps import ascending
from tallystick.codec.steps import Steps, finished

T = TypeVar("T")


class Counting(Service):
    """Counts the steps, and how many ledgers were asked about in the longest of them."""

    steps = asked = longest = 0

    def do(self, steps: Steps[T]) -> T:
        while True:
            self.asked = 0
            try:
                next(steps)
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            finally:
                self.steps += 1
                self.longest = max(self.longest, self.asked)

    def asks(self, ledger: int) -> bool:
        self.asked += 1
        return True


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (steps, garbage, waiting_deletions):
        monkeypatch.setattr(module, "STEP_LEDGERS", 5)
    monkeypatch.setattr(steps, "SORTED_AT_ONCE", 7)


@pytest.mark.usefixtures("short_steps")
def test_very_many_ledgers_that_lack_are_counted_in_steps() -> None:
    """100,000 of them took 0.3 s of one turn of a bookie's loop."""
    service, stored = Counting(), [*range(150, 300), *range(150)]
    core = GarbageCore(GarbageRules(), "ours", service.asks, lambda ledger: True)
    assert service.run(core, stored).waiting == 300
    assert service.longest == 5 and service.steps >= 3 * 300 / 5, "sorted, counted, and entered into what waits"
    before, service.now = service.steps, DAY_S
    assert service.run(core, stored) == Finish(tuple(range(300)))
    assert service.steps - before >= 3 * 300 / 5


@pytest.mark.usefixtures("short_steps")
def test_a_page_far_behind_the_one_before_is_compared_in_steps() -> None:
    service, core = Counting(), core_of()
    finished(core.begin(range(100)))
    service.do(core.listed([1000]))
    assert service.steps == 100 / 5
    [look] = finished(core.listing_ended(HERE, HERE, 0.0))
    assert look == Look(tuple(range(100)))


@pytest.mark.usefixtures("short_steps")
def test_a_ledger_that_changes_between_steps_counts_once() -> None:
    """Else it may lack, and not be one of those that are stored: a large deletion would not look like one."""
    service = Counting()
    lost = set[int]()

    def is_missed(ledger: int) -> bool:
        assert ledger not in lost
        lost.add(ledger)
        return True

    assert (
        service.run(GarbageCore(GarbageRules(), "ours", is_missed, lambda ledger: True), list(range(200))).waiting
        == 200
    )


@pytest.mark.usefixtures("short_steps")
@given(
    runs=st.lists(st.tuples(st.sets(st.integers(0, 30)), st.integers(0, 5)), max_size=6),
    stored=st.permutations(range(31)),
)
def test_ledgers_wait_as_if_each_was_counted_by_itself(runs: list[tuple[set[int], int]], stored: list[int]) -> None:
    patience_s = 8.0
    rules = GarbageRules(gap_s=0.0, large_share=0.0, large_count=0, patience_s=patience_s)
    core, service = GarbageCore(rules, "ours", lambda ledger: True, lambda ledger: True), Service()
    waited = dict[int, float]()
    for number, (missing, seconds) in enumerate(runs):
        elapsed_s = float(seconds) if number else 0.0
        service.now += elapsed_s
        service.have(*set(stored).difference(missing))
        waited = {ledger: waited[ledger] + elapsed_s if ledger in waited else 0.0 for ledger in missing}
        due = {ledger for ledger, waited_s in waited.items() if waited_s >= patience_s}
        waited = {ledger: waited_s for ledger, waited_s in waited.items() if ledger not in due}
        finish = service.run(core, stored)
        assert (finish.delete, finish.waiting) == (tuple(sorted(due)), len(waited))


@pytest.mark.usefixtures("short_steps")
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_ids_are_sorted_in_steps(ids: list[int]) -> None:
    assert finished(ascending(ids)).tolist() == sorted(ids)
    assert finished(ascending(sorted(ids))).tolist() == sorted(ids)
