"""The state of a stream as JSON, with the fields of Q18 and the words of a Pulsar broker.

``stream_state`` is its ``internalStats``, without what belongs to topics alone; ``internal_stats`` has that, too.
``internal_info`` is what the metadata have (``internal-info``). All three are functions of values: who owns the stream
counts, and whoever looks at ledgers says which are under-replicated. Nobody has looked: there is no such field.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.wire.ledger_runs import total_size
from tallystick.bookkeeper.wire.stream_values import (
    NO_LEDGER,
    NO_NUMBERS,
    AckedRange,
    CursorInfo,
    Position,
    StreamInfo,
    StreamLedger,
)
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId

Json = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StreamState(enum.Enum):
    """What an owner can do with its stream (``ManagedLedgerImpl.State``)."""

    LEDGER_OPENED = "LedgerOpened"
    CLOSING_LEDGER = "ClosingLedger"
    CLOSED_LEDGER = "ClosedLedger"
    CREATING_LEDGER = "CreatingLedger"
    WRITE_FAILED = "WriteFailed"
    CLOSED = "Closed"
    FENCED = "Fenced"
    TERMINATED = "Terminated"


class CursorLedgerState(enum.Enum):
    """What a cursor does with its ledger (``ManagedCursorImpl.State``)."""

    NO_LEDGER = "NoLedger"
    OPEN = "Open"
    SWITCHING_LEDGER = "SwitchingLedger"
    CLOSED = "Closed"


@dataclass(frozen=True, slots=True)
class CursorCounts:
    """What is known of a cursor by its owner. Times are of the wall clock."""

    mark: Position
    read: Position  # what it reads next
    acked: Sequence[AckedRange] = ()
    ledger: LedgerId = NO_LEDGER
    last_entry: EntryId = NO_ENTRY  # of its ledger
    ledger_state: CursorLedgerState = CursorLedgerState.NO_LEDGER
    switched_ms: int = 0  # when its ledger was made, or it was opened
    consumed: int = 0  # entries acknowledged since it was opened
    is_active: bool = False  # somebody consumes it
    is_waiting: bool = False  # for an entry that is not there yet
    pending_reads: int = 0
    properties: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """What is known of a stream by its owner. ``current`` is the newest ledger, as long as it takes entries."""

    info: StreamInfo
    state: StreamState
    last_confirmed: Position  # of the stream: in an older ledger while the newest is empty
    ledger_created_ms: int
    creation_failed_ms: int | None = None
    added: int = 0  # entries since it was opened
    current_entries: int = 0  # those on their way are among them
    current_size: int = 0
    confirmed_entries: int = 0  # of the current ledger
    confirmed_size: int = 0
    pending: int = 0
    cursors: Mapping[str, CursorCounts] = field(default_factory=dict)


def stream_state(counts: StreamCounts, *, under_replicated: Mapping[LedgerId, bool] | None = None) -> Json:
    """Returns the state as JSON (Q18). An open ledger shows 0 entries and a size of 0.

    ``under_replicated`` is what somebody found, by ledger; a ledger that is not in it has no such field.
    """
    info, cursors = counts.info, counts.cursors
    state: Json = {
        "entriesAddedCounter": counts.added,
        "numberOfEntries": sum(each.entries for each in info.ledgers) + counts.confirmed_entries,
        "totalSize": total_size(info.ledgers) + counts.confirmed_size,
        "currentLedgerEntries": counts.current_entries,
        "currentLedgerSize": counts.current_size,
        "lastLedgerCreatedTimestamp": iso_time(counts.ledger_created_ms),
    }
    if counts.creation_failed_ms is not None:
        state["lastLedgerCreationFailureTimestamp"] = iso_time(counts.creation_failed_ms)
    return state | {
        "waitingCursorsCount": sum(each.is_waiting for each in cursors.values()),
        "pendingAddEntriesCount": counts.pending,
        "lastConfirmedEntry": str(counts.last_confirmed.of_entry),
        "state": counts.state.value,
        "ledgers": [_ledger(each, under_replicated or {}) for each in info.ledgers],
        "cursors": {name: _cursor(each, info) for name, each in cursors.items()},
        "properties": dict(info.properties),
    }


@dataclass(frozen=True, slots=True)
class Stored:
    """The version and times of a node in the metadata. A store that keeps no times has None."""

    version: Version
    created_ms: int | None = None
    modified_ms: int | None = None


def internal_info(
    info: StreamInfo, stored: Stored, cursors: Mapping[str, tuple[CursorInfo, Stored]], *, now_ms: int
) -> Json:
    """Returns what a broker answers to ``internal-info``: the metadata, an open ledger with the time of now."""
    fields = _stored(stored)
    fields["ledgers"] = [_ledger_info(each, now_ms) for each in info.ledgers]
    if info.terminated is not None:
        fields["terminatedPosition"] = _position(info.terminated)
    fields["cursors"] = {name: _cursor_info(each, node) for name, (each, node) in cursors.items()}
    if info.properties:
        fields["properties"] = dict(info.properties)
    return fields


def iso_time(time_ms: int) -> str:
    """Returns a time as Java writes it: without the zeros at the end of a second's fraction."""
    written = (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return written.rstrip("0").rstrip(".") + "Z"


def entries_between(info: StreamInfo, after: Position, to: Position) -> int:
    """Returns how many entries there are after one position and up to another one, which counts."""
    if after >= to:
        return 0
    if after.ledger == to.ledger:
        return to.entry - after.entry
    count = to.entry + 1
    for each in info.ledgers:
        if after.ledger <= each.ledger < to.ledger:
            count += each.entries
            if each.ledger == after.ledger:
                count -= after.entry + 1
    return count


def _ledger(ledger: StreamLedger, under_replicated: Mapping[LedgerId, bool]) -> Json:
    fields: Json = {
        "ledgerId": ledger.ledger,
        "entries": ledger.entries,
        "size": ledger.size,
        "offloaded": ledger.is_offloaded,
    }
    if ledger.ledger in under_replicated:
        fields["underReplicated"] = under_replicated[ledger.ledger]
    if ledger.properties:
        fields["properties"] = dict(ledger.properties)
    return fields


def _cursor(cursor: CursorCounts, info: StreamInfo) -> Json:
    ranges = ",".join(f"({each.after.of_entry}..{each.to.of_entry}]" for each in cursor.acked)
    return {
        "markDeletePosition": str(cursor.mark.of_entry),
        "readPosition": str(cursor.read.of_entry),
        "waitingReadOp": cursor.is_waiting,
        "pendingReadOps": cursor.pending_reads,
        "messagesConsumedCounter": cursor.consumed,
        "cursorLedger": cursor.ledger,
        "cursorLedgerLastEntry": cursor.last_entry,
        "individuallyDeletedMessages": f"[{ranges}]",
        "lastLedgerSwitchTimestamp": iso_time(cursor.switched_ms),
        "state": cursor.ledger_state.value,
        "active": cursor.is_active,
        "numberOfEntriesSinceFirstNotAckedMessage": entries_between(info, cursor.mark, cursor.read),
        "totalNonContiguousDeletedMessagesRange": len(cursor.acked),
        "subscriptionHavePendingRead": cursor.is_waiting or cursor.pending_reads > 0,
        "subscriptionHavePendingReplayRead": False,  # what was not acknowledged is read again as everything else is
        "properties": dict(cursor.properties),
    }


def _stored(stored: Stored) -> Json:
    fields: Json = {"version": stored.version}
    if stored.created_ms is not None:
        fields["creationDate"] = iso_time(stored.created_ms)
    if stored.modified_ms is not None:
        fields["modificationDate"] = iso_time(stored.modified_ms)
    return fields


def _ledger_info(ledger: StreamLedger, now_ms: int) -> Json:
    fields: Json = {"ledgerId": ledger.ledger}
    if ledger.has_counts:
        fields |= {"entries": ledger.entries, "size": ledger.size}
    return fields | {"timestamp": ledger.timestamp_ms or now_ms, "isOffloaded": ledger.is_offloaded}


def _cursor_info(info: CursorInfo, stored: Stored) -> Json:
    fields = _stored(stored) | {"cursorsLedgerId": info.ledger}
    if info.state is not None:
        fields["markDelete"] = _position(info.state.mark)
        if info.state.acked:
            fields["individualDeletedMessages"] = [
                {"from": _position(each.after), "to": _position(each.to)} for each in info.state.acked
            ]
        if info.state.properties:
            fields["properties"] = dict(info.state.properties)
    return fields


def _position(position: Position) -> Json:
    return {"ledgerId": position.ledger, "entryId": position.entry}
