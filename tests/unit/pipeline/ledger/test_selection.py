from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import UsageError
from tallystick.pipeline.ledger.selection import IdSpan, Selection

ids = st.integers(0, 12)
spans = st.builds(IdSpan, ids, ids)


def test_all_selects_every_ledger_and_needs_a_listing() -> None:
    selection = Selection.parse(" ALL ")
    assert 0 in selection and MAX_ID in selection
    assert selection.single_ledgers is None and selection.named_ledgers == ()


def test_ids_and_ranges() -> None:
    selection = Selection.parse("9, 1,2 ,5-7,6-8")
    assert [ledger for ledger in range(12) if ledger in selection] == [1, 2, 5, 6, 7, 8, 9]
    assert selection.named_ledgers == (1, 2, 9)


def test_single_ids_need_no_listing() -> None:
    assert Selection.parse("3,1,2,2").single_ledgers == (1, 2, 3)


@pytest.mark.parametrize(
    "text", ["", "1,", "a", "1-", "-1", "5-2", "1;2", str(MAX_ID + 1), "1.5", "\u0661", "9" * 5000]
)
def test_what_is_not_a_list_of_ledgers_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Selection.parse(text)


def test_a_descending_span_of_entries_is_refused() -> None:
    with pytest.raises(UsageError, match="firstEntry"):
        Selection.parse("1", first=5, last=4)


@given(st.lists(spans, max_size=4), st.lists(spans, max_size=4))
def test_narrowing_is_the_intersection(first: list[IdSpan], second: list[IdSpan]) -> None:
    selection = Selection().with_ledgers(first).with_ledgers(second)
    for ledger in range(14):
        assert (ledger in selection) == (any(ledger in s for s in first) and any(ledger in s for s in second))


def test_a_ledger_narrowed_away_is_not_missed_any_more() -> None:
    assert Selection.parse("1,2,3").with_ledgers([IdSpan(2, 9)]).named_ledgers == (2, 3)


@given(spans, spans)
def test_entries_narrow_to_the_intersection(first: IdSpan, second: IdSpan) -> None:
    entries = Selection().with_entries(first).with_entries(second).entries
    assert [entry for entry in range(14) if entry in entries] == [e for e in range(14) if e in first and e in second]


def test_membership_in_many_spans() -> None:
    selection = Selection.parse("1,3-5,9,20-29")
    assert [ledger for ledger in range(40) if ledger in selection] == [1, 3, 4, 5, 9, *range(20, 30)]
    assert 7 not in Selection().with_ledgers([])
