"""What a bookie knows about whole ledgers: key, fence, and which were deleted. Decides who may add (Q11, Q12).

What of it the ``state`` file has is in ``state.py``.

``unmade``: the look behind the ledger's first add found no metadata of it, and nothing was added since. Its client
never made it, as honest ones do first: anybody can invent such ids (``garbage.py``). Only the look behind what has just
come says that, in the journal, too: later, in metadata that was restored from an older copy, honest ledgers are not
found either. There are so many of them, and of those that no look has found yet, as it is not done, could not be made,
or a crash came before it: beyond that a ledger that is unknown here is looked at before its first add, also entry 0 and
recovery's.
"""

from __future__ import annotations

import hmac
import sys
from collections.abc import Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import index
from tallystick.bookkeeper.bookie.given_up import GivenUp
from tallystick.bookkeeper.bookie.log_index import Piece
from tallystick.bookkeeper.bookie.state import UNKNOWN, DeletedLedger, LedgerIdentity, LedgerRecord, State
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId

STEP_LEDGERS = 1000  # of which so many are looked through, or deleted, at once: a millisecond or two


@dataclass(slots=True)
class Ledger:
    key: bytes = field(repr=False)
    born: int
    fenced: bool = False
    creation: Creation = UNKNOWN
    unmade: bool = False
    looked: bool = False  # at its metadata, in this life of the process: it is written
    compared: bool = False  # its creation, in this life of the process: this is the ledger of that id
    was_compared: bool = False  # the same, whether or not an entry 0 came since, which anybody can send
    fence_commit: int = 0  # the journal commit with the fence
    last: EntryId = NO_ENTRY  # the highest entry stored
    pages: index.Pages = field(default_factory=index.Pages, repr=False)  # of entries in entry logs


def holds(alive: Mapping[LedgerId, Ledger], ledger: LedgerId, log_id: int) -> bool:
    """Whether a log's entries of this ledger belong to the ledger that exists now."""
    found = alive.get(ledger)
    return found is not None and found.born <= log_id


