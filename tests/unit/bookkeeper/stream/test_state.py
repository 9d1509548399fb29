"""The parts of a stream's state that no broker of the golden tests had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.stream.state import (
    CursorCounts,
    Stored,
    StreamCounts,
    StreamState,
    entries_between,
    internal_info,
    iso_time,
    stream_state,
)
from tallystick.bookkeeper.wire.stream_values import (
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)

SIZES = {3: 4, 7: 0, 9: 2}
INFO = StreamInfo(tuple(StreamLedger(ledger, entries) for ledger, entries in SIZES.items()))
ALL = [Position(ledger, entry) for ledger, entries in SIZES.items() for entry in range(entries)]
ALL += [Position(11, entry) for entry in range(5)]
OPEN = StreamInfo((*INFO.ledgers, StreamLedger(11, has_counts=False)))


@given(st.sampled_from([Position(3, -1), *ALL]), st.sampled_from(ALL))
def test_entries_between_are_those_of_a_list(after: Position, to: Position) -> None:
    assert entries_between(OPEN, after, to) == sum(after < each <= to for each in ALL)


@pytest.mark.parametrize(
    ("time_ms", "written"),
    [
        (1_795_255_249_050, "2026-11-21T10:00:49.05Z"),
        (1_795_255_249_000, "2026-11-21T10:00:49Z"),
        (1_795_255_200_000, "2026-11-21T10:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_end_where_their_zeros_begin(time_ms: int, written: str) -> None:
    assert iso_time(time_ms) == written


def test_a_ledger_that_could_not_be_created() -> None:
    counts = StreamCounts(StreamInfo(), StreamState.WRITE_FAILED, Position(3, 1), 0, creation_failed_ms=1_000)
    state = stream_state(counts)
    assert state["lastLedgerCreationFailureTimestamp"] == "1970-01-01T00:00:01Z"
    assert (state["state"], state["lastConfirmedEntry"]) == ("WriteFailed", "3:1")


def test_properties_are_shown_where_there_are_some() -> None:
    info = StreamInfo((StreamLedger(1, 2, 3, 4, properties={"a": "b"}),), properties={"index": "3"})
    state = stream_state(StreamCounts(info, StreamState.CLOSED, Position(1, 1), 0))
    assert state["properties"] == {"index": "3"} and state["ledgers"][0]["properties"] == {"a": "b"}
    cursor = CursorInfo(-1, CursorState(Position(1, 0), properties={"n": 7}))
    nodes = {"c": (cursor, Stored(0)), "d": (CursorInfo(9, None), Stored(1))}
    found = internal_info(info, Stored(2), nodes, now_ms=0)
    assert found == {
        "version": 2,
        "ledgers": [{"ledgerId": 1, "entries": 2, "size": 3, "timestamp": 4, "isOffloaded": False}],
        "cursors": {
            "c": {
                "version": 0,
                "cursorsLedgerId": -1,
                "markDelete": {"ledgerId": 1, "entryId": 0},
                "properties": {"n": 7},
            },
            "d": {"version": 1, "cursorsLedgerId": 9},
        },
        "properties": {"index": "3"},
    }


def test_a_cursor_behind_its_readers() -> None:
    cursor = CursorCounts(Position(3, 0), Position(9, 1), is_waiting=True)
    (shown,) = stream_state(StreamCounts(INFO, StreamState.LEDGER_OPENED, Position(9, 1), 0, cursors={"c": cursor}))[
        "cursors"
    ].values()
    assert shown["numberOfEntriesSinceFirstNotAckedMessage"] == 5
    assert shown["subscriptionHavePendingRead"] is shown["waitingReadOp"] is True
    assert shown["pendingReadOps"] == 0


def test_an_open_ledger_has_the_time_of_now_in_the_internal_info() -> None:
    info = StreamInfo((StreamLedger(1, 2, 3, 4), StreamLedger(2, has_counts=False)))
    ledgers = internal_info(info, Stored(0), {}, now_ms=99)["ledgers"]
    assert [each["timestamp"] for each in ledgers] == [4, 99]
