"""The ledgers that a bookie gave up: deleted by an operator's order, though they were newer than the metadata.

Newer metadata may be put back later, with such a ledger in it, and then a "no such entry" of what was deleted would be
believed (Q15). So the creations of all given-up ledgers are kept, whatever else becomes of their ids: another ledger
may have such an id meanwhile, and be deleted, forgotten, or given up in its turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.codec.steps import Steps


class GivenUpLedgers:
    """Creations of given-up ledgers, by id; the id that was added to last is the last one."""

    def __init__(self, creations: Mapping[LedgerId, tuple[Creation, ...]]) -> None:
        self._creations = dict(creations)
        self._count = sum(map(len, self._creations.values()))

    def __contains__(self, ledger: LedgerId) -> bool:
        return ledger in self._creations

    def of(self, ledger: LedgerId) -> tuple[Creation, ...]:
        """Return the creations of an id that were given up."""
        return self._creations.get(ledger, ())

    def add(self, ledger: LedgerId, creation: Creation) -> None:
        before = self._creations.pop(ledger, ())
        more = () if creation in before else (creation,)
        self._creations[ledger] = before + more
        self._count += len(more)

    def bound(self, most: int) -> Steps[None]:
        """Forget the ids that were given up first, while there are more creations than ``most``."""
        for count, ledger in enumerate(list(self._creations) if self._count > most else (), 1):
            self._count -= len(self._creations.pop(ledger))
            if self._count <= most:
                break
            if not count % STEP_LEDGERS:
                yield

    def copy(self) -> dict[LedgerId, tuple[Creation, ...]]:
        """Copy the creations for the state file."""
        return self._creations.copy()
