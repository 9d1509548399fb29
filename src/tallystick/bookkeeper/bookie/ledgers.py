"""The ledgers of a bookie: key, fence, identity, and which were deleted. They decide who may add (Q11, Q12).

``state.py`` has the part that the ``state`` file stores.

A ledger is ``unmade`` if the look behind its first add found no metadata of it, and nothing was added since. Its client
never made it, as honest ones do first: anybody can invent such ids (``garbage.py``). Only the look behind what has just
come says that, and the journal has it, too: later, in metadata that was restored from an older copy, a look does not
find honest ledgers either. The number of unmade ledgers is bounded, together with those that no look has found yet,
because it is not done, could not be made, or a crash came first. Beyond the bound a ledger that is unknown here is
looked at before its first add, be that entry 0 or recovery's.
"""

from __future__ import annotations

import hmac
import sys
from array import array
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.explicit_lacs import ExplicitLacs
from tallystick.bookkeeper.bookie.given_up import GivenUpLedgers
from tallystick.bookkeeper.bookie.limbo import LimboLedgers
from tallystick.bookkeeper.bookie.log_index import Piece
from tallystick.bookkeeper.bookie.places import ONLY, Places
from tallystick.bookkeeper.bookie.state import UNKNOWN, DeletedLedger, LedgerIdentity, LedgerRecord, State
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.pages import PAGE_BITS, PAGE_SLOTS
from tallystick.codec.steps import Steps


@dataclass(slots=True)
class Ledger:
    """A ledger that is stored here."""

    key: bytes = field(repr=False)
    born: int
    fenced: bool = False
    creation: Creation = UNKNOWN
    unmade: bool = False
    era: int = 0  # of ``Ledgers``: what the next three say is of looks in it; read them behind ``Ledgers.looked_at``
    is_written: bool = False  # by its metadata, at which somebody looked since the start
    is_compared: bool = False  # its creation, since the start: this is the ledger of that id
    was_compared: bool = False  # the same, whether or not an entry 0 came since, which anybody can send
    is_claimed: bool = False  # an entry 0 with another key came since: of the next ledger of that id, or of a stranger
    fence_commit: int = 0  # the journal commit with the fence
    last: EntryId = NO_ENTRY  # the highest entry stored
    pages: index.Pages = field(default_factory=index.Pages, repr=False)  # of entries in entry logs


def holds(alive: Mapping[LedgerId, Ledger], ledger: LedgerId, log_id: int) -> bool:
    """Return whether a log's entries of this ledger belong to the ledger that exists now."""
    held_ledger = alive.get(ledger)
    return held_ledger is not None and held_ledger.born <= log_id


