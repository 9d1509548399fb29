"""The core that decides when entries of an open ledger are confirmed, and when its ensemble must change (Q4 to Q9).

::

    append ──▶ Send ──▶ acked ──▶ Confirm                      in id order, at Qa acks each
                  └───▶ failed ─▶ Replace ─▶ ensemble_changed ─▶ Resend, Confirm
                  │                  ├─────▶ no_replacement ─▶ Suspend, Confirm      degraded: goes on without it,
                  │                  └── retry ◀───┴─▶ resumed ─▶ Resume, Resend     until one can be had
                  └───▶ failed (fenced, wrong key) ─▶ Fail ◀── change_failed

The writer uses it for its appends, recovery for its write-backs. Bytes stay in the shell. Follows the original's
``PendingAddOp`` and ``LedgerHandle``, with these differences: all acks that a change makes void are withdrawn before
anything is confirmed, a failed bookie is known by its place and attempt, not by its address, and a ledger for which no
other bookie can be had is written *degraded*: what the metadata says stays, nothing is sent to the missing bookie, and
an entry still needs its Qa acks (the original's ``delayEnsembleChange``, which goes on sending).
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, Ensemble, EntryId, Slot


class Reason(enum.Enum):
    """Why a ledger takes no more entries from this client."""

    FENCED = "another client recovers this ledger"
    UNAUTHORIZED = "a bookie knows this ledger with another password, or does not let this user append"
    NO_CHANGE = "the ensemble change failed"
    NO_QUORUM = "the ack quorum could not be met for too long"
    TOO_LATE = "an entry had no ack quorum in time"
    NOT_SENT = "entries could not be sent"
    NOT_FORCED = "no force can make all entries durable"


@dataclass(frozen=True)
class Send:
    """Send each entry to its write set."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True)
class Resend:
    """Send the entries of the stripe of a slot that has a new bookie, or one that is back."""

    slot: Slot
    first: EntryId
    last: EntryId


@dataclass(frozen=True)
class Confirm:
    """All entries up to this one are safe (Q6)."""

    lac: EntryId


@dataclass(frozen=True)
class Replace:
    """Store an ensemble without these bookies from entry ``first`` on.

    Then call ensemble_changed, no_replacement (only when the metadata is certainly as it was) or change_failed.
    """

    failed_bookies: tuple[BookieId, ...]
    first: EntryId


@dataclass(frozen=True)
class Suspend:
    """Send nothing to this slot's bookie and hear nothing of it: it failed, and no other can be had."""

    slot: Slot


@dataclass(frozen=True)
class Resume:
    """Send to this slot's bookie again, as a new attempt."""

    slot: Slot


@dataclass(frozen=True)
class Fail:
    """Entries ``first`` … ``last`` (none when last < first) will not be confirmed, and no more can be appended (Q9)."""

    first: EntryId
    last: EntryId
    reason: Reason


Action = Send | Resend | Confirm | Replace | Suspend | Resume | Fail

# These codes mean that another bookie would not help; any other failure is the bookie's own (Q7).
UNRECOVERABLE: dict[Code | None, Reason] = {Code.FENCED: Reason.FENCED, Code.UNAUTHORIZED: Reason.UNAUTHORIZED}


