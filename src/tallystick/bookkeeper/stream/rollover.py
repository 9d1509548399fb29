"""When a stream goes on to its next ledger, and what becomes of entries that were sent to the one before (Q18, Q19).

::

    OPENED ──full, old, asked──▶ ENDING ──▶ MAKING ──▶ LISTING ──▶ OPENED
       └──writer failed, stalled─▲  │          every step is tried again while the metadata or bookies are away;
                                    │          appends wait so long, and fail after ``patience_s``: IDLE, until the
                                    ▼          next append, which goes on with the step at which it stood
                                 LOOKING ──▶ MAKING, FENCED

A ledger whose writer failed is closed at its LAC first; only when that is stored does anybody know which entries are in
it, and those that are not go to the next ledger, in order, each once. Where another client fenced the ledger there is
another owner, as a rule. But a repairer fences, too: while lease and list are ours and the ledger is closed, it counts
as closed by us, once in a while.

Follows ``ManagedLedgerImpl`` (``ledgerClosed``, ``createComplete``) with these departures: a failed ledger is closed
before anything is sent on, so that nothing is stored twice, and nothing fails for a service that comes back in time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import EntryId, LedgerId

GRACE_S = 30.0  # a ledger that somebody else closed is taken for closed by a repairer once in so long
REPAIR_S = 10.0  # and a repairer has so long from its fence to that
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0  # between two attempts


class Phase(enum.Enum):
    OPENED = "a ledger takes entries"
    ENDING = "it is being closed"
    LOOKING = "somebody fenced it: who?"
    MAKING = "the next one is made"
    LISTING = "and listed"
    FENCED = "there is another owner"
    ENDED = "the last one is closed"


class Failure(enum.Enum):
    """Why a step failed."""

    FENCED = "another client recovers or closed the ledger, or changed the list"
    AWAY = "the metadata service or bookies are away"
    REFUSED = "it cannot be done"


class LedgerLook(enum.Enum):
    """What the metadata says of a ledger that somebody fenced, while lease and list are ours."""

    OPEN = "nobody has ended it yet"  # or recovers it
    CLOSED = "it is closed"
    NOT_OURS = "lease or list are another owner's, or the ledger is gone"


_STATES = {
    Phase.OPENED: "LedgerOpened",
    Phase.ENDING: "ClosingLedger",
    Phase.LOOKING: "ClosingLedger",
    Phase.MAKING: "CreatingLedger",
    Phase.LISTING: "CreatingLedger",
    Phase.FENCED: "Fenced",
    Phase.ENDED: "Closed",
}

# Actions.


@dataclass(frozen=True, slots=True)
class EndLedger:
    """Close the writer. Then: ``ended``, ``not_ended``."""

    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class Look:
    """See who fenced the ledger. Then: ``looked``, ``not_looked``."""

    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class Settle:
    """The ledger has the entries up to this one for good; what was sent behind it waits for the next ledger."""

    ledger: LedgerId
    last: EntryId
    length: int


@dataclass(frozen=True, slots=True)
class MakeLedger:
    """Make the next ledger. Then: ``made``, ``not_made``."""


@dataclass(frozen=True, slots=True)
class ListLedger:
    """Store the end of the ledger before it and this one in the list. Then: ``listed``, ``not_listed``."""

    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class Open:
    """The ledger takes entries from now on."""

    ledger: LedgerId


@dataclass(frozen=True, slots=True)
class Wait:
    """Then: ``waited``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail all appends. Those that were sent may be stored, those that wait are not. ``is_fenced``: for good."""

    is_fenced: bool


Action = EndLedger | Look | Settle | MakeLedger | ListLedger | Open | Wait | GiveUp


@dataclass(frozen=True, slots=True)
class Limits:
    """When a ledger is full, and how long appends wait for one."""

    max_entries: int
    max_bytes: int
    max_age_s: float
    patience_s: float


class RollOverCore:
    """See the module. ``ledger`` was made and listed by the owner just now, or (``is_open`` False) is the last one of a
    stream that takes no more."""

    __slots__ = (
        "_barren_since",
        "_barren_wait_s",
        "_began_at",
        "_fenced_at",
        "_has_failed",
        "_is_final",
        "_is_hurried",
        "_is_idle",
        "_is_lost",
        "_is_stalled",
        "_limits",
        "_next",
        "_repaired_at",
        "_wait_s",
        "entries",
        "ledger",
        "opened_at",
        "phase",
        "size",
    )

    def __init__(self, limits: Limits, ledger: LedgerId, now: float, *, is_open: bool = True) -> None:
        self._limits, self.ledger = limits, ledger
        self.phase = Phase.OPENED if is_open else Phase.ENDED
        self.entries = self.size = 0  # that were sent to the ledger
        self.opened_at = now
        self._began_at = 0.0  # what is under way
        self._wait_s = FIRST_WAIT_S
        self._next: LedgerId | None = None  # made, not listed
        self._is_idle = False  # nothing is tried until the next append
        self._has_failed = False  # the writer of the ledger that ends
        self._barren_since: float | None = None  # each ledger since then failed with nothing stored
        self._barren_wait_s = FIRST_WAIT_S
        self._is_final = not is_open  # there is no next ledger
        self._is_hurried = False
        self._is_lost = False  # the lease is another owner's
        self._is_stalled = False  # the ledger that ends stored nothing for as long as appends wait
        self._fenced_at: float | None = None
        self._repaired_at: float | None = None

    @property
    def state(self) -> str:
        """Pulsar's name of the state."""
        return "ClosedLedger" if self._is_idle else _STATES[self.phase]

    @property
    def is_open(self) -> bool:
        """Whether entries can be sent."""
        return self.phase is Phase.OPENED

    @property
    def can_stall(self) -> bool:
        """Whether a ledger may have entries under way, and nobody said yet that nothing comes of them."""
        return self.phase in (Phase.OPENED, Phase.ENDING) and not self._is_stalled

    @property
    def room(self) -> int:
        """How many entries the ledger still takes."""
        return self._limits.max_entries - self.entries

    @property
    def room_bytes(self) -> int:
        """With how many bytes it is full; the entry that reaches this still goes to it."""
        return self._limits.max_bytes - self.size

    @property
    def due_at(self) -> float:
        """When the ledger is too old."""
        return self.opened_at + self._limits.max_age_s

    # -- of the open ledger -------------------------------------------------------------------------------------------

    def sent(self, count: int, size: int, now: float) -> list[Action]:
        """Entries went to the open ledger."""
        self.entries += count
        self.size += size
        return self._begin(now) if self.room <= 0 or self.room_bytes <= 0 or now >= self.due_at else []

    def aged(self, now: float) -> list[Action]:
        """The time may have come. An empty ledger is never rolled."""
        return self._begin(now) if self.is_open and self.entries and now >= self.due_at else []

    def asked(self, now: float) -> list[Action]:
        """Somebody wants the next ledger. That is no ledger if this one is empty."""
        return self._begin(now) if self.is_open and self.entries else []

    def failed(self, failure: Failure, now: float) -> list[Action]:
        """The writer of the open ledger takes no more entries."""
        if self.phase is Phase.FENCED:
            return self._fenced()
        if not self.is_open:
            return []  # it is being closed, which finds that
        if failure is not Failure.FENCED:
            self._has_failed = True
            return self._begin(now)
        self._began_at = now
        return self._look(now)

    def stalled(self) -> None:
        """Nothing that was sent is stored for as long as appends wait. Next: end the writer, which then ``failed``."""
        assert self.can_stall
        self._is_stalled = True

    def hurried(self) -> None:
        """The handle is about to be closed: nothing is tried a second time any more."""
        self._is_hurried = True

    def stopped(self, now: float) -> list[Action]:
        """The handle is closed or the stream terminated: end the ledger, and make no other."""
        self._is_final = True
        if self.is_open:
            return self._begin(now)
        if self.phase in (Phase.FENCED, Phase.ENDED):
            return []
        return self._resume(now)

    def lost(self) -> list[Action]:
        """The lease is another owner's. An end that is being stored is waited for: it settles what was sent."""
        self._is_lost = True
        return self._fenced() if self.is_open or self._is_idle else []

    def appended(self, now: float) -> list[Action]:
        """Somebody appends while no ledger is open: go on if nothing is tried any more."""
        if self.phase is Phase.FENCED:
            return self._fenced()
        return self._resume(now) if self._is_idle else []

    def _resume(self, now: float) -> list[Action]:
        self._is_idle, self._began_at, self._wait_s = False, now, FIRST_WAIT_S
        self._is_stalled = False
        return self._step()

    def _begin(self, now: float) -> list[Action]:
        self._began_at, self._wait_s, self.phase = now, FIRST_WAIT_S, Phase.ENDING
        return self._step()

    def _step(self) -> list[Action]:
        """Returns what the phase is about."""
        if self.phase is Phase.ENDING:
            return [EndLedger(self.ledger)]
        if self.phase is Phase.LOOKING:
            return [Look(self.ledger)]
        if self._is_lost:
            return self._fenced()
        if self.phase is Phase.LISTING:
            assert self._next is not None
            return [ListLedger(self._next)]
        assert self.phase is Phase.MAKING
        if self._is_final:
            self.phase = Phase.ENDED
            return []
        return [MakeLedger()]

    # -- its end ------------------------------------------------------------------------------------------------------

    def ended(self, last: EntryId, length: int, now: float) -> list[Action]:
        """The ledger is closed with this end."""
        self._wait_s, self._fenced_at = FIRST_WAIT_S, None
        self.phase = Phase.MAKING
        return [Settle(self.ledger, last, length), *self._after_end(last, now)]

    def _after_end(self, last: EntryId, now: float) -> list[Action]:
        """Make the next ledger; later, where one after another fails with nothing stored; and at last none."""
        is_barren, self._has_failed = self._has_failed and last < 0, False
        is_stalled, self._is_stalled = self._is_stalled and last + 1 < self.entries, False
        if self._is_final or self._is_lost:
            self._barren_since = None
            return self._step()
        if is_stalled:
            self._barren_since, self._is_idle = None, True
            return [GiveUp(is_fenced=False)]
        if not is_barren:
            self._barren_since = None
            return self._step()
        if self._barren_since is None:
            self._barren_since, self._barren_wait_s = self._began_at, FIRST_WAIT_S
            return self._step()
        if self._is_hurried or now - self._barren_since >= self._limits.patience_s:
            self._barren_since, self._is_idle = None, True
            return [GiveUp(is_fenced=False)]
        wait_s = self._barren_wait_s
        self._barren_wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        return [Wait(wait_s)]

    def not_ended(self, failure: Failure, now: float) -> list[Action]:
        return self._look(now) if failure is Failure.FENCED else self._again(failure, now)

    def _look(self, now: float) -> list[Action]:
        self.phase, self._wait_s = Phase.LOOKING, FIRST_WAIT_S
        if self._fenced_at is None:
            self._fenced_at = now
        return self._step()

    def looked(self, look: LedgerLook, last: EntryId, length: int, now: float) -> list[Action]:
        """``last`` and ``length`` count where it is CLOSED."""
        assert self._fenced_at is not None
        if look is LedgerLook.CLOSED and (self._repaired_at is None or now - self._repaired_at >= GRACE_S):
            self._repaired_at = now
            return self.ended(last, length, now)
        if look is LedgerLook.OPEN and now - self._fenced_at < REPAIR_S and not self._is_hurried:
            return self._wait()
        return self._fenced()

    def not_looked(self, failure: Failure, now: float) -> list[Action]:
        return self._again(failure, now)

    # -- the next one -------------------------------------------------------------------------------------------------

    def made(self, ledger: LedgerId, now: float) -> list[Action]:
        self._next, self._wait_s, self.phase = ledger, FIRST_WAIT_S, Phase.LISTING
        return self._step()

    def not_made(self, failure: Failure, now: float) -> list[Action]:
        return self._again(failure, now)

    def listed(self, now: float) -> list[Action]:
        assert self._next is not None
        self.ledger, self._next = self._next, None
        self.entries = self.size = 0
        self.opened_at, self.phase = now, Phase.OPENED
        opened: list[Action] = [Open(self.ledger)]
        return [*opened, *self._begin(now)] if self._is_final else opened

    def not_listed(self, failure: Failure, now: float) -> list[Action]:
        return self._fenced() if failure is Failure.FENCED else self._again(failure, now)

    # -- attempts -----------------------------------------------------------------------------------------------------

    def waited(self) -> list[Action]:
        return self._step()

    def _wait(self) -> list[Action]:
        wait = Wait(self._wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        return [wait]

    def _again(self, failure: Failure, now: float) -> list[Action]:
        """Try the step again later, unless there is no hope, or appends have waited for long enough."""
        has_time = not self._is_stalled and now - self._began_at < self._limits.patience_s
        if failure is Failure.AWAY and not self._is_hurried and has_time:
            return self._wait()
        self._is_idle = True
        return [GiveUp(is_fenced=False)]

    def _fenced(self) -> list[Action]:
        self.phase, self._is_idle = Phase.FENCED, False
        return [GiveUp(is_fenced=True)]
