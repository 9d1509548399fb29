from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import UsageError
from tallystick.pipeline.ledger.offsets import LedgerPositions, from_offset, to_offset
from tallystick.pipeline.ledger.selection import IdSpan

IDS = st.integers(0, 30)


def test_an_offset_has_what_is_read_next_and_what_is_read() -> None:
    positions = LedgerPositions({12: 345, 9: 0}).moved({12: 345, 9: 0}, [8, 0, 2, 1])
    text = '{"v": 1, "l": {"next": {"9": 0, "12": 345}, "read": [[0, 2], [8, 8]]}}'
    assert json.dumps(to_offset(positions)) == text
    assert from_offset(json.loads(text)) == positions


@given(st.dictionaries(IDS, IDS), st.lists(st.lists(IDS)))
def test_equal_positions_have_equal_texts(entries: dict[int, int], steps: list[list[int]]) -> None:
    positions = LedgerPositions(entries)
    for step in steps:
        positions = positions.moved(entries, step)
    finished = {ledger for step in steps for ledger in step}
    at_once = LedgerPositions({}).moved(dict(reversed(entries.items())), finished)
    assert json.dumps(to_offset(at_once)) == json.dumps(to_offset(positions))
    assert from_offset(to_offset(positions)) == positions
    assert [ledger for ledger in range(31) if positions.has_read(ledger)] == sorted(finished)


def test_neighbours_are_one_range() -> None:
    assert LedgerPositions({}).moved({}, range(10_000)).read == (IdSpan(0, 9_999),)


@pytest.mark.parametrize("content", [None, [], {}, {"next": {}}, {"next": [], "read": []}])
def test_what_is_no_offset_is_refused(content: Any) -> None:
    with pytest.raises(UsageError, match="the checkpoint has no offsets of tally-ledger"):
        from_offset({"v": 1, "l": content})


@pytest.mark.parametrize("entries", [{"x": 1}, {"1": -1}, {"1": True}, {"-1": 1}])
def test_entries_that_are_none_are_refused(entries: Any) -> None:
    with pytest.raises(UsageError):
        from_offset({"v": 1, "l": {"next": entries, "read": []}})


@pytest.mark.parametrize("read", [[1], [[1, 2, 3]], [["0", "1"]], [[-1, 3]]])
def test_ranges_that_are_none_are_refused(read: Any) -> None:
    with pytest.raises(UsageError):
        from_offset({"v": 1, "l": {"next": {}, "read": read}})
