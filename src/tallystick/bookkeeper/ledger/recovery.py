"""The core by which a client that is not the writer finds the end of a ledger and closes it (Q10 to Q16).

::

    FENCING ── no write set can reach Qa any more (Q12) ──▶ READING ── Qf said "no such entry" (Q15) ──▶ WRITING
       │                                                      │ each entry found is written back (Q14)     │ confirmed
       │ all have responded, and one still can                │ no YES, and too many UNKNOWN for a NO      ▼
       └──────────▶ FAILED ◀──────────────────────────────────┴──── a write-back failed ──────  [MEASURING ─▶] CLOSING

Metadata is IN_RECOVERY before ``begin``. UNKNOWN is never counted as NO, nor is REFUSED: as the response to a fence it
is final, as that of one bookie among others that read or store it is an UNKNOWN. Recovery reads go to the ensemble as
it was when recovery began, never to the one that its own write-backs change; those changes are fragments in memory,
which only the closing compare-and-set stores (a recovery that dies leaves no trace in the metadata).

Follows the original's ``LedgerRecoveryOp`` and ``ReadLastConfirmedOp``, with these differences: replicas are asked all
at once, so that one that hangs costs no time; several entries are read ahead, and decided in order; a LAC response with
a bad digest is UNKNOWN; the length of a ledger without entries past the LAC is read from its last entry instead of
taken from whatever entry carried the LAC.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from tallystick.bookkeeper.ledger import add
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, Ensemble, EntryId, Fragment, LedgerMetadata, Slot

READ_AHEAD = 32


class ReplicaResponse(enum.Enum):
    """What one bookie's response says of an entry, or of its last entry when it is fenced."""

    YES = "yes"
    NO = "no"  # "no such entry" or "no such ledger", said explicitly
    UNKNOWN = "unknown"  # an error, a time-out, bytes that do not match their digest
    REFUSED = "refused"  # the bookie knows the ledger with another password


class Phase(enum.Enum):
    """Where a recovery is."""

    FENCING = "fencing"
    READING = "reading"
    WRITING = "writing back"
    MEASURING = "measuring"
    CLOSING = "closing"
    FAILED = "failed"


@dataclass(frozen=True)
class FenceSlot:
    """Ask the slot's bookie for its last entry, with the fence flag; then call fenced."""

    slot: Slot


@dataclass(frozen=True)
class ReadEntry:
    """Ask the slot's bookie of the ensemble as recovery began for an entry, with the fence flag; then call answered."""

    slot: Slot
    entry: EntryId


@dataclass(frozen=True)
class Measure:
    """Read the header of this entry, without a fence, for the ledger's length up to it; then call measured."""

    entry: EntryId


@dataclass(frozen=True)
class CloseLedger:
    """Store the end by compare-and-set; ``fragments`` are the recovery's own, to add to the stored ones."""

    last_entry: EntryId
    length: int
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class Abandon:
    """Recovery cannot be certain, or cannot write back: nothing may be closed. ``entry`` is where it stopped."""

    reason: str
    entry: EntryId
    unauthorized: bool = False  # the password is wrong: trying again is useless


@dataclass(frozen=True)
class Explain:
    """A decision and what it rests on, for the event log."""

    kind: str
    fields: dict[str, Any]


Action = (
    FenceSlot | ReadEntry | Measure | CloseLedger | Abandon | Explain
    | add.Send | add.Resend | add.Replace | add.Suspend | add.Resume | add.Confirm
)  # fmt: skip


