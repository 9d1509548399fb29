"""Decide which bookies are lost: gone for the whole grace, and not too many of them at once.

::

    registered ──gone──▶ absent ──grace──▶ due ──▶ LOST        back at any time before: nothing happens
                                            │
                                            └── more than one, and more than a third, went within one grace: HELD
                                                ──another grace, and another look──▶ LOST

What looks like the end of many bookies is more often that of a network, or of the session of who looks. Nothing is
lost on one look: a bookie has to be absent in the first and in the last of a whole grace. Differs from the original's
``Auditor``, which audits at once when a second bookie goes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import BookieId


@dataclass(frozen=True)
class Lose:
    """Mark the ledgers of these bookies."""

    bookies: tuple[BookieId, ...]


@dataclass(frozen=True)
class Hold:
    """So many bookies went at once that none is lost before ``until``, and another look then."""

    bookies: tuple[BookieId, ...]
    until: float


@dataclass(frozen=True)
class Return:
    """This bookie was absent, and is back."""

    bookie: BookieId
    absent_s: float


Action = Lose | Hold | Return


class AuditorCore:
    """See the module. Times are seconds of one clock. ``looked`` comes after each change of the registrations, and at
    ``wake_at``; the bookies are synced reads."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._since: dict[BookieId, float] = {}  # absent ones, by when that was first seen
        self._held_until: dict[BookieId, float] = {}
        self._lost: dict[BookieId, None] = {}

    @property
    def absent(self) -> dict[BookieId, float]:
        """The absent bookies, lost ones too, by since when."""
        return dict(self._since)

    @property
    def lost(self) -> tuple[BookieId, ...]:
        """The lost bookies."""
        return tuple(self._lost)

    def looked(
        self,
        now: float,
        known: Collection[BookieId],
        registered: Collection[BookieId],
        *,
        is_ordered: bool = False,
    ) -> list[Action]:
        """``known``: every bookie that ever joined, or that a ledger names, in order. ``is_ordered``: an operator says
        that who is absent is lost, without a grace, and however many that are."""
        actions, there, all_of_them = list[Action](), frozenset(registered), frozenset(known)
        for bookie in tuple(self._since):
            if bookie in there or bookie not in all_of_them:
                actions.append(Return(bookie, now - self._since.pop(bookie)))
                self._held_until.pop(bookie, None)
                self._lost.pop(bookie, None)
        for bookie in known:
            if bookie not in there:
                self._since.setdefault(bookie, now)
        return [*actions, *self._decide(now, len(known), is_ordered)]

    def wake_at(self) -> float | None:
        """Returns when to look again by itself, None if only a change can matter."""
        waiting = [self._due_at(bookie) for bookie in self._since if bookie not in self._lost]
        return min(waiting, default=None)

    def _due_at(self, bookie: BookieId) -> float:
        return self._held_until.get(bookie, self._since[bookie] + self.grace_s)

    def _decide(self, now: float, known: int, is_ordered: bool) -> list[Action]:
        waiting = [bookie for bookie in self._since if bookie not in self._lost]
        due = [bookie for bookie in waiting if is_ordered or self._due_at(bookie) <= now]
        too_many = [] if is_ordered else self._masses(due, known)
        new_held = {bookie: None for bookie in too_many if bookie not in self._held_until}
        actions: list[Action] = []
        if new_held:
            self._held_until.update(dict.fromkeys(new_held, now + self.grace_s))
            actions.append(Hold(tuple(new_held), now + self.grace_s))
        if lost := [bookie for bookie in due if bookie not in new_held]:
            self._lost.update(dict.fromkeys(lost))
            actions.append(Lose(tuple(lost)))
        return actions

    def _masses(self, due: Sequence[BookieId], known: int) -> list[BookieId]:
        """Return those of which too many went within one grace of each, lost ones included."""
        times, masses = sorted(self._since.values()), list[BookieId]()
        for bookie in due:
            since = self._since[bookie]
            together = bisect_right(times, since + self.grace_s) - bisect_left(times, since - self.grace_s)
            if together > 1 and 3 * together > known:
                masses.append(bookie)
        return masses
