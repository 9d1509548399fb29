"""When the entries of an open ledger are confirmed, and when its ensemble must change (Q4 to Q9).

::

    append ──▶ Send ──▶ acked ──▶ Confirm                      in id order, at Qa acks each
                  └───▶ failed ─▶ Replace ─▶ ensemble_changed ─▶ Resend, Confirm
                  └───▶ failed (fenced, wrong key) ─▶ Fail ◀── change_failed

The writer uses it for its appends, recovery for its write-backs. Bytes stay in the shell. Follows the original's
``PendingAddOp`` and ``LedgerHandle``, with these differences: all acks that a change makes void are withdrawn before
anything is confirmed, and a failed bookie is known by its place and attempt, not by its address.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, Ensemble, EntryId, Slot


class Reason(enum.Enum):
    """Why a ledger takes no more entries from this client."""

    FENCED = "another client recovers this ledger"
    UNAUTHORIZED = "a bookie knows this ledger with another password"
    NO_CHANGE = "the ensemble change failed"


@dataclass(frozen=True)
class Send:
    """Send each entry to its write set."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True)
class Resend:
    """Send the entries of the stripe of a slot that has a new bookie."""

    slot: Slot
    first: EntryId
    last: EntryId


@dataclass(frozen=True)
class Confirm:
    """All entries up to this one are safe (Q6)."""

    lac: EntryId


@dataclass(frozen=True)
class Replace:
    """Store an ensemble without these bookies from entry ``first`` on; then call ensemble_changed or change_failed."""

    failed: tuple[BookieId, ...]
    first: EntryId


@dataclass(frozen=True)
class Fail:
    """Entries ``first`` … ``last`` (none when last < first) will not be confirmed, and no more can be appended (Q9)."""

    first: EntryId
    last: EntryId
    reason: Reason


Action = Send | Resend | Confirm | Replace | Fail

# These codes mean that another bookie would not help; any other failure is the bookie's own (Q7).
UNRECOVERABLE: dict[int | None, Reason] = {Code.FENCED: Reason.FENCED, Code.UNAUTHORIZED: Reason.UNAUTHORIZED}


class AddCore:
    """Decide when the entries of one ledger are confirmed. Entries come in runs; slots are places in its ensemble."""

    def __init__(self, striping: Striping, ensemble: Ensemble, lac: EntryId = NO_ENTRY) -> None:
        self.striping, self.ensemble, self.lac = striping, ensemble, lac
        self.failure: Reason | None = None
        self._next: EntryId = lac + 1
        self._acked: list[EntryId] = [lac + 1] * len(ensemble)  # by slot: the first entry of its stripe not yet acked
        self._early: list[set[EntryId]] = [set() for _ in ensemble]  # acks beyond a gap: normally none
        self._failed: list[BookieId] = []
        self._changing = False  # a Replace is under way

    @property
    def next_entry(self) -> EntryId:
        """The id that the next appended entry gets."""
        return self._next

    def append(self, count: int) -> list[Action]:
        """``count`` entries follow the last one. Only before a failure."""
        assert self.failure is None
        first, self._next = self._next, self._next + count
        return [*self._replace(), Send(first, self._next - 1)]

    def acked(self, slot: Slot, first: EntryId, last: EntryId) -> list[Action]:
        """The slot's bookie of the newest attempt has stored all entries ``first`` … ``last`` of its stripe."""
        assert last < self._next
        if self.failure or last <= self.lac:  # what comes after the ack quorum changes nothing
            return []
        if self.striping.next(slot, first) <= self._watermark(slot):
            self._acked[slot] = max(self._acked[slot], last + 1)
        else:
            self._early[slot].update(e for e in range(first, last + 1) if self.striping.stores(slot, e))
        return self._confirm()

    def failed(self, slot: Slot, entry: EntryId, code: int | None = None) -> list[Action]:
        """The slot's bookie answered ``code``, or (None) has not answered in time or lost the connection."""
        if self.failure:
            return []
        if code in UNRECOVERABLE:
            return self._fail(UNRECOVERABLE[code])
        if self.ensemble[slot] not in self._failed:
            self._failed.append(self.ensemble[slot])
        # Past its ack quorum an entry can wait: the next append replaces the bookie (Q7).
        return self._replace() if self.lac < entry < self._next and not self._has_quorum(entry) else []

    def ensemble_changed(self, ensemble: Ensemble) -> list[Action]:
        """The metadata names ``ensemble`` from this LAC + 1 on."""
        if self.failure:
            return []
        changed = [slot for slot, bookie in enumerate(ensemble) if bookie != self.ensemble[slot]]
        for slot in changed:  # what a replaced bookie acked counts no more
            self._acked[slot], self._early[slot] = self.lac + 1, set()
        self.ensemble, self._changing = ensemble, False
        self._failed = [bookie for bookie in self._failed if bookie in ensemble]
        resends = [Resend(slot, self.lac + 1, self._next - 1) for slot in changed if self._next > self.lac + 1]
        return [*resends, *self._replace(), *self._confirm()]

    def change_failed(self, reason: Reason = Reason.NO_CHANGE) -> list[Action]:
        """The metadata could not be changed; it may or may not name the new ensemble, so nothing more is confirmed."""
        return [] if self.failure else self._fail(reason)

    def _fail(self, reason: Reason) -> list[Action]:
        self.failure = reason
        return [Fail(self.lac + 1, self._next - 1, reason)]

    def _confirm(self) -> list[Action]:
        # Nothing is confirmed during a change: the new fragment starts at this LAC + 1 (Q8).
        if self._changing:
            return []
        end = self._first_unconfirmed()
        while any(self._early) and end < self._next and self._has_quorum(end):
            end += 1
        if end == self.lac + 1:
            return []
        for early in self._early:
            early.difference_update(range(self.lac + 1, end))
        self.lac = end - 1
        return [Confirm(self.lac)]

    def _first_unconfirmed(self) -> EntryId:
        """By the watermarks alone: entries with the same first slot share a write set: E comparisons settle any run."""
        size, end = self.striping.ensemble_size, self._next
        acked = [self._watermark(slot) for slot in range(size)]
        for first_slot in range(size):
            marks = sorted((acked[slot] for slot in self.striping.slots(first_slot)), reverse=True)
            missing = max(marks[self.striping.ack_quorum - 1], self.lac + 1)
            if not self.striping.striped:  # all entries share this write set
                return min(end, missing)
            end = min(end, missing + (first_slot - missing) % size)
        return end

    def _watermark(self, slot: Slot) -> EntryId:
        mark = self.striping.next(slot, max(self._acked[slot], self.lac + 1))
        while mark in self._early[slot]:
            self._early[slot].discard(mark)
            mark = self.striping.next(slot, mark + 1)
        self._acked[slot] = mark
        return mark

    def _has_quorum(self, entry: EntryId) -> bool:
        acks = sum(self._acked[slot] > entry or entry in self._early[slot] for slot in self.striping.slots(entry))
        return acks >= self.striping.ack_quorum

    def _replace(self) -> list[Action]:
        if self._changing or not self._failed:
            return []
        self._changing = True
        return [Replace(tuple(self._failed), first=self.lac + 1)]