class RecoveryCore:
    """Decide where a ledger ends. ``metadata`` is what was stored when recovery began, state IN_RECOVERY."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        read_ahead: int = READ_AHEAD,
        *,
        lac: EntryId = NO_ENTRY,
        no_needed: int | None = None,
    ) -> None:
        """``lac``: what is known of it already. ``no_needed``: how many must say that an entry does not exist, if more
        than prove that it was never acknowledged."""
        self.striping = Striping.of(metadata)
        self.ensemble = metadata.ensemble
        self.phase = Phase.FENCING
        self.start: EntryId = max(metadata.last_entry, metadata.fragments[-1].first - 1)  # all up to it are committed
        self.start = max(self.start, lac)
        self._no_needed = no_needed or self.striping.no_quorum
        self._base = metadata
        self._fragments: list[Fragment] = []
        self._read_ahead = read_ahead
        self._fences: dict[Slot, ReplicaResponse] = {}
        self._lengths: dict[EntryId, int] = {}  # of the ledger up to and with this entry
        self._responses: dict[EntryId, dict[Slot, ReplicaResponse]] = {}
        self._head: EntryId = 0  # the next entry to decide
        self._next_read: EntryId = 0  # the next entry to ask for
        self._writes = add.AddCore(self.striping, self.ensemble)
        self._failures: set[Code | None] = set()  # codes of failed write-backs

    @property
    def lac(self) -> EntryId:
        """The LAC that written-back entries carry: where recovery started, however much is written back by now.

        What is confirmed since then may be on bookies that only this recovery knows of. A rival that learned it as a
        LAC would not write it back, and would close the ledger with too few copies where the metadata says (P7). The
        original's write-backs carry the moving LAC.
        """
        return self.start

    @property
    def write_ensemble(self) -> Ensemble:
        """Where write-backs go: the ensemble with this recovery's own changes."""
        return self._writes.ensemble

    def begin(self) -> list[Action]:
        return [FenceSlot(slot) for slot in range(self.striping.ensemble_size)]

    def fenced(
        self, slot: Slot, response: ReplicaResponse, *, lac: EntryId = -1, entry: EntryId = -1, length: int = 0
    ) -> list[Action]:
        """A bookie is fenced. YES: with LAC, id and ledger length of the header of its last entry. NO: it has none."""
        if self.phase is not Phase.FENCING or slot in self._fences:
            return []
        self._fences[slot] = response
        if response is ReplicaResponse.REFUSED:
            return self._abandon("the password is wrong", unauthorized=True)
        if response is ReplicaResponse.YES:
            self.start = max(self.start, lac)
            self._lengths[entry] = length
        certain_slots = [slot for slot, response in self._fences.items() if response is not ReplicaResponse.UNKNOWN]
        if self.striping.covered(certain_slots):
            return self._start_reading()
        if len(self._fences) == self.striping.ensemble_size:
            note = Explain("fence does not cover every write set", {"answers": self._text_of(self._fences)})
            return [note, *self._abandon("too few bookies confirmed the fence")]
        return []

    def answered(self, slot: Slot, entry: EntryId, response: ReplicaResponse, length: int = 0) -> list[Action]:
        """The response to a ReadEntry came; YES: with the ledger length in the entry's header."""
        if self.phase is not Phase.READING:
            return []
        responses = self._responses.setdefault(entry, {})
        if slot in responses:
            return []
        responses[slot] = response
        if response is ReplicaResponse.YES:
            self._lengths[entry] = length
        return self._decide()

    def measured(self, length: int | None) -> list[Action]:
        """The response to Measure came; None if no bookie has the entry: the highest known length must do."""
        if self.phase is not Phase.MEASURING:
            return []
        notes = list[Action]()
        if length is None:
            length = max((end for entry, end in self._lengths.items() if entry <= self.start), default=0)
            notes = [Explain("length is a lower bound", {"entry": self.start, "length": length})]
        self._lengths[self.start] = length
        return [*notes, *self._close_when_written()]

    def acked(self, slot: Slot, first: EntryId, last: EntryId) -> list[Action]:
        """Write-backs were stored; see AddCore.acked."""
        return [] if self._is_over else self._after_write_backs(self._writes.acked(slot, first, last))

    def failed(self, slot: Slot, entry: EntryId, code: Code | None = None) -> list[Action]:
        """A write-back failed; see AddCore.failed. The fence took the password: a refusal is the bookie's own."""
        if self._is_over:
            return []
        self._failures.add(code)
        return self._after_write_backs(self._writes.failed(slot, entry, None if code == Code.UNAUTHORIZED else code))

    def ensemble_changed(self, ensemble: Ensemble) -> list[Action]:
        """Write-backs go to ``ensemble`` from the first unconfirmed entry on. Nothing is stored before the close."""
        if self._is_over:
            return []
        first = self._writes.lac + 1
        last = self._fragments[-1] if self._fragments else self._base.fragments[-1]
        assert last.first <= first
        if self._fragments and last.first == first:
            self._fragments.pop()
        self._fragments.append(Fragment(first, ensemble))
        return self._after_write_backs(self._writes.ensemble_changed(ensemble))

    def no_replacement(self) -> list[Action]:
        """There was no bookie to replace the failed ones with: the others must do, as for a degraded writer."""
        return [] if self._is_over else self._after_write_backs(self._writes.no_replacement())

    @property
    def _is_over(self) -> bool:
        return self.phase in (Phase.CLOSING, Phase.FAILED)

    def _start_reading(self) -> list[Action]:
        self.phase = Phase.READING
        self._head = self._next_read = self.start + 1
        self._writes = add.AddCore(self.striping, self.ensemble, lac=self.start)
        because = {"answers": self._text_of(self._fences), "lac": self.start}
        return [Explain("fence covers every write set", because), *self._read_on()]

    def _read_on(self) -> list[Action]:
        """Return the next reads: of one entry at first, as most ledgers end right after the LAC, then of more."""
        ahead = min(self._read_ahead, max(1, 2 * (self._head - self.start - 1)))
        first, self._next_read = self._next_read, max(self._next_read, self._head + ahead)
        return [
            ReadEntry(slot, entry) for entry in range(first, self._next_read) for slot in self.striping.slots(entry)
        ]

    def _decide(self) -> list[Action]:
        first, actions = self._head, list[Action]()
        while (verdict := self._verdict(self._head)) is ReplicaResponse.YES:
            del self._responses[self._head]
            self._head += 1
        if self._head > first:
            actions += self._after_write_backs(self._writes.append(self._head - first))
        if verdict is ReplicaResponse.NO:
            return [*actions, *self._end()]
        if verdict is ReplicaResponse.UNKNOWN:
            note = Explain("entry undecided", self._why(self._head))
            unauthorized = set(self._responses[self._head].values()) == {ReplicaResponse.REFUSED}
            reason = "the password is wrong" if unauthorized else "too few bookies gave a certain answer"
            return [*actions, note, *self._abandon(reason, unauthorized=unauthorized)]
        return [*actions, *self._read_on()] if self._head > first else actions

    def _verdict(self, entry: EntryId) -> ReplicaResponse | None:
        """Judge an entry: one YES suffices, Qf NO end the ledger, and anything else is UNKNOWN (Q14, Q15).

        Returns None while responses are outstanding that may decide it.
        """
        responses = list(self._responses.get(entry, {}).values())
        if ReplicaResponse.YES in responses:
            return ReplicaResponse.YES
        if responses.count(ReplicaResponse.NO) >= self._no_needed:
            return ReplicaResponse.NO
        return ReplicaResponse.UNKNOWN if len(responses) == self.striping.write_quorum else None

    def _end(self) -> list[Action]:
        note = Explain("end found", self._why(self._head))
        self._responses.clear()  # entries found beyond the gap are dropped
        self.phase = Phase.WRITING
        end = self._head - 1
        if end >= 0 and end not in self._lengths:  # then it is the start: every entry found has told its length
            self.phase = Phase.MEASURING
            return [note, Measure(end)]
        return [note, *self._close_when_written()]

    def _after_write_backs(self, actions: list[add.Action]) -> list[Action]:
        others = [action for action in actions if not isinstance(action, add.Fail)]
        # Nobody waits here for a quorum: whoever tries again later does.
        if len(others) < len(actions) or self._writes.starved:
            unauthorized = self._failures == {Code.UNAUTHORIZED}
            return [*others, *self._abandon("an entry could not be written back", unauthorized=unauthorized)]
        return [*others, *(self._close_when_written() if self.phase is Phase.WRITING else [])]

    def _close_when_written(self) -> list[Action]:
        end = self._head - 1
        if self._writes.lac < end:
            return []
        self.phase = Phase.CLOSING
        return [CloseLedger(end, self._lengths.get(end, 0), tuple(self._fragments))]

    def _why(self, entry: EntryId) -> dict[str, Any]:
        recovered_count = entry - self.start - 1  # from the start on, and all written back
        return {
            "entry": entry,
            "found": recovered_count,
            "answers": self._text_of(self._responses[entry]),
            "no_needed": self._no_needed,
        }

    def _text_of(self, responses: dict[Slot, ReplicaResponse]) -> str:
        return " ".join(f"{self.ensemble[slot]}:{response.value}" for slot, response in responses.items())

    def _abandon(self, reason: str, *, unauthorized: bool = False) -> list[Action]:
        entry = self.start + 1 if self.phase is Phase.FENCING else self._head
        self.phase = Phase.FAILED
        return [Abandon(reason, entry, unauthorized)]
