"""When a degraded writer tries again, and when it gives up."""

from __future__ import annotations

from itertools import pairwise

from tallystick.bookkeeper.ledger.degraded import (
    FIRST_RETRY_S,
    FORGET_S,
    MAX_RETRY_S,
    FailedBookies,
    QuorumLossCore,
    RetryCore,
)
from tallystick.bookkeeper.wire.codes import Code


def test_a_quorum_that_is_gone_for_the_limit_is_over_unless_an_entry_was_confirmed() -> None:
    loss = QuorumLossCore(10.0)
    assert loss.wake_at() is None and not loss.over(1e9)
    loss.observed(True, -1, 100.0)
    loss.observed(True, -1, 105.0)
    assert loss.wake_at() == 110.0 and not loss.over(109.9) and loss.over(110.0)
    loss.observed(False, 0, 109.0)
    assert loss.wake_at() is None and not loss.over(111.0)
    loss.observed(True, 0, 112.0)
    assert not loss.over(121.9) and loss.over(122.0)
    loss.observed(True, 1, 113.0)
    assert loss.wake_at() == 123.0, "entry 2 waits since then"


def test_a_bookie_that_is_tried_again_ends_no_loss() -> None:
    loss = QuorumLossCore(10.0)
    for now in range(100, 110, 2):  # refused each time
        loss.observed(True, 7, now)
        loss.observed(False, 7, now + 1)
    assert loss.wake_at() == 110.0 and loss.over(110.0)


def test_who_failed_is_not_taken_until_an_entry_was_confirmed_or_all_are_tried_again() -> None:
    failed = FailedBookies()
    failed.failed("a", Code.IO_ERROR, "")
    failed.failed("b", None, "the bookie cannot be reached")
    failed.failed("c", Code.UNDEFINED, "it was silent before")
    answers = {"a": "IO_ERROR", "b": "the bookie cannot be reached", "c": "UNDEFINED"}
    assert set(failed.tried_bookies) == {"a", "b", "c"} and failed.last_responses() == answers
    failed.again()
    assert not failed.tried_bookies and failed.last_responses() == answers
    failed.failed("a", Code.READ_ONLY, "")
    assert set(failed.tried_bookies) == {"a"} and failed.last_responses()["a"] == "READ_ONLY"
    failed.confirmed()
    assert not failed.tried_bookies and not failed.last_responses()


def test_a_missing_bookie_is_tried_at_growing_intervals() -> None:
    retries, now, tries = RetryCore(), 0.0, []
    retries.missed("a", now)
    assert retries.take_due(["a"], now) == []
    while now < 60.0:
        now = retries.wake_at(["a"]) or 0.0
        assert retries.take_due(["a"], now) == ["a"] and retries.take_due(["a"], now) == []
        tries.append(now)
    gaps = [round(after - before, 6) for before, after in pairwise(tries)]
    assert tries[0] == FIRST_RETRY_S and gaps == sorted(gaps) and gaps[-1] == MAX_RETRY_S
    assert len(tries) < 25


def test_a_change_of_the_registered_bookies_makes_all_of_them_due() -> None:
    retries = RetryCore()
    for bookie in ("a", "b"):
        retries.missed(bookie, 0.0)
    assert retries.take_due(["a", "b"], FIRST_RETRY_S) == ["a", "b"]
    retries.changed(FIRST_RETRY_S + 0.01)
    assert retries.take_due(["b"], FIRST_RETRY_S + 0.01) == ["b"]
    assert retries.wake_at([]) is None


def test_a_bookie_that_fails_again_and_again_is_not_tried_faster_for_it() -> None:
    retries, now, tries = RetryCore(), 0.0, 0
    while now < 55.0:  # it answers each time and then fails the next entry
        retries.missed("a", now)
        now = retries.wake_at(["a"]) or 0.0
        tries += len(retries.take_due(["a"], now))
    assert tries < 25
    later = now + MAX_RETRY_S + FORGET_S + 1.0
    retries.missed("a", later)
    assert retries.wake_at(["a"]) == later + FIRST_RETRY_S


def test_another_writer_that_misses_it_does_not_put_the_next_try_off() -> None:
    """Thousands of writers lack one bookie, one after another: it is tried all the same."""
    retries = RetryCore()
    retries.missed("a", 0.0)
    retries.missed("a", FIRST_RETRY_S / 2)
    assert retries.wake_at(["a"]) == FIRST_RETRY_S
