"""The entries that this bookie stores and cannot read, as far as somebody noticed, until they are repaired.

A scrub notices them, and a read that failed. They are served as I/O errors, never as "no such entry" (Q15): clients go
to another replica. ``repair/mend.py`` makes them good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator

from tallystick.bookkeeper.wire.values import EntryId, LedgerId

MOST = 65_536  # remembered at once: what is beyond it the next scrub notices


class Damages:
    """By ledger. ``added`` is set when there are new ones."""

    def __init__(self) -> None:
        self._by_ledger: dict[LedgerId, dict[EntryId, None]] = {}
        self._count = 0
        self.added = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, each: tuple[LedgerId, EntryId]) -> bool:
        return each[1] in self._by_ledger.get(each[0], ())

    def ledgers(self) -> list[LedgerId]:
        return list(self._by_ledger)

    def of(self, ledger: LedgerId) -> list[EntryId]:
        """Return the entries of a ledger, ascending."""
        return sorted(self._by_ledger.get(ledger, ()))

    def add(self, ledger: LedgerId, entry: EntryId) -> bool:
        """Returns whether that is news, and there is room for it."""
        if (ledger, entry) in self or self._count >= MOST:
            return False
        self._by_ledger.setdefault(ledger, {})[entry] = None
        self._count += 1
        self.added.set()
        return True

    def settle(self, ledger: LedgerId, entries: Iterable[EntryId]) -> None:
        """These can be read again, or nobody needs them any more."""
        there = self._by_ledger.get(ledger, {})
        for entry in entries:
            if entry in there:
                del there[entry]
                self._count -= 1
        if not there:
            self._by_ledger.pop(ledger, None)

    def forget(self, ledgers: Collection[LedgerId]) -> None:
        """These ledgers are not stored here any more."""
        for ledger in ledgers:
            self.settle(ledger, self.of(ledger))

    def pairs(self) -> Iterator[tuple[LedgerId, EntryId]]:
        for ledger, entries in self._by_ledger.items():
            for entry in entries:
                yield ledger, entry