class AddCore:
    """Decide when the entries of one ledger are confirmed. Entries come in runs; slots are places in its ensemble."""

    def __init__(
        self, striping: Striping, ensemble: Ensemble, lac: EntryId = NO_ENTRY, failed_bookies: tuple[BookieId, ...] = ()
    ) -> None:
        """``failed_bookies`` are those of the ensemble that the next append replaces, as the last core had them."""
        self.striping, self.ensemble, self.lac = striping, ensemble, lac
        self.failure: Reason | None = None
        self._next: EntryId = lac + 1
        self._acked: list[EntryId] = [lac + 1] * len(ensemble)  # by slot: the first entry of its stripe not yet acked
        self._early: dict[Slot, set[EntryId]] = {}  # acks beyond a gap: normally none
        self._failed_bookies = failed_bookies
        self._missing_bookies: tuple[BookieId, ...] = ()  # the first of the failed: nothing could replace them
        self._changing = False  # a Replace is under way

    @property
    def missing_bookies(self) -> tuple[BookieId, ...]:
        """The bookies that failed and that nothing could replace; while there are any, the ledger is degraded."""
        return self._missing_bookies

    @property
    def failed_bookies(self) -> tuple[BookieId, ...]:
        """The bookies of the ensemble that failed."""
        return self._failed_bookies

    @property
    def is_quiet(self) -> bool:
        """Whether all entries are confirmed and no bookie is missing: a core with the same ``failed_bookies`` goes on
        alike."""
        return self._next == self.lac + 1 and not (self._missing_bookies or self._changing or self.failure)

    @property
    def starved(self) -> bool:
        """Whether the oldest unconfirmed entry cannot reach its ack quorum without the missing bookies."""
        entry = self.lac + 1
        if not self._missing_bookies or entry == self._next:
            return False
        possible = sum(
            self._has(slot, entry) or self.ensemble[slot] not in self._missing_bookies
            for slot in self.striping.slots(entry)
        )
        return possible < self.striping.ack_quorum

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
            early = self._early.setdefault(slot, set())
            early.update(e for e in range(first, last + 1) if self.striping.stores(slot, e))
        return self._confirm()

    def failed(self, slot: Slot, entry: EntryId, code: Code | None = None) -> list[Action]:
        """The slot's bookie answered ``code``, or (None) has not answered in time or lost the connection."""
        if self.failure:
            return []
        if code in UNRECOVERABLE:
            return self._fail(UNRECOVERABLE[code])
        if self.ensemble[slot] not in self._failed_bookies:
            self._failed_bookies += (self.ensemble[slot],)
        # Past its ack quorum an entry can wait: the next append replaces the bookie (Q7).
        return self._replace() if self.lac < entry < self._next and not self._has_quorum(entry) else []

    def ensemble_changed(self, ensemble: Ensemble) -> list[Action]:
        """The metadata names ``ensemble`` from this LAC + 1 on."""
        if self.failure:
            return []
        changed_slots = [slot for slot, bookie in enumerate(ensemble) if bookie != self.ensemble[slot]]
        for slot in changed_slots:  # what a replaced bookie acked counts no more
            self._acked[slot] = self.lac + 1
            self._early.pop(slot, None)
        self.ensemble, self._changing = ensemble, False
        self._failed_bookies = tuple(bookie for bookie in self._failed_bookies if bookie in ensemble)
        self._missing_bookies = tuple(bookie for bookie in self._missing_bookies if bookie in ensemble)
        resends = [Resend(slot, self.lac + 1, self._next - 1) for slot in changed_slots if self._next > self.lac + 1]
        return [*resends, *self._replace(), *self._confirm()]

    def absent(self, bookies: Collection[BookieId]) -> list[Action]:
        """These bookies are gone for so long that the ledger would soon be ended for them: replace those of the
        ensemble now, though nothing is appended."""
        if self.failure:
            return []
        gone = dict.fromkeys(b for b in self.ensemble if b in bookies and b not in self._failed_bookies)
        self._failed_bookies += tuple(gone)
        return self._replace()

    def no_replacement(self) -> list[Action]:
        """No bookie can replace a failed one, and the metadata is as it was: the ledger goes on without them.

        Each entry has its Qa acks or is not confirmed, so this breaks no promise; acks of a missing bookie count, as it
        has those entries. Call ``retry`` or ``resumed`` when a bookie may be had.
        """
        if self.failure:
            return []
        newly_missing, self._missing_bookies, self._changing = (
            self._failed_bookies[len(self._missing_bookies) :],
            self._failed_bookies,
            False,
        )
        suspended = [Suspend(slot) for slot, bookie in enumerate(self.ensemble) if bookie in newly_missing]
        return [*suspended, *self._confirm()]

    def retry(self) -> list[Action]:
        """Another bookie may be had for the missing ones now."""
        if self.failure or self._changing or not self._missing_bookies:
            return []
        self._changing = True
        return [Replace(self._failed_bookies, first=self.lac + 1)]

    def resumed(self, bookie: BookieId) -> list[Action]:
        """A missing bookie answers again. It gets what is unconfirmed; what was confirmed meanwhile it lacks."""
        if self.failure or self._changing or bookie not in self._missing_bookies:
            return []
        self._missing_bookies = tuple(other for other in self._missing_bookies if other != bookie)
        self._failed_bookies = tuple(other for other in self._failed_bookies if other != bookie)
        slot = self.ensemble.index(bookie)
        resend = [Resend(slot, self.lac + 1, self._next - 1)] if self._next > self.lac + 1 else []
        return [Resume(slot), *resend]

    def change_failed(self, reason: Reason = Reason.NO_CHANGE) -> list[Action]:
        """The metadata may or may not name the new ensemble, or the quorum is gone: nothing more is confirmed."""
        return [] if self.failure else self._fail(reason)

    def _fail(self, reason: Reason) -> list[Action]:
        self.failure = reason
        return [Fail(self.lac + 1, self._next - 1, reason)]

    def _confirm(self) -> list[Action]:
        # Nothing is confirmed during a change: the new fragment starts at this LAC + 1 (Q8).
        if self._changing or not self._has_quorum(self.lac + 1):
            return []
        # One entry alone, as an idle ledger gets, is all there is.
        end = self._first_unconfirmed() if self._next > self.lac + 2 else self._next
        while self._early and end < self._next and self._has_quorum(end):
            end += 1
        if self._early:
            above = {slot: {entry for entry in early if entry >= end} for slot, early in self._early.items()}
            self._early = {slot: early for slot, early in above.items() if early}
        self.lac = end - 1
        return [Confirm(self.lac)]

    def _first_unconfirmed(self) -> EntryId:
        """Find it by the watermarks alone: entries with the same first slot share a write set, so E comparisons settle
        any run."""
        size, end = self.striping.ensemble_size, self._next
        acked = [self._watermark(slot) for slot in range(size)]
        for first_slot in range(size):
            marks = sorted((acked[slot] for slot in self.striping.slots(first_slot)), reverse=True)
            first_unacked = max(marks[self.striping.ack_quorum - 1], self.lac + 1)
            if not self.striping.striped:  # all entries share this write set
                return min(end, first_unacked)
            end = min(end, first_unacked + (first_slot - first_unacked) % size)
        return end

    def _watermark(self, slot: Slot) -> EntryId:
        mark = self.striping.next(slot, max(self._acked[slot], self.lac + 1))
        if early := self._early.get(slot):
            while mark in early:
                early.discard(mark)
                mark = self.striping.next(slot, mark + 1)
        self._acked[slot] = mark
        return mark

    def _has_quorum(self, entry: EntryId) -> bool:
        missing = self.striping.ack_quorum
        for slot in self.striping.slots(entry):
            missing -= self._has(slot, entry)
        return missing <= 0

    def _has(self, slot: Slot, entry: EntryId) -> bool:
        return self._acked[slot] > entry or entry in self._early.get(slot, ())

    def _replace(self) -> list[Action]:
        if self._changing or len(self._failed_bookies) == len(self._missing_bookies):  # nothing failed, or nothing new
            return []
        self._changing = True
        return [Replace(self._failed_bookies, first=self.lac + 1)]
