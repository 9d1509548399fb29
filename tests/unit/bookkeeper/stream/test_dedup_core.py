"""Numbered appends: each is stored once, however often it is repeated."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.dedup_core import MOST_PRODUCERS, AppendStatus, DedupCore, FailedNumbers
from tallystick.bookkeeper.stream.producers import LONGEST_NAME
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position


def core_with(*numbers: int, producer: str = "p", ledger: int = 1) -> DedupCore:
    core = DedupCore()
    for entry, number in enumerate(numbers):
        core.pushed(producer, number)
        core.stored(producer, number, number, Position(ledger, entry))
    return core


def test_a_number_is_new_then_pending_then_stored_with_its_position() -> None:
    core = DedupCore()
    assert core.check("p", 0) is AppendStatus.NEW
    core.pushed("p", 0)
    assert core.check("p", 0) is AppendStatus.PENDING
    core.stored("p", 0, 0, Position(3, 7))
    assert core.check("p", 0) is AppendStatus.STORED
    assert core.position_of("p", 0) == Position(3, 7)
    assert core.check("q", 0) is AppendStatus.NEW, "another producer has numbers of its own"


def test_numbers_may_skip_and_what_goes_down_is_a_repeat() -> None:
    core = core_with(10, 100)
    assert core.check("p", 42) is AppendStatus.STORED
    assert core.position_of("p", 42) == EARLIEST, "where it is nobody knows"
    assert core.check("p", 101) is AppendStatus.NEW


def test_each_message_of_an_entry_has_its_index() -> None:
    core = DedupCore()
    core.pushed("p", 7)
    core.stored("p", 5, 7, Position(3, 0))
    assert [core.position_of("p", number) for number in (5, 6, 7)] == [Position(3, 0, index) for index in range(3)]


def test_the_first_position_counts() -> None:
    core = core_with(5)
    core.stored("p", 5, 5, Position(2, 0))
    assert core.position_of("p", 5) == Position(1, 0)


def test_what_is_on_its_way_is_not_stored_when_an_earlier_one_is() -> None:
    core = DedupCore()
    core.pushed("p", 1)
    core.pushed("p", 2)
    core.stored("p", 1, 1, Position(1, 0))
    assert core.check("p", 2) is AppendStatus.PENDING


def test_what_failed_for_sure_is_new_again_and_what_came_behind_it_is_on_its_way() -> None:
    core = DedupCore()
    core.pushed("p", 1)
    core.failed("p", 1)
    assert core.check("p", 1) is AppendStatus.NEW
    core.pushed("p", 1)
    core.pushed("p", 2)
    core.failed("p", 1)
    assert core.check("p", 2) is AppendStatus.PENDING


def test_what_is_refused_leaves_what_is_on_its_way_before_and_behind_it() -> None:
    core = DedupCore()
    for last in (3, 5, 9):
        core.pushed("p", last)
    core.failed("p", 5)
    assert [core.pending("p", number) for number in (1, 3, 4, 9)] == [3, 3, 9, 9]
    core.failed("p", 9)
    assert core.check("p", 3) is AppendStatus.PENDING and core.check("p", 4) is AppendStatus.NEW
    assert core.first_new("p", 2) == 4
    core.stored("p", 1, 3, Position(1, 0))
    assert core.check("p", 4) is AppendStatus.NEW and core.first_new("p", 0) == 4


def test_saved_numbers_and_what_came_behind_them_give_the_same_state() -> None:
    core = core_with(1, 2)
    saved = core.highest
    core.stored("q", 9, 9, Position(1, 2))
    taken_over = DedupCore()
    taken_over.restored(saved)
    for producer, number, entry in (("p", 2, 1), ("q", 9, 2)):  # one of them counts already
        taken_over.stored(producer, number, number, Position(1, entry))
    assert taken_over.highest == core.highest == {"p": 2, "q": 9}
    assert taken_over.check("p", 2) is AppendStatus.STORED


def test_the_producer_that_was_silent_longest_is_forgotten_first() -> None:
    core = DedupCore(most_producers=2)
    for entry, producer in enumerate(("a", "b", "a", "c")):
        core.stored(producer, entry, entry, Position(1, entry))
    assert [core.check(producer, 0) for producer in ("a", "b", "c")] == [
        AppendStatus.STORED,
        AppendStatus.NEW,
        AppendStatus.STORED,
    ]


def test_places_are_bounded_and_those_of_a_long_batch_are_one() -> None:
    core = DedupCore(places_kept=4)
    core.stored("p", 0, 1_000_000_000, Position(1, 0))
    assert core.position_of("p", 1_000_000_000) == Position(1, 0, 1_000_000_000)
    for entry in range(1, 5):
        core.stored("q", entry, entry, Position(1, entry))
    assert core.position_of("p", 5) == EARLIEST
    assert core.check("p", 5) is AppendStatus.STORED


def test_confirming_a_long_batch_costs_what_a_short_one_does() -> None:
    core, before = DedupCore(), time.process_time()
    for entry in range(1000):
        core.stored("p", entry * 100_000, entry * 100_000 + 99_999, Position(1, entry))
        assert core.first_new("p", entry * 100_000 + 7) == (entry + 1) * 100_000
    assert time.process_time() - before < 1.0, "100 million messages; each for itself took a minute"


def test_a_number_of_a_producer_that_was_forgotten_is_new_and_awaited_by_nobody() -> None:
    core = DedupCore(most_producers=1)
    for producer in ("silent", "p"):
        core.pushed(producer, 5)
        core.stored(producer, 5, 5, Position(1, 0))
    assert core.check("silent", 5) is AppendStatus.NEW


def test_failed_numbers_come_again_lowest_first() -> None:
    failed = FailedNumbers()
    assert failed.lowest("p") is None
    for first, last in [(5, 5), (6, 6), (9, 12), (8, 8), (20, 20)]:
        failed.failed("p", first, last)
    assert failed.lowest("p") == 5 and failed.lowest("q") is None
    failed.settled("p", 5)
    assert failed.lowest("p") == 6
    failed.settled("p", 9)
    assert failed.lowest("p") == 10, "of a batch a part may come again"
    failed.failed("p", 2, 9)
    assert failed.lowest("p") == 2
    failed.settled("p", 12)
    assert failed.lowest("p") == 20
    failed.settled("p", 20)
    assert failed.lowest("p") is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 4))))
def test_failed_numbers_are_those_of_a_set(steps: list[tuple[bool, int, int]]) -> None:
    failed, twin = FailedNumbers(), set[int]()
    for is_failure, number, more in steps:
        if is_failure:
            failed.failed("p", number, number + more)
            twin |= {*range(number, number + more + 1)}
        else:
            failed.settled("p", number)
            twin = {one for one in twin if one > number}
        assert failed.lowest("p") == min(twin, default=None)


def test_very_many_failed_numbers_with_gaps_are_settled_one_by_one_in_no_time() -> None:
    """A full stream may lose 100,000 of them; each look at all of them would take minutes of CPU."""
    failed, count = FailedNumbers(), 100_000
    for number in range(count):
        failed.failed("p", 2 * number, 2 * number)
    start = time.thread_time()
    for number in range(0, count, 10):
        failed.settled("p", 2 * number)
    assert time.thread_time() - start < 5, "and not a minute"
    assert failed.lowest("p") == 2 * (count - 9)


def test_failed_numbers_of_many_producers_are_bounded() -> None:
    failed = FailedNumbers()
    for number in range(MOST_PRODUCERS + 1):
        failed.failed(f"p{number}", 1, 1)
    assert failed.lowest("p0") is None and failed.lowest("p1") == 1


def test_names_are_bounded_and_the_producer_that_was_silent_longest_goes_first() -> None:
    """All are saved in one node, which a server refuses that has a MiB."""
    core = DedupCore(most_name_bytes=100)
    for number, producer in enumerate(("a" * 20, "b" * 20, "a" * 20, "ä" * 10)):  # with their numbers 36 bytes each
        core.stored(producer, number, number, Position(1, number))
    assert core.highest == {"a" * 20: 2, "ä" * 10: 3}
    core.restored({"c" * 20: 1, "d" * 20: 2, "e" * 20: 3, "x" * (LONGEST_NAME + 1): 4})
    assert core.highest == {"d" * 20: 2, "e" * 20: 3}
    core.stored("d" * 20, 5, 5, Position(1, 9))
    core.stored("f" * 20, 6, 6, Position(1, 10))
    assert core.highest == {"d" * 20: 5, "f" * 20: 6}
