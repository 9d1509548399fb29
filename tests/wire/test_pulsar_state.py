"""What a Pulsar broker says of its topics, and what we say of the same history."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tallystick.bookkeeper.stream.state import (
    CursorCounts,
    CursorLedgerState,
    Stored,
    StreamCounts,
    StreamState,
    internal_info,
    stream_state,
)
from tallystick.bookkeeper.wire.stream_values import (
    NO_LEDGER,
    AckedRange,
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)

GOLDEN = json.loads((Path(__file__).parent / "golden" / "pulsar.json").read_text())


def time_of(written: str) -> int:
    return round(datetime.fromisoformat(written).timestamp() * 1000)


def cursor_of(said: dict[str, Any]) -> CursorCounts:
    ranges = re.findall(r"\((\S+?)\.\.(\S+?)\]", said["individuallyDeletedMessages"])
    return CursorCounts(
        mark=Position.parse(said["markDeletePosition"]),
        read=Position.parse(said["readPosition"]),
        acked=[AckedRange(Position.parse(after), Position.parse(to)) for after, to in ranges],
        ledger=said["cursorLedger"],
        last_entry=said["cursorLedgerLastEntry"],
        ledger_state=CursorLedgerState(said["state"]),
        switched_ms=time_of(said["lastLedgerSwitchTimestamp"]),
        consumed=said["messagesConsumedCounter"],
        is_active=said["active"],
        is_waiting=said["waitingReadOp"],
        pending_reads=said["pendingReadOps"],
    )


def counts_of(said: dict[str, Any]) -> StreamCounts:
    ledgers = tuple(StreamLedger(each["ledgerId"], each["entries"], each["size"]) for each in said["ledgers"])
    return StreamCounts(
        StreamInfo(ledgers),
        StreamState(said["state"]),
        Position.parse(said["lastConfirmedEntry"]),
        time_of(said["lastLedgerCreatedTimestamp"]),
        added=said["entriesAddedCounter"],
        current_entries=said["currentLedgerEntries"],
        current_size=said["currentLedgerSize"],
        confirmed_entries=said["numberOfEntries"] - sum(each.entries for each in ledgers),
        confirmed_size=said["totalSize"] - sum(each.size for each in ledgers),
        pending=said["pendingAddEntriesCount"],
        cursors={name: cursor_of(each) for name, each in said["cursors"].items()},
    )


def without_live(said: dict[str, Any]) -> str:
    """A broker's waiting cursors are the length of a queue, into which a cursor comes some milliseconds later."""
    return json.dumps({name: value for name, value in said.items() if name != "waitingCursorsCount"})


def internal_stats(counts: StreamCounts) -> dict[str, Any]:
    """Returns what a broker answers to ``internalStats`` of a topic without a schema that is not compacted."""
    nobody_looked = {each.ledger: False for each in counts.info.ledgers}
    none = {"ledgerId": NO_LEDGER, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}
    return stream_state(counts, under_replicated=nobody_looked) | {"schemaLedgers": [], "compactedLedger": none}


@pytest.mark.parametrize("said", GOLDEN["internal_stats"].values(), ids=GOLDEN["internal_stats"])
def test_internal_stats_are_the_brokers(said: dict[str, Any]) -> None:
    assert without_live(internal_stats(counts_of(said))) == without_live(said)


Q18 = ("lastLedgerCreatedTimestamp", "waitingCursorsCount", "pendingAddEntriesCount", "lastConfirmedEntry", "state")


def test_the_state_has_the_fields_that_were_asked_for() -> None:
    said = GOLDEN["internal_stats"]["two closed ledgers and one open"]
    counts = counts_of(said)
    state = stream_state(counts, under_replicated={30: True, 32: False})
    assert {name: state[name] for name in Q18} == {name: said[name] for name in Q18}
    assert state["ledgers"] == [
        {"ledgerId": 30, "entries": 3, "size": 237, "offloaded": False, "underReplicated": True},
        {"ledgerId": 31, "entries": 2, "size": 158, "offloaded": False},  # nobody looked
        {"ledgerId": 32, "entries": 0, "size": 0, "offloaded": False, "underReplicated": False},
    ]


def stored_of(said: dict[str, Any]) -> Stored:
    return Stored(said["version"], time_of(said["creationDate"]), time_of(said["modificationDate"]))


def position_of(said: dict[str, int]) -> Position:
    return Position(said["ledgerId"], said["entryId"])


def cursor_info_of(said: dict[str, Any]) -> CursorInfo:
    ranges = [
        (position_of(each["from"]), position_of(each["to"])) for each in said.get("individualDeletedMessages", ())
    ]
    state = CursorState(position_of(said["markDelete"]), tuple(AckedRange(*each) for each in ranges))
    return CursorInfo(said["cursorsLedgerId"], state)


@pytest.mark.parametrize("said", GOLDEN["internal_info"].values(), ids=GOLDEN["internal_info"])
def test_internal_info_is_the_brokers(said: dict[str, Any]) -> None:
    ledgers = [
        StreamLedger(each["ledgerId"], each["entries"], each["size"], each["timestamp"])
        if "entries" in each
        else StreamLedger(each["ledgerId"], has_counts=False)
        for each in said["ledgers"]
    ]
    terminated = position_of(said["terminatedPosition"]) if "terminatedPosition" in said else None
    cursors = {name: (cursor_info_of(each), stored_of(each)) for name, each in said["cursors"].items()}
    now_ms = said["ledgers"][-1]["timestamp"]
    found = internal_info(StreamInfo(tuple(ledgers), terminated), stored_of(said), cursors, now_ms=now_ms)
    assert json.dumps(found) == json.dumps(said)
