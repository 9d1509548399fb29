"""Which entries a bookie must have, and which of them it lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.repair.fill_core import GONE_S, GoneLedgers, is_named, missing, other_replicas, placed
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata

LEDGER = LedgerMetadata(3, 2, 2, (Fragment(0, ("a", "b", "c")),))
CHANGED = replace(LEDGER, fragments=(Fragment(0, ("a", "b", "c")), Fragment(5, ("d", "b", "c"))))


def test_of_an_open_ledger_only_the_fragments_before_the_last_are_known() -> None:
    assert list(placed(LEDGER, "a")) == []
    assert list(placed(CHANGED, "a")) == [0, 2, 3]
    assert list(placed(CHANGED, "b")) == [0, 1, 3, 4]
    assert list(placed(CHANGED, "d")) == [] and is_named(CHANGED, "d") and not is_named(CHANGED, "e")


def test_of_a_closed_one_all_is_known() -> None:
    assert list(placed(LEDGER.closed(5, 9), "a")) == [0, 2, 3, 5]
    assert list(placed(CHANGED.closed(9, 9), "a")) == [0, 2, 3]
    assert list(placed(CHANGED.closed(9, 9), "b")) == [0, 1, 3, 4, 6, 7, 9]
    assert list(placed(CHANGED.closed(9, 9), "b", 5)) == [6, 7, 9]
    assert list(placed(CHANGED.closed(4, 9), "d")) == list(placed(LEDGER.closed(-1, 0), "a")) == []


def test_the_others_of_a_write_set_begin_at_different_ones() -> None:
    full = LedgerMetadata(3, 3, 2, (Fragment(0, ("a", "b", "c")),)).closed(9, 9)
    assert [other_replicas(full, "b", entry) for entry in (0, 1, 2)] == [["a", "c"], ["c", "a"], ["c", "a"]]
    assert other_replicas(CHANGED.closed(9, 9), "b", 4) == ["c"]
    assert other_replicas(CHANGED.closed(9, 9), "b", 6) == ["d"]


ENTRIES = st.sets(st.integers(0, 40))


@pytest.mark.rule("Q4")
@given(ENTRIES, ENTRIES, st.integers(1, 50))
def test_what_lacks_is_what_is_wanted_and_not_stored(wanted: set[int], stored: set[int], most: int) -> None:
    runs: list[range] = []
    for entry in sorted(stored):
        if runs and runs[-1].stop == entry:
            runs[-1] = range(runs[-1].start, entry + 1)
        else:
            runs.append(range(entry, entry + 1))
    assert missing(iter(sorted(wanted)), iter(runs), most) == sorted(wanted - stored)[:most]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(-1, 30), st.integers(0, 9))
def test_each_entry_is_placed_at_the_whole_of_its_write_set(size: int, quorum: int, last: int, first: int) -> None:
    names = tuple("abcde"[:size])
    metadata = LedgerMetadata(size, min(size, quorum), 1, (Fragment(0, names),)).closed(last, 0)
    found = {name: list(placed(metadata, name, first)) for name in names}
    for entry in range(first, last + 1):
        slots = Striping.of(metadata).slots(entry)
        assert [name for name in names if entry in found[name]] == sorted(names[slot] for slot in slots)
    assert all(first <= entry <= last for entries in found.values() for entry in entries)


def test_a_ledger_is_gone_when_it_lacked_twice_a_minute_apart_and_never_came_back() -> None:
    gone = GoneLedgers()
    assert not gone.absent(7, 100.0) and not gone.absent(7, 99.0 + GONE_S)
    assert gone.absent(7, 100.0 + GONE_S)
    gone.present(7)
    assert not gone.absent(7, 101.0 + GONE_S)
