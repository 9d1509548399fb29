"""What fills a bookie that has ledgers in limbo sees of it (``Fill``)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.wire.values import EntryId, LedgerId

T = TypeVar("T")


class LimboBookie(OwnCopies):
    """Store entries in place, and let ledgers leave limbo; on the loop of the bookie."""

    def ledgers(self) -> list[LedgerId]:
        """Return the ledgers in limbo."""
        return list(self._storage.limbo)

    async def compare(self, ledger: LedgerId, compared: Callable[[Iterable[range]], T]) -> T:
        """Return what ``compared`` makes of the runs of entries that are stored here, ascending, on a thread."""
        ids = self._storage.stored_ids(ledger)
        return await self._worker.run(lambda: compared(() if ids is None else ids.runs()))

    async def store(self, ledger: LedgerId, key: bytes, entries: Sequence[tuple[EntryId, bytes]]) -> None:
        await super().store(ledger, key, entries)
        self.counts.filled_entries += len(entries)
        self.counts.filled_bytes += sum(len(body) for _, body in entries)

    def stay(self, ledger: LedgerId) -> int | None:
        """Return what ``leave`` needs, before it is looked at what is stored; None if the ledger is not in limbo."""
        return self._storage.limbo.stay(ledger)

    def leave(self, stays: Mapping[LedgerId, int | None]) -> list[LedgerId]:
        """Let ledgers leave limbo: all that is placed here of them is synced, or nothing is placed here. Returns which
        do: not those that lost something since their ``stay``."""
        leaving = [ledger for ledger, stay in stays.items() if stay is not None and self.stay(ledger) == stay]
        self._storage.filled(leaving)
        self._committer.flush()
        self._changed()
        return leaving


Fill = Callable[[LimboBookie], Coroutine[Any, Any, None]]  # ends when no ledger is in limbo any more
Mend = Callable[[OwnCopies], Coroutine[Any, Any, None]]  # endless: makes damaged entries good
