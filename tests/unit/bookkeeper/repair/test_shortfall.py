"""Places of a ledger, and who may take one."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.shortfall import Place
from tallystick.bookkeeper.repair.steps import Check, Copy, Done, Recover, Wait, next_step
from tallystick.bookkeeper.wire.lost_runs import LOST_KEY
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata, LedgerState

OPEN = LedgerMetadata(3, 2, 2, (Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "d", "c"))))
CLOSED = OPEN.closed(24, 100)


def step(metadata: LedgerMetadata, marked: str, registered: str, *checked: Place, still_s: float = 0.0) -> object:
    return next_step(metadata, tuple(marked), registered, checked, still_s=still_s, open_grace_s=60)


def test_the_newest_fragment_of_an_open_ledger_has_no_places() -> None:
    assert shortfall.places(OPEN, "a") == [Place(0, 9, 0, "a", ("a", "b", "c"))]
    assert [(place.first, place.last) for place in shortfall.places(CLOSED, "a")] == [(0, 9), (10, 24)]
    assert len(shortfall.places(CLOSED)) == 6


def test_a_closed_ledger_may_end_before_its_newest_fragment() -> None:
    (place,) = shortfall.places(OPEN.closed(9, 100), "d")
    assert (place.first, place.last) == (10, 9)
    assert list(Striping(3, 2, 2).stripe(place.slot, place.first, place.last)) == []


def test_the_others_are_those_of_the_write_set() -> None:
    place = shortfall.places(CLOSED, "b")[0]
    assert shortfall.others(place, 0, Striping(3, 2, 2)) == ["a"]
    assert shortfall.others(place, 1, Striping(3, 2, 2)) == ["c"]


def test_of_millions_of_entries_a_part_is_had_at_once() -> None:
    custom = MappingProxyType({LOST_KEY: b"100-50000:2/3"})
    whole, given_up = CLOSED.closed(9_999_999, 100), replace(CLOSED.closed(9_999, 100), custom=custom)
    place, short = shortfall.places(whole, "d")[0], shortfall.places(given_up, "d")[0]
    parts = shortfall.stripe(whole, place)
    assert iter(parts) is parts and 0 < len(next(parts)) <= shortfall.PART_ENTRIES
    entries = [entry for part in shortfall.stripe(given_up, short) for entry in part]
    assert entries == [
        entry for entry in range(10, 10_000) if entry % 3 in (0, 1) and (entry < 100 or (entry - 100) % 3 > 1)
    ]


def test_runs_are_no_more_than_can_be_told_of() -> None:
    runs = shortfall.Runs(3)
    for entries in ([3, 1], [4, 5], [9], [0]):
        runs.add(entries)
    assert runs.all() == ((1, 1), (3, 5), (9, 9)) and runs.is_cut, "and it has forgotten one"


def test_a_place_is_given_only_as_it_was_copied() -> None:
    place = shortfall.places(CLOSED, "b")[0]
    new = shortfall.replaced(CLOSED, place, "e")
    assert new is not None and new.fragments[0].bookies == ("a", "e", "c") and new.fragments[1:] == CLOSED.fragments[1:]
    assert (new.last_entry, new.length, new.state) == (24, 100, CLOSED.state)
    assert shortfall.replaced(new, place, "f") is None, "another was faster"
    moved = replace(CLOSED, fragments=(Fragment(0, ("a", "b", "c")), Fragment(11, ("a", "d", "c"))))
    assert shortfall.replaced(moved, place, "e") is None, "its entries are others now"


def test_no_bookie_gets_two_copies() -> None:
    place = shortfall.places(CLOSED, "b")[0]
    newer = replace(CLOSED, fragments=(Fragment(0, ("e", "b", "c")), CLOSED.fragments[1]))
    assert shortfall.replaced(newer, place, "e") is None
    new = shortfall.replaced(newer, place, "f")
    assert new is not None and new.fragments[0].bookies == ("e", "f", "c"), "another place may have changed"


def test_steps_copy_first_then_check_then_recover() -> None:
    assert isinstance(step(CLOSED, "b", "acd"), Copy)
    assert isinstance(step(CLOSED, "b", "abcd"), Check)
    assert step(CLOSED, "b", "abcd", *shortfall.places(CLOSED, "b")) == Done()
    assert step(CLOSED, "z", "abcd") == Done()
    assert isinstance(waits := step(OPEN, "d", "abc"), Wait) and "its writer may replace" in waits.reason
    recovering = replace(OPEN, state=LedgerState.IN_RECOVERY)  # which no writer writes any more
    assert isinstance(waits := step(recovering, "d", "abc"), Wait) and "a recovery of the ledger" in waits.reason
    assert step(OPEN, "d", "abc", still_s=60) == Recover()
    assert isinstance(step(OPEN, "a", "bcd", still_s=60), Copy)
    assert isinstance(step(OPEN, "d", "abcd", still_s=60), Wait), "a living bookie never costs a fence"


def test_a_mark_that_names_nobody_is_of_all() -> None:
    assert isinstance(step(CLOSED, "", "acd"), Copy)
    assert step(CLOSED, "", "abcd", *shortfall.places(CLOSED)) == Done()


def test_runs_are_named_by_their_ends() -> None:
    assert shortfall.runs_of([]) == [] and shortfall.text_of(()) == ""
    assert shortfall.text_of(shortfall.runs_of([1, 2, 3, 5, 9, 10])) == "1-3, 5, 9-10"
    assert shortfall.text_of([(n, n) for n in range(0, 20, 2)]).endswith("14, …")
