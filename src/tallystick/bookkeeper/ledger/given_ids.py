"""Entries whose ids the caller gives, in any order: what is before a gap goes on its way, the rest waits.

::

    append 2 ──▶ Hold        append 0 ──▶ Release(0, 0)        append 1 ──▶ Release(1, 2)

What is released is appended as any entry is, in id order: ensemble changes, acks and recovery know nothing of it. An
entry behind a gap could be confirmed by nobody, and recovery would end before it; it is not sent (the original's
``LedgerHandleAdv`` sends it), so that the length in each entry's header is that of the ledger up to there.

The lowest missing id is always let in. Those behind a gap are held up to a bound on bytes; beyond it one more is
refused, not kept waiting: who waits could be the one that was to fill the gap.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import EntryId

HELD_BYTES = 512  # that a held entry costs beside its payload


class Refusal(enum.Enum):
    """Why an entry is not taken."""

    EXISTS = "an entry with this id was appended before"
    FULL = "too many bytes wait for the entries before them"


@dataclass(frozen=True)
class Release:
    """Append the entries ``first`` … ``last`` now: the one that just came, and held ones."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True)
class Hold:
    """Keep the entry: one before it is missing."""


@dataclass(frozen=True)
class Refuse:
    """Do nothing with the entry."""

    reason: Refusal


class GivenIdsCore:
    """Decide what becomes of each entry. ``lowest_missing`` is the first id that nobody appended."""

    def __init__(self, lowest_missing: EntryId, max_held_bytes: int) -> None:
        self.lowest_missing = lowest_missing
        self.held_bytes = 0
        self._max_held_bytes = max_held_bytes
        self._held: dict[EntryId, int] = {}  # their sizes

    def appended(self, entry: EntryId, size: int) -> Release | Hold | Refuse:
        """The caller gives an entry of ``size`` payload bytes."""
        if entry < self.lowest_missing or entry in self._held:
            return Refuse(Refusal.EXISTS)
        if entry > self.lowest_missing:
            if self.held_bytes >= self._max_held_bytes:
                return Refuse(Refusal.FULL)
            self._held[entry] = size + HELD_BYTES
            self.held_bytes += size + HELD_BYTES
            return Hold()
        last = entry
        while (held := self._held.pop(last + 1, None)) is not None:
            self.held_bytes -= held
            last += 1
        self.lowest_missing = last + 1
        return Release(entry, last)
