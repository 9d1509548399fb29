"""The shell of ``GivenIdsCore``: payloads and futures of entries that wait behind a gap."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable

from tallystick.bookkeeper.ledger.given_ids import GivenIdsCore, Hold, Refusal, Refuse
from tallystick.bookkeeper.wire.values import EntryId, LedgerId
from tallystick.errors import EntriesMissing, EntryExists, TallyError

AppendNext = Callable[[bytes, asyncio.Future[EntryId] | None], asyncio.Future[EntryId]]


class HeldAppends:
    """What one session holds behind the first gap."""

    __slots__ = ("_appends", "_core", "_ledger", "_loop")

    def __init__(
        self, ledger: LedgerId, lowest_missing: EntryId, max_held_bytes: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._ledger, self._loop = ledger, loop
        self._core = GivenIdsCore(lowest_missing, max_held_bytes)
        self._appends: dict[EntryId, tuple[bytes, asyncio.Future[EntryId]]] = {}

    def __len__(self) -> int:
        return len(self._appends)

    def append(self, entry: EntryId, payload: bytes, append_next: AppendNext) -> asyncio.Future[EntryId]:
        """Append or hold an entry. Returns a future of its id. Raises EntryExists, EntriesMissing.

        ``append_next`` appends the next entry of the ledger, and resolves the given future or a new one.
        """
        action = self._core.appended(entry, len(payload))
        if isinstance(action, Hold):
            future: asyncio.Future[EntryId] = self._loop.create_future()
            self._appends[entry] = payload, future
            return future
        if isinstance(action, Refuse):
            raise self._refusal(entry, action.reason)
        first_future = append_next(payload, None)
        for held in range(action.first + 1, action.last + 1):
            append_next(*self._appends.pop(held))
        return first_future

    def _refusal(self, entry: EntryId, reason: Refusal) -> TallyError:
        if reason is Refusal.EXISTS:
            return EntryExists(ledger=self._ledger, entry=entry)
        missing, held_bytes = self._core.lowest_missing, self._core.held_bytes
        return EntriesMissing(ledger=self._ledger, entry=entry, missing=missing, held_bytes=held_bytes)

    @property
    def lowest_missing(self) -> EntryId:
        return self._core.lowest_missing

    def fail(self, failure: TallyError) -> None:
        """Fail what is held: it was never sent, so no bookie has it. Nothing can be appended after that."""
        appends, self._appends = self._appends, {}
        for entry in sorted(appends):
            future = appends[entry][1]
            if not future.done():
                error = copy.copy(failure)
                error.ambiguous = False
                future.set_exception(error)
