"""The ledgers in limbo: this bookie may have lost entries and fences of them, so what it lacks says nothing (Q15).

A bookie that rejoins its cluster with an empty or older disk has each ledger there that names it (``rejoin.py``), until
the entries placed here are here again. What is stored is served. Whatever else a response would deny is unknown::

    no entry, no ledger, the last entry, the LAC, the list of entries     UNKNOWN_LEDGER_STATE
    ordinary adds, as if they were fenced, but the client is not told so  IO_ERROR
    adds of recovery                                                      as ever

The state file has the ledgers, and the journal has which of them have left since. Follows the original's limbo of
``SingleDirectoryDbLedgerStorage``, which has it for its last entry and fence, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.values import LedgerId


class LimboLedgers:
    """The ids. None of them leaves when a ledger is deleted here: another one may have its id, and be in limbo, too."""

    def __init__(self, ledgers: Iterable[LedgerId] = ()) -> None:
        self._entered = 0  # how often any came
        self._ledgers = dict.fromkeys(ledgers, self._entered)  # when each came last

    def __len__(self) -> int:
        return len(self._ledgers)

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._ledgers

    def __iter__(self) -> Iterator[LedgerId]:
        return iter(self._ledgers)

    def has_any(self, ledgers: Iterable[LedgerId]) -> bool:
        """Return whether any of these is in limbo."""
        return bool(self._ledgers) and not self._ledgers.keys().isdisjoint(ledgers)

    def code(self, ledger: LedgerId, code: Code) -> Code:
        """Return the code of a response about a ledger: a "no" is unknown where the ledger is in limbo."""
        return Code.UNKNOWN_LEDGER_STATE if code in NO_CODES and ledger in self._ledgers else code

    def enter(self, ledgers: Iterable[LedgerId]) -> None:
        """Also for one that is in limbo: it lacks more now."""
        self._entered += 1
        self._ledgers.update(dict.fromkeys(ledgers, self._entered))

    def stay(self, ledger: LedgerId) -> int | None:
        """Return a number that is another one once the ledger lacks more than now, None if it is not in limbo."""
        return self._ledgers.get(ledger)

    def leave(self, ledgers: Iterable[LedgerId]) -> None:
        for ledger in ledgers:
            self._ledgers.pop(ledger, None)

    def copy(self) -> tuple[LedgerId, ...]:
        """Copy the ids for the state file."""
        return tuple(self._ledgers)
