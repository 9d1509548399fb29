"""The identity of each stored ledger: which of those that have or had its id it is, as looks at the metadata said.

``look.py`` says when the bookie looks, and what is refused until then; ``ledgers.py`` stores the identities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tallystick.bookkeeper.bookie import records
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.codec.steps import Steps
from tallystick.runtime.disk import Buffer


class LedgerIdentities:
    """Know the ledgers of a ``Storage``. ``stage`` makes a record of a ledger durable with the next commit."""

    def __init__(self, ledgers: Ledgers, stage: Callable[[LedgerId, Buffer], None]) -> None:
        self._ledgers, self._stage = ledgers, stage

    def were_looked_at(self, ledgers: Collection[LedgerId]) -> bool:
        """Return True if no ordinary add to any of these needs a look, nor is refused as the ledger is in limbo; it may
        be False though that is so."""
        return self._ledgers.were_looked_at(ledgers)

    def needs_look(self, ledger: LedgerId, entry: EntryId, key: bytes) -> bool:
        """Return whether an ordinary add must wait for a look at the ledger's metadata."""
        return self._ledgers.needs_look(ledger, entry, key)

    def needs_comparison(self, ledger: LedgerId, key: bytes | None = None) -> bool:
        """Return whether fences and recovery's adds, with a ``key``, and reads of the end must wait for a look, too."""
        return self._ledgers.needs_comparison(ledger, key)

    def is_one_too_many(self, ledger: LedgerId) -> bool:
        """Return whether the ledger is unknown here, and the bound of ledgers without metadata is reached."""
        return self._ledgers.is_one_too_many(ledger)

    def bound_unmade(self, most: int) -> None:
        """Accept at most so many ledgers without metadata before a look at it."""
        self._ledgers.most_unmade = most

    def is_in_doubt(self, ledger: LedgerId) -> bool:
        """Return whether, since the start, nothing has proved that what is stored here is the ledger of that id."""
        return self._ledgers.is_in_doubt(ledger)

    def may_hold_anothers(self, ledger: LedgerId) -> bool:
        """Return whether reads of entries must wait for a look: ``is_in_doubt``, of a ledger that is stored here."""
        return self._ledgers.may_hold_anothers(ledger)

    def needs_note(self, ledger: LedgerId) -> bool:
        """Return whether the ledger has no creation yet, and was not looked at."""
        held_ledger = self._ledgers.looked_at(ledger)
        return held_ledger is not None and held_ledger.creation == UNKNOWN and not held_ledger.is_written

    def identity(self, ledger: LedgerId) -> LedgerIdentity | None:
        """Return what is known of an id, None if nothing is."""
        return self._ledgers.identity(ledger)

    def given_up(self, ledger: LedgerId) -> Collection[Creation]:
        """Return the creations of all ledgers of an id that were given up as newer than the metadata."""
        return self._ledgers.given_up.of(ledger)

    def looked(self, ledger: LedgerId, creation: Creation, *, written: bool) -> None:
        """Take what a look found: the creation (UNKNOWN if there is none, or it was unreadable), and whether the ledger
        may be written. The next commit makes it durable."""
        held_ledger = self._ledgers.looked_at(ledger)
        if held_ledger is None:
            return
        held_ledger.is_written = written and (creation != UNKNOWN or not self._ledgers.is_in_doubt(ledger))
        if creation != UNKNOWN:
            held_ledger.is_compared = held_ledger.was_compared = True
            held_ledger.is_claimed = False
            self.note(ledger, creation)
        elif not written and self._ledgers.lacks(ledger):
            self._stage(ledger, records.CreationRecord(ledger, UNKNOWN).encode())

    def look_again(self) -> None:
        """Let no earlier look or comparison count any longer."""
        self._ledgers.look_again()

    def note(self, ledger: LedgerId, creation: Creation) -> None:
        """Give a stored ledger this creation if it has none; the next commit makes it durable. With the same one it was
        compared, with another one nothing is said: a look decides what is to be done.

        A creation that was given up is not noted: the entries of that ledger are not here.
        """
        held_ledger = self._ledgers.looked_at(ledger)
        if held_ledger is None or creation in self.given_up(ledger):
            return
        if held_ledger.creation == creation:
            held_ledger.was_compared = True
        elif held_ledger.creation == UNKNOWN:
            held_ledger.is_compared = held_ledger.was_compared = True
            self._ledgers.set_creation(ledger, creation)
            self._stage(ledger, records.CreationRecord(ledger, creation).encode())

    def missed_looks(self) -> None:
        """Hear that new ledgers are not looked at for a while."""
        self._ledgers.missed_looks()

    @property
    def anchor(self) -> Creation:
        """The creation of the bookie's cookie in the metadata that the stored creations are of."""
        return self._ledgers.anchor

    def anchored(self, anchor: Creation) -> Steps[bool]:
        """Return whether the stored creations are of the metadata in which the bookie's cookie has this one; they are
        forgotten if not: all of them by the last step."""
        return self._ledgers.anchored(anchor)

    def creations(self) -> Steps[list[tuple[LedgerId, Creation]]]:
        """Return the creations of the ledgers that are stored now; UNKNOWN is less than any other."""
        creations, alive = list[tuple[LedgerId, Creation]](), self._ledgers.alive
        for count, ledger in enumerate(list(alive), 1):
            if (held_ledger := alive.get(ledger)) is not None:
                creations.append((ledger, held_ledger.creation))
            if not count % STEP_LEDGERS:
                yield
        return creations

    def doubtful(self) -> Steps[list[LedgerId]]:
        """Return the stored ledgers that have no creation yet, or none that was compared since the start."""
        ledgers = list[LedgerId]()
        for count, ledger in enumerate(list(self._ledgers.alive), 1):
            held_ledger = self._ledgers.looked_at(ledger)
            if held_ledger is not None and (held_ledger.creation == UNKNOWN or not held_ledger.was_compared):
                ledgers.append(ledger)
            if not count % STEP_LEDGERS:
                yield
        return ledgers

    def set_ahead(self, ledgers: Collection[LedgerId]) -> Steps[None]:
        """Set, in the last step, the ledgers that are newer than the metadata: no look deletes them. All looks are made
        again. ``ledgers`` do not change meanwhile."""
        ahead = set[LedgerId]()
        for count, ledger in enumerate(ledgers, 1):
            ahead.add(ledger)
            if not count % STEP_LEDGERS:
                yield
        if self._ledgers.ahead != ahead:
            self._ledgers.ahead = ahead
            self._ledgers.look_again()

    def is_missed(self, ledger: LedgerId) -> bool:
        """Return whether the ledger has entries and somebody may have made it: that the metadata lacks it then says
        something of the metadata."""
        held_ledger = self._ledgers.alive.get(ledger)
        return held_ledger is not None and held_ledger.last != NO_ENTRY and not held_ledger.unmade
