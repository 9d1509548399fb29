"""The nouns of streams (Pulsar's managed ledgers): positions, the list of ledgers, what a cursor has acknowledged.

A stream is a list of ledgers; an entry's *position* is its ledger and its id there. Where an entry is a batch of
messages, each message has the entry's position and an index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Self

from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.errors import UsageError

NO_LEDGER: LedgerId = -1  # where a ledger would be named: there is none
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})

_POSITION = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(\d{1,9}))?", re.ASCII)


class Position(NamedTuple):
    """Where an entry is, or (``batch_index``) one message of an entry. Positions are ordered as they were appended.

    ``batch_index`` is -1 for a whole entry, which comes before the messages in it.
    """

    ledger: LedgerId
    entry: EntryId
    batch_index: int = -1

    @property
    def of_entry(self) -> Position:
        """Returns the position of the whole entry."""
        return Position(self.ledger, self.entry)

    @classmethod
    def parse(cls, written: str) -> Self:
        """Returns the position that is written ``ledger:entry`` or ``ledger:entry:index``. Raises UsageError."""
        match = _POSITION.fullmatch(written) if isinstance(written, str) else None
        if match is None:
            raise UsageError("a position is written ledger:entry, or ledger:entry:index in a batch", given=written)
        ledger, entry, index = match.groups()
        return cls(int(ledger), int(entry), -1 if index is None else int(index))

    def __str__(self) -> str:
        inner = "" if self.batch_index < 0 else f":{self.batch_index}"
        return f"{self.ledger}:{self.entry}{inner}"


EARLIEST = Position(NO_LEDGER, NO_ENTRY)


class StreamLedger(NamedTuple):
    """One ledger of a stream's list (LedgerInfo). ``timestamp_ms`` is when it was closed, 0 while it is open; an open
    one shows no entries and no size."""

    ledger: LedgerId
    entries: int = 0
    size: int = 0
    timestamp_ms: int = 0
    has_counts: bool = True  # entries and size are stored; an open one's are absent
    offload: bytes = b""  # an OffloadContext as it is stored: Pulsar's, kept as it is
    is_offloaded: bool = False
    properties: Mapping[str, str] = NO_PROPERTIES
    unknown: bytes = b""  # fields of a newer version, kept as they are

    @property
    def is_closed(self) -> bool:
        return self.timestamp_ms != 0


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What is stored of a stream (ManagedLedgerInfo): its ledgers, ids ascending. Empty for one that was just made."""

    ledgers: Sequence[StreamLedger] = ()  # a tuple, or a LedgerList if there are many
    terminated: Position | None = None  # the last position, once the stream takes no more
    properties: Mapping[str, str] = field(default_factory=lambda: NO_PROPERTIES)
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class AckedRange:
    """Entries acknowledged one by one behind the mark: those after ``after`` up to ``to``, which is one of them."""

    after: Position
    to: Position


@dataclass(frozen=True, slots=True)
class CursorState:
    """How far a cursor is (PositionInfo, one entry of a cursor ledger).

    All up to ``mark`` is acknowledged, and ``acked`` behind it. ``batches``: of an entry whose messages were
    acknowledged in part, the bitmap of those that are not yet (bit n of word n // 64 is message n).
    """

    mark: Position
    acked: tuple[AckedRange, ...] = ()
    batches: Mapping[Position, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    properties: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """What the znode of a cursor has (ManagedCursorInfo).

    ``ledger`` is its cursor ledger, whose last entry has the newer state; with -1 ``state`` is all there is, and it is
    None only where a cursor ledger has it.
    """

    ledger: LedgerId
    state: CursorState | None
    last_active_ms: int = 0
    properties: Mapping[str, str] = field(
        default_factory=lambda: NO_PROPERTIES
    )  # of the cursor itself (cursorProperties)
    unknown: bytes = b""
