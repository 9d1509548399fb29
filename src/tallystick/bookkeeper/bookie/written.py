"""The ledgers that one identity appended to since the start: an explicit LAC of another's ledger needs *recover*.

A bookie is not told who made a ledger. Whoever may append and not recover has shown it by its entries: until the first
of them was taken here, its explicit LAC is refused, which a writer's client tells again with the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from tallystick.bookkeeper.bookie.permissions import Permission
from tallystick.bookkeeper.wire.values import LedgerId

MOST_LEDGERS = 10_000  # of one identity; of more, those that it appended to last


class WrittenLedgers:
    """See the module; both protocols of an identity share one."""

    def __init__(self) -> None:
        self._ledgers: OrderedDict[LedgerId, None] = OrderedDict()

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._ledgers

    def add(self, ledgers: Iterable[LedgerId]) -> None:
        """Note ledgers of which entries were taken."""
        for ledger in ledgers:
            self._ledgers[ledger] = None
            self._ledgers.move_to_end(ledger)
        while len(self._ledgers) > MOST_LEDGERS:
            self._ledgers.popitem(last=False)


def must_be_noted(permission: Permission) -> bool:
    """Return whether what an identity with this permission appends to makes a difference."""
    return Permission.APPEND in permission and Permission.RECOVER not in permission
