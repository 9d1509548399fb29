"""Which of the ledgers with its id each one is that is stored here, and what looks at the metadata said of it.

See ``looks.py`` for when somebody looks, and what is refused until then; ``ledgers.py`` has what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.runtime.disk import Buffer


class LedgerIdentities:
    """Of a ``Storage``. ``stage`` makes a record durable with the next commit."""

    def __init__(self, ledgers: Ledgers, stage: Callable[[Buffer], None]) -> None:
        self._ledgers, self._stage = ledgers, stage

    def were_looked_at(self, ledgers: Iterable[LedgerId]) -> bool:
        """Whether no ordinary add to any of these needs a look; may be False though none does."""
        return self._ledgers.were_looked_at(ledgers)

    def needs_look(self, ledger: LedgerId, entry: EntryId) -> bool:
        """Whether an ordinary add must wait until somebody looked at the ledger's metadata."""
        return self._ledgers.needs_look(ledger, entry)

    def needs_comparison(self, ledger: LedgerId) -> bool:
        """Whether fences, recovery's adds, and reads of how far it goes must wait for a look, too."""
        return self._ledgers.needs_comparison(ledger)

    def is_one_too_many(self, ledger: LedgerId) -> bool:
        """Whether it is unknown here, and there are as many ledgers that the metadata does not have as there may be."""
        return self._ledgers.is_one_too_many(ledger)

    def bound_unmade(self, most: int) -> None:
        """So many ledgers that the metadata does not have are taken without a look."""
        self._ledgers.most_unmade = most

    def is_in_doubt(self, ledger: LedgerId) -> bool:
        """Whether nobody knows in this life of the process that what is stored here is the ledger of that id."""
        return self._ledgers.is_in_doubt(ledger)

    def needs_note(self, ledger: LedgerId) -> bool:
        """Whether nobody knows yet which of the ledgers with this id is stored here, and nobody looks."""
        found = self._ledgers.alive.get(ledger)
        return found is not None and found.creation == UNKNOWN and not found.looked

    def identity(self, ledger: LedgerId) -> LedgerIdentity | None:
        """What is known of an id; None: nothing."""
        return self._ledgers.identity(ledger)

    def given_up(self, ledger: LedgerId) -> Collection[Creation]:
        """The creations of all ledgers of an id that were given up as newer than the metadata."""
        return self._ledgers.given_up.of(ledger)

    def looked(self, ledger: LedgerId, creation: Creation, *, written: bool) -> None:
        """Its metadata has this creation (UNKNOWN: unreadable, or none), ``written`` or not. The next commit has it."""
        found = self._ledgers.alive.get(ledger)
        if found is None:
            return
        found.looked = written and (creation != UNKNOWN or not self._ledgers.is_in_doubt(ledger))
        if creation != UNKNOWN:
            found.compared = found.was_compared = True
            self.note(ledger, creation)
        elif not written and self._ledgers.lacks(ledger):
            self._stage(records.Noted(ledger, UNKNOWN).encode())

    def look_again(self) -> None:
        """What was looked at and compared counts no more."""
        self._ledgers.look_again()

    def note(self, ledger: LedgerId, creation: Creation) -> None:
        """What is stored of this id is the ledger with this creation, if none is kept. Durable with the next commit.
        Not one that was given up: that one's entries are not here."""
        found = self._ledgers.alive.get(ledger)
        if found is not None and found.creation == UNKNOWN and creation not in self.given_up(ledger):
            found.compared = found.was_compared = True
            self._ledgers.set_creation(ledger, creation)
            self._stage(records.Noted(ledger, creation).encode())

    def missed_looks(self) -> None:
        """For a while nobody looks at what is new here."""
        self._ledgers.missed_looks()

    def anchored(self, anchor: Creation) -> bool:
        """Whether creations mean what they meant: the bookie's cookie has this one. They are forgotten if not."""
        return self._ledgers.anchored(anchor)

    def creations(self) -> list[tuple[LedgerId, Creation]]:
        """Of the ledgers stored here; UNKNOWN is less than any other."""
        return [(number, found.creation) for number, found in self._ledgers.alive.items()]

    def set_ahead(self, ledgers: Collection[LedgerId]) -> None:
        """These, and no others, are newer than the metadata: no look makes them go. All looks are made again."""
        if self._ledgers.ahead != set(ledgers):
            self._ledgers.ahead = set(ledgers)
            self._ledgers.look_again()

    def is_missed(self, ledger: LedgerId) -> bool:
        """Whether it says something that the metadata lacks a ledger: it has entries, and somebody may have made it."""
        found = self._ledgers.alive.get(ledger)
        return found is not None and found.last != NO_ENTRY and not found.unmade