class Ledgers:
    """The ledgers that this bookie has, and the ones it had."""

    def __init__(self, state: State, places: Places | None = None) -> None:
        self.next_log, self.anchor = state.next_log, state.anchor
        self.places = places or Places(state.places, journals=1, is_single=True)
        self.limbo_era = state.layout.limbo_era  # before a journal is replayed
        # Beside each ledger what the state file has of it, so that a checkpoint need not look at each of them.
        self._records = dict(state.ledgers)
        records = ((ledger, LedgerRecord.of(packed)) for ledger, packed in self._records.items())
        self.alive = {ledger: Ledger(r.key, r.born, r.fenced, r.creation, r.unmade) for ledger, r in records}
        for ledger in self.alive:
            if self.places.find(ledger) is None:
                self.places.put(ledger, ONLY)
        self._era = 0  # all looks and comparisons before it count no longer
        self.without_entries = len(self.alive)  # ledgers that are fenced and of which no entry is stored
        self.most_unmade = sys.maxsize  # settable
        self._unmade = sum(held_ledger.unmade for held_ledger in self.alive.values())
        self.deleted = dict(state.deleted)
        self.given_up = GivenUpLedgers(state.given_up)
        self.explicit_lacs = ExplicitLacs(state.explicit_lacs)
        self.limbo = LimboLedgers(state.limbo)
        for ledger, deleted in self.deleted.items():
            if deleted.was_ahead:  # a state of before TALLYST4 has them here alone
                self.given_up.add(ledger, deleted.creation)
        self._leaving: set[LedgerId] = set()  # deleted, but a loss of power would bring them back
        self.ahead: set[LedgerId] = set()  # newer than the metadata
        self._new: set[LedgerId] = set()  # added to since the start, and in no metadata yet: looks are behind them
        # The same, but nobody could look, or they are older than this process.
        self._missed = {
            each
            for each, held_ledger in self.alive.items()
            if held_ledger.creation == UNKNOWN and not held_ledger.unmade
        }
        self._last_commits: dict[LedgerId, int] = {}  # of deleted ledgers: those that the journal may still have

    def admit(self, ledger: LedgerId, key: bytes, now_ms: int, *, recovery: bool = False) -> Code:
        """Return OK if entries may be added. An unknown ledger is known from now on, by this key (Q11)."""
        held_ledger = self.alive.get(ledger)
        if held_ledger is None:
            if ledger < 0:
                return Code.BAD_REQUEST
            if ledger in self.deleted:
                # A writer that outlived its ledger must not bring it back to life: its entries would be acknowledged
                # into a ledger that no metadata names.
                self.touch(ledger, now_ms)
                return Code.FENCED
            self.create(ledger, key)
            return Code.OK
        if not hmac.compare_digest(held_ledger.key, key):
            return Code.UNAUTHORIZED
        if held_ledger.unmade:
            self.added_to(ledger, held_ledger)
        return Code.FENCED if held_ledger.fenced and not recovery else Code.OK

    def fence(self, ledger: LedgerId, key: bytes, now_ms: int) -> Code:
        """Refuse ordinary adds from now on, also to a ledger that was unknown."""
        code = self.admit(ledger, key, now_ms, recovery=True)
        if code == Code.OK:
            held_ledger = self.alive[ledger]
            if not held_ledger.fenced:
                held_ledger.fenced = True
                self._pack(ledger, held_ledger)
        return self.absent(ledger) if code == Code.FENCED else code

    def knows(self, ledger: LedgerId, key: bytes) -> Code:
        """Return OK if the ledger is stored here and this is its key."""
        held_ledger = self.alive.get(ledger)
        if held_ledger is None:
            return self.absent(ledger)
        return Code.OK if hmac.compare_digest(held_ledger.key, key) else Code.UNAUTHORIZED

    def absent(self, ledger: LedgerId) -> Code:
        """Return the code for a ledger that is not here: NO_LEDGER is believed (Q15), so a deletion must be durable."""
        return Code.IO_ERROR if ledger in self._leaving else Code.NO_LEDGER

    def were_looked_at(self, ledgers: Collection[LedgerId]) -> bool:
        """Return True if ``needs_look`` is False for all of these, as for ledgers that are written all the time."""
        if self.limbo.has_any(ledgers):
            return False
        alive, era = self.alive, self._era
        for ledger in ledgers:
            held_ledger = alive.get(ledger)
            if held_ledger is None or not held_ledger.is_written or held_ledger.era != era:
                return False
        return True

    def looked_at(self, ledger: LedgerId) -> Ledger | None:
        """Return a stored ledger with what looks say of it that count, None if it is not stored."""
        held_ledger = self.alive.get(ledger)
        if held_ledger is not None and held_ledger.era != self._era:
            held_ledger.era = self._era
            held_ledger.is_written = held_ledger.is_compared = held_ledger.was_compared = False
        return held_ledger

    def needs_look(self, ledger: LedgerId, entry: EntryId, key: bytes) -> bool:
        """Return whether an ordinary add must wait for a look at the metadata; one that is refused anyway need not.

        Entry 0 of a ledger that has entries may be the first one of another ledger with this id: no earlier look counts
        then. With another key it counts for those without a key and with the old one: who knows that of neither ledger
        makes no reader wait.
        """
        held_ledger = self.looked_at(ledger)
        if held_ledger is None:
            return self._had(ledger) or (ledger >= 0 and (entry > 0 or self.is_one_too_many(ledger)))
        if entry == 0 and held_ledger.last >= 0 and held_ledger.creation != UNKNOWN:
            held_ledger.is_written = False
            if hmac.compare_digest(held_ledger.key, key):
                held_ledger.is_compared = False
            else:
                held_ledger.is_claimed = True
        return not held_ledger.is_written and (not held_ledger.fenced or self.needs_comparison(ledger, key))

    def is_one_too_many(self, ledger: LedgerId) -> bool:
        """Return whether the ledger is unknown here, and the bound of ledgers without metadata is reached."""
        is_full = self._unmade + len(self._new) + len(self._missed) >= self.most_unmade
        return is_full and ledger not in self.alive and ledger not in self.deleted

    def needs_comparison(self, ledger: LedgerId, key: bytes | None = None) -> bool:
        """Return whether fences and recovery's adds, with a ``key``, and reads of the ledger's end must wait for a look
        that proves which ledger of that id it is."""
        held_ledger = self.looked_at(ledger)
        if held_ledger is None:
            return self._had(ledger)
        if not self._may_be_another(ledger, held_ledger):
            return False
        is_claim = held_ledger.is_claimed and key is not None and not hmac.compare_digest(held_ledger.key, key)
        return is_claim or not held_ledger.is_compared

    def is_in_doubt(self, ledger: LedgerId) -> bool:
        """Return whether what is or was stored here may be another ledger of that id: none compared since the
        start."""
        held_ledger = self.looked_at(ledger)
        if held_ledger is None:
            return self._had(ledger)
        return self._may_be_another(ledger, held_ledger) and not held_ledger.was_compared

    def may_hold_anothers(self, ledger: LedgerId) -> bool:
        """Return whether entries are stored here that may be those of another ledger of that id: ``is_in_doubt``, and
        there is something to read."""
        held_ledger = self.looked_at(ledger)
        return held_ledger is not None and not held_ledger.was_compared and self._may_be_another(ledger, held_ledger)

    def _had(self, ledger: LedgerId) -> bool:
        """Return whether an id of which nothing is stored is known to have had a ledger here."""
        return ledger in self.deleted or ledger in self.given_up

    def _may_be_another(self, ledger: LedgerId, held_ledger: Ledger) -> bool:
        return held_ledger.creation != UNKNOWN or ledger in self.given_up

    def identity(self, ledger: LedgerId) -> LedgerIdentity | None:
        if (held_ledger := self.alive.get(ledger)) is not None:
            return LedgerIdentity(held_ledger.creation, False, ledger in self.ahead)
        deleted = self.deleted.get(ledger)
        return None if deleted is None else LedgerIdentity(deleted.creation, True, deleted.was_ahead)

    def look_again(self) -> None:
        """Let no earlier look or comparison count any longer; at once, however many ledgers there are."""
        self._era += 1
        self.missed_looks()

    def lacks(self, ledger: LedgerId) -> bool:
        """A look found no metadata of a stored ledger. Returns whether the ledger becomes ``unmade`` by that."""
        if ledger not in self._new:
            return False
        self._mark(ledger, self.alive[ledger], unmade=True)
        self._new.remove(ledger)
        return True

    def added_to(self, ledger: LedgerId, held_ledger: Ledger) -> None:
        """An ``unmade`` ledger was added to: the look behind that decides anew whether it is."""
        if held_ledger.unmade:
            self._mark(ledger, held_ledger, unmade=False)
            self._new.add(ledger)

    def _mark(self, ledger: LedgerId, held_ledger: Ledger, *, unmade: bool) -> None:
        self._unmade += unmade - held_ledger.unmade
        held_ledger.unmade = unmade
        self._pack(ledger, held_ledger)

    def missed_looks(self) -> None:
        """Ledgers that came till now do not become ``unmade`` by a later look; they count until one finds them."""
        self._missed |= self._new
        self._new.clear()

    def anchored(self, anchor: Creation) -> Steps[bool]:
        """Return whether the stored creations are of the metadata in which the bookie's cookie has this one; they are
        forgotten if not. Until the last step they count as of the metadata before, as if nobody had noticed yet."""
        before = self.anchor
        if anchor == before:
            return True
        self.missed_looks()
        for count, ledger in enumerate(list(self.alive), 1):
            if (held_ledger := self.alive.get(ledger)) is not None:
                held_ledger.is_written = held_ledger.is_compared = held_ledger.was_compared = False
                if held_ledger.creation != UNKNOWN:
                    self.set_creation(ledger, UNKNOWN)
            if not count % STEP_LEDGERS:
                yield
                if self.anchor != before:  # somebody else came to the end, and what was noted since counts
                    return False
        for count, ledger in enumerate(list(self.deleted), 1):
            if (deleted := self.deleted.get(ledger)) is not None:
                self.deleted[ledger] = DeletedLedger(deleted.accessed_ms)
            if not count % STEP_LEDGERS:
                yield
                if self.anchor != before:
                    return False
        self.anchor, self.ahead, self.given_up = anchor, set(), GivenUpLedgers({})
        return False

    def touch(self, ledger: LedgerId, now_ms: int) -> None:
        """A request named a ledger that is not stored: a deleted one is remembered for longer."""
        if (deleted := self.deleted.pop(ledger, None)) is not None:
            self.deleted[ledger] = deleted._replace(accessed_ms=now_ms)  # as the last one

    def create(self, ledger: LedgerId, key: bytes) -> Ledger:
        held_ledger = self.alive[ledger] = Ledger(key, self.next_log)
        self.without_entries += 1
        self._new.add(ledger)
        self.places.create(ledger)
        self._pack(ledger, held_ledger)
        return held_ledger

    def extend(self, held_ledger: Ledger, last: EntryId) -> None:
        """Entries up to ``last`` are stored."""
        self.without_entries -= held_ledger.last < 0 <= last
        held_ledger.last = max(held_ledger.last, last)

    def set_creation(self, ledger: LedgerId, creation: Creation) -> None:
        """Note the creation of a stored ledger."""
        held_ledger = self.alive[ledger]
        held_ledger.creation = creation
        self._forget_look(ledger)
        self._mark(ledger, held_ledger, unmade=False)

    def _forget_look(self, ledger: LedgerId) -> None:
        """The ledger needs no look behind its first add any longer."""
        self._new.discard(ledger)
        self._missed.discard(ledger)

    def _pack(self, ledger: LedgerId, held_ledger: Ledger) -> None:
        self._records[ledger] = LedgerRecord(
            held_ledger.key, held_ledger.born, held_ledger.fenced, held_ledger.creation, held_ledger.unmade
        ).packed(ledger)

    def delete(self, ledger: LedgerId, now_ms: int, commit: int) -> None:
        """Forget a ledger but for its identity. Up to ``commit`` the journal may have adds to it."""
        held_ledger = self.alive.pop(ledger)
        self.without_entries -= held_ledger.last < 0
        self._unmade -= held_ledger.unmade
        self._forget_look(ledger)
        self.explicit_lacs.forget(ledger)
        self.places.forget(ledger)
        del self._records[ledger]
        self.deleted[ledger] = DeletedLedger(now_ms, held_ledger.creation, ledger in self.ahead)
        if ledger in self.ahead:
            self.given_up.add(ledger, held_ledger.creation)
        self._last_commits[ledger] = commit
        self._leaving.add(ledger)

    def empty(self, ledger: LedgerId) -> None:
        """Forget the entries of a fenced ledger, none of which is in memory; its key, fence and creation stay."""
        held_ledger = self.alive[ledger]
        assert held_ledger.fenced, "a writer that outlived the ledger would be let in"
        self.without_entries += held_ledger.last >= 0
        held_ledger.born, held_ledger.last, held_ledger.pages = self.next_log, NO_ENTRY, index.Pages()
        self.explicit_lacs.forget(ledger)
        self._pack(ledger, held_ledger)

    def skipped(self, ledger: LedgerId, commit: int) -> bool:
        """Return whether a replay skips adds and fences of this ledger in this commit: it was deleted afterwards."""
        if ledger not in self.deleted:
            return False
        self._last_commits[ledger] = commit
        return True

    def lose(self, folders: Iterable[int], journals: Iterable[int]) -> None:
        """What these folders and journals had is gone: ledgers that are recorded as theirs are in limbo."""
        for folder in folders:
            for ledger in list(self.places.in_folder(folder)):
                self.limbo.enter((ledger,))
                self.places.put(ledger, self.places.of(ledger).left(folder))
        for journal in journals:
            self.limbo.enter(self.alive if self.places.is_single else self.places.in_journal(journal))

    def drop(self, ledger: LedgerId, logs: Container[int], in_memory: EntryId) -> None:
        """Forget where entries are in these logs; ``in_memory`` is the highest that is in no log yet."""
        if (held_ledger := self.alive.get(ledger)) is not None:
            index.drop(held_ledger.pages, logs)
            before, held_ledger.last = held_ledger.last, max(in_memory, index.highest(held_ledger.pages))
            self.without_entries += held_ledger.last < 0 <= before

    def replayed(self, number: int) -> None:
        """All journals were replayed; ``number`` is that of a commit behind all of theirs."""
        self.places.replayed_journal = None
        self._last_commits = dict.fromkeys(self._last_commits, number)
        self.missed_looks()

    def enter(self, log_id: int, pieces: Iterable[Piece]) -> None:
        """Put a log's entries into the index. Logs come by ascending id: the newest version of an entry wins."""
        for piece in pieces:
            if holds(self.alive, piece.ledger, log_id):
                held_ledger = self.alive[piece.ledger]
                index.put(held_ledger.pages, piece.page, piece.slot, piece.locations)
                self.extend(held_ledger, index.last_of(piece.page, piece.slot, piece.locations))

    def move(self, log_id: int, pieces: Iterable[Piece], sources: Container[int]) -> Steps[None]:
        """Put entries that were copied out of the ``sources`` into the index, in steps: but for those that are no
        longer where they were, because a newer version came, or the ledger was deleted."""
        count = 0
        for piece in pieces:
            if not holds(self.alive, piece.ledger, log_id):
                continue
            pages, first = self.alive[piece.ledger].pages, (piece.page << PAGE_BITS) + piece.slot
            moved = array("Q", [
                location if index.get(pages, entry) >> index.OFFSET_BITS in sources else 0
                for entry, location in enumerate(piece.locations, first)
            ])  # fmt: skip
            if any(moved):
                index.put(pages, piece.page, piece.slot, moved)
            count += len(moved)
            if count >= PAGE_SLOTS:
                count = 0
                yield

    def records(self) -> dict[LedgerId, bytes]:
        """Copy the packed records for the state file."""
        return self._records.copy()

    def forgettable(self, others: Container[LedgerId], oldest_ms: int, most: int, mark: int) -> Steps[list[LedgerId]]:
        """Find, in steps, the deleted ledgers that nobody named since ``oldest_ms``, and those beyond ``most``; without
        ``others``, which are forgotten anyway.

        Of more than ``most`` those go first whose metadata nobody ever saw: anybody can invent and fence them.
        """
        old, invented, made = list[LedgerId](), list[LedgerId](), list[LedgerId]()
        for count, ledger in enumerate(list(self.deleted), 1):  # the one that was asked for last is the last one
            if ledger not in others and self.is_forgettable(ledger, mark):
                deleted = self.deleted[ledger]
                same = old if deleted.accessed_ms < oldest_ms else invented if deleted.creation == UNKNOWN else made
                same.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        over = len(invented) + len(made) - most
        return old + (invented + made)[: max(0, over)]

    def is_forgettable(self, ledger: LedgerId, mark: int) -> bool:
        """Return whether a deleted ledger may be forgotten: a replay from ``mark`` would find no adds to it, which
        would come back in a new ledger with this id."""
        return ledger in self.deleted and self._last_commits.get(ledger, 0) <= mark

    def forget_deleted(self, forgotten: Iterable[LedgerId]) -> Steps[None]:
        """Forget these deleted ledgers; the durable state has none of them, nor one of all that were deleted alive."""
        self._leaving.clear()
        for count, ledger in enumerate(forgotten, 1):
            self.deleted.pop(ledger, None)
            self._last_commits.pop(ledger, None)
            if not count % STEP_LEDGERS:
                yield