class Ledgers:
    """The ledgers that this bookie has, and the ones it had."""

    def __init__(self, state: State) -> None:
        self.next_log, self.anchor = state.next_log, state.anchor
        # Beside each ledger what the state file has of it, so that a checkpoint need not look at each of them.
        self._records = dict(state.ledgers)
        records = ((ledger, LedgerRecord.of(packed)) for ledger, packed in self._records.items())
        self.alive = {ledger: Ledger(r.key, r.born, r.fenced, r.creation, r.unmade) for ledger, r in records}
        self.without_entries = len(self.alive)  # those of which no entry is stored: fenced, and no more
        self.most_unmade = sys.maxsize  # settable
        self._unmade = sum(found.unmade for found in self.alive.values())
        self.deleted = dict(state.deleted)
        self.given_up = GivenUp(state.given_up)
        for ledger, gone in self.deleted.items():
            if gone.was_ahead:  # a state of before has them here alone
                self.given_up.add(ledger, gone.creation)
        self._leaving: set[LedgerId] = set()  # deleted, but a loss of power would bring them back
        self.ahead: set[LedgerId] = set()  # newer than the metadata
        self._new: set[LedgerId] = set()  # added to in this life, and in no metadata yet: looks are behind them
        # The same, but nobody could look, or they are from an earlier life.
        self._missed = {each for each, found in self.alive.items() if found.creation == UNKNOWN and not found.unmade}
        self._last_commits: dict[LedgerId, int] = {}  # of deleted ledgers: those that the journal may still have

    def admit(self, ledger: LedgerId, key: bytes, now_ms: int, *, recovery: bool = False) -> Code:
        """May entries be added? Knows the ledger from now on if it did not, by this key (Q11)."""
        found = self.alive.get(ledger)
        if found is None:
            if ledger < 0:
                return Code.BAD_REQUEST
            if ledger in self.deleted:
                # A writer that outlived its ledger must not bring it back to life: its entries would be acknowledged
                # into a ledger that no metadata names.
                self.touch(ledger, now_ms)
                return Code.FENCED
            self.create(ledger, key)
            return Code.OK
        if not hmac.compare_digest(found.key, key):
            return Code.UNAUTHORIZED
        if found.unmade:
            self.added_to(ledger, found)
        return Code.FENCED if found.fenced and not recovery else Code.OK

    def fence(self, ledger: LedgerId, key: bytes, now_ms: int) -> Code:
        """Refuse ordinary adds from now on, also to a ledger not heard of before."""
        code = self.admit(ledger, key, now_ms, recovery=True)
        if code == Code.OK:
            found = self.alive[ledger]
            if not found.fenced:
                found.fenced = True
                self._pack(ledger, found)
        return self.absent(ledger) if code == Code.FENCED else code

    def absent(self, ledger: LedgerId) -> Code:
        """The answer for a ledger that is not alive: NO_LEDGER is believed (Q15), so its deletion must be durable."""
        return Code.IO_ERROR if ledger in self._leaving else Code.NO_LEDGER

    def were_looked_at(self, ledgers: Iterable[LedgerId]) -> bool:
        """Whether ``needs_look`` is False for all, of ledgers that are written all the time."""
        alive = self.alive
        return all((found := alive.get(ledger)) is not None and found.looked for ledger in ledgers)

    def needs_look(self, ledger: LedgerId, entry: EntryId) -> bool:
        """Whether an ordinary add must wait for a look at the metadata; not where it is refused in any case.

        Entry 0 of a ledger that has entries may be the first one of another ledger with this id: what was looked at
        counts no more.
        """
        found = self.alive.get(ledger)
        if found is None:
            return self._had(ledger) or (ledger >= 0 and (entry > 0 or self.is_one_too_many(ledger)))
        if entry == 0 and found.last >= 0 and found.creation != UNKNOWN:
            found.looked = found.compared = False
        return not found.looked and (not found.fenced or self.needs_comparison(ledger))

    def is_one_too_many(self, ledger: LedgerId) -> bool:
        """Whether it is unknown here, and so many are that the metadata does not have, as far as anybody looked."""
        is_full = self._unmade + len(self._new) + len(self._missed) >= self.most_unmade
        return is_full and ledger not in self.alive and ledger not in self.deleted

    def needs_comparison(self, ledger: LedgerId) -> bool:
        """Whether fences, recovery's adds, and reads that ask how far a ledger goes must wait until it is known that
        the ledger here is the one of that id."""
        found = self.alive.get(ledger)
        return self._had(ledger) if found is None else self._may_be_another(ledger, found) and not found.compared

    def is_in_doubt(self, ledger: LedgerId) -> bool:
        """Whether what is stored here, or was, may be another ledger of that id: in this life of the process nobody
        compared."""
        found = self.alive.get(ledger)
        if found is None:
            return self._had(ledger)
        return self._may_be_another(ledger, found) and not found.was_compared

    def _had(self, ledger: LedgerId) -> bool:
        """Whether it is known, of an id of which nothing is stored, that something was."""
        return ledger in self.deleted or ledger in self.given_up

    def _may_be_another(self, ledger: LedgerId, found: Ledger) -> bool:
        return found.creation != UNKNOWN or ledger in self.given_up

    def identity(self, ledger: LedgerId) -> LedgerIdentity | None:
        if (held_ledger := self.alive.get(ledger)) is not None:
            return LedgerIdentity(held_ledger.creation, False, ledger in self.ahead)
        deleted = self.deleted.get(ledger)
        return None if deleted is None else LedgerIdentity(deleted.creation, True, deleted.was_ahead)

    def look_again(self) -> None:
        """What was looked at counts no more."""
        for found in self.alive.values():
            found.looked = found.compared = found.was_compared = False
        self.missed_looks()

    def lacks(self, ledger: LedgerId) -> bool:
        """A look found no metadata of a ledger that is here. Returns whether it is ``unmade`` now, and was not."""
        if ledger not in self._new:
            return False
        self._mark(ledger, self.alive[ledger], unmade=True)
        self._new.remove(ledger)
        return True

    def added_to(self, ledger: LedgerId, found: Ledger) -> None:
        """Who knows whether it is ``unmade`` still? What comes now is looked at anew."""
        if found.unmade:
            self._mark(ledger, found, unmade=False)
            self._new.add(ledger)

    def _mark(self, ledger: LedgerId, found: Ledger, *, unmade: bool) -> None:
        self._unmade += unmade - found.unmade
        found.unmade = unmade
        self._pack(ledger, found)

    def missed_looks(self) -> None:
        """What has come till now is not ``unmade`` if a later look finds none of it. It counts until one does."""
        self._missed |= self._new
        self._new.clear()

    def anchored(self, anchor: Creation) -> bool:
        """Whether the creations that are kept are of the metadata in which the bookie's cookie has this one. They are
        forgotten if not."""
        if anchor == self.anchor:
            return True
        self.anchor, self.ahead = anchor, set()
        self.missed_looks()
        for ledger, found in self.alive.items():
            found.looked = found.compared = found.was_compared = False
            if found.creation != UNKNOWN:
                self.set_creation(ledger, UNKNOWN)
        self.deleted = {ledger: DeletedLedger(each.accessed_ms) for ledger, each in self.deleted.items()}
        self.given_up = GivenUp({})
        return False

    def touch(self, ledger: LedgerId, now_ms: int) -> None:
        """Somebody asked for a ledger that is not here: a deleted one is remembered for longer."""
        if (gone := self.deleted.pop(ledger, None)) is not None:
            self.deleted[ledger] = gone._replace(accessed_ms=now_ms)  # as the last one

    def create(self, ledger: LedgerId, key: bytes) -> Ledger:
        found = self.alive[ledger] = Ledger(key, self.next_log)
        self.without_entries += 1
        self._new.add(ledger)
        self._pack(ledger, found)
        return found

    def extend(self, found: Ledger, last: EntryId) -> None:
        """Entries up to ``last`` are stored of a ledger that is here."""
        self.without_entries -= found.last < 0 <= last
        found.last = max(found.last, last)

    def set_creation(self, ledger: LedgerId, creation: Creation) -> None:
        """Of a ledger that is here."""
        found = self.alive[ledger]
        found.creation = creation
        self._forget_look(ledger)
        self._mark(ledger, found, unmade=False)

    def _forget_look(self, ledger: LedgerId) -> None:
        """Nobody has to find out any more whether the metadata has it."""
        self._new.discard(ledger)
        self._missed.discard(ledger)

    def _pack(self, ledger: LedgerId, found: Ledger) -> None:
        self._records[ledger] = LedgerRecord(found.key, found.born, found.fenced, found.creation, found.unmade).packed(
            ledger
        )

    def delete(self, ledger: LedgerId, now_ms: int, commit: int) -> None:
        """Forget a ledger but for its id, and which one it was. Up to ``commit`` the journal may have adds to it."""
        found = self.alive.pop(ledger)
        self.without_entries -= found.last < 0
        self._unmade -= found.unmade
        self._forget_look(ledger)
        del self._records[ledger]
        self.deleted[ledger] = DeletedLedger(now_ms, found.creation, ledger in self.ahead)
        if ledger in self.ahead:
            self.given_up.add(ledger, found.creation)
        self._last_commits[ledger] = commit
        self._leaving.add(ledger)

    def skipped(self, ledger: LedgerId, commit: int) -> bool:
        """Whether a ledger was deleted after this commit of the journal, which has adds to it or its fence, was
        written: a replay skips them."""
        if ledger not in self.deleted:
            return False
        self._last_commits[ledger] = commit
        return True

    def enter(self, log_id: int, pieces: Iterable[Piece]) -> None:
        """Put a log's entries into the index. Logs come by ascending id: the newest version of an entry wins."""
        for piece in pieces:
            if holds(self.alive, piece.ledger, log_id):
                found = self.alive[piece.ledger]
                index.put(found.pages, piece.page, piece.slot, piece.locations)
                self.extend(found, index.last_of(piece.page, piece.slot, piece.locations))

    def records(self) -> dict[LedgerId, bytes]:
        """For the state file, packed; a copy."""
        return self._records.copy()

    def forgettable(
        self, others: Container[LedgerId], oldest_ms: int, most: int, mark: int
    ) -> Generator[None, None, list[LedgerId]]:  # fmt: skip
        """In steps: the deleted ledgers that nobody asked for since ``oldest_ms``, and those beyond ``most``; without
        ``others``, which are forgotten anyway.

        Of more than ``most`` those go first whose metadata nobody ever saw: anybody can invent and fence them.
        """
        old, invented, made = list[LedgerId](), list[LedgerId](), list[LedgerId]()
        for count, ledger in enumerate(list(self.deleted), 1):  # the one that was asked for last is the last one
            if ledger not in others and self.is_forgettable(ledger, mark):
                gone = self.deleted[ledger]
                same = old if gone.accessed_ms < oldest_ms else invented if gone.creation == UNKNOWN else made
                same.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        over = len(invented) + len(made) - most
        return old + (invented + made)[: max(0, over)]

    def is_forgettable(self, ledger: LedgerId, mark: int) -> bool:
        """Whether a ledger is remembered as deleted, and a replay from ``mark`` would find no adds to it, which would
        come back in a new ledger with this id."""
        return ledger in self.deleted and self._last_commits.get(ledger, 0) <= mark

    def remember_deleted(self, remembered: Container[LedgerId]) -> None:
        """Forget the other deleted ledgers; a state that lacks all of them alive is durable."""
        self._leaving.clear()
        for ledger in [ledger for ledger in self.deleted if ledger not in remembered]:
            del self.deleted[ledger]
            self._last_commits.pop(ledger, None)
