"""What a bookie holds: which entries of a ledger, whether all of it is on the disk, how much room there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.entry_lists import EntryLists
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.long_polls import Requester
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.service import AfterLook, Later, ServiceResponse
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.runtime.disk import Usage


@dataclass(slots=True)
class EntryListResponse:
    """``ids``: those of all entries, encoded."""

    code: Code
    ids: bytes = field(default=b"", repr=False)


class Holdings:
    """Do these requests. ``looks()`` says whether they may wait for a look at their ledger's metadata."""

    def __init__(
        self, storage: Storage, guard: DiskGuard, counts: Counts, lists: EntryLists, *, looks: Callable[[], bool]
    ) -> None:
        self._storage, self._guard, self._counts, self._lists, self._looks = storage, guard, counts, lists, looks
        self._identities, self._limbo = storage.identities, storage.limbo

    def force(self, ledger: LedgerId) -> ServiceResponse:
        """Say when all is on the disk that was acknowledged till now, of any ledger, be it deferred. Of one in limbo
        that may be lost, before it was on the disk."""
        self._counts.forces += 1
        if ledger in self._limbo:
            self._counts.forces_failed += 1
            return ServiceResponse(Code.UNKNOWN_LEDGER_STATE)
        return ServiceResponse(Code.OK, commit=self._storage.newest_commit)

    def space(self) -> Usage:
        """Return the room of the ledger folders' file systems, as it was measured last."""
        self._counts.space_reads += 1
        return self._guard.room

    def entries(
        self, ledger: LedgerId, verdict: Verdict | None = None
    ) -> EntryListResponse | AfterLook | Later[EntryListResponse]:
        """List the ids of a ledger's entries; later, as that may take long."""
        identities = self._identities
        if verdict is None and identities.needs_comparison(ledger) and self._looks():
            return AfterLook(ledger)
        is_unread = verdict in (None, Verdict.UNKNOWN)
        if ledger < 0:
            return self._counted(EntryListResponse(Code.BAD_REQUEST))
        if verdict is Verdict.AMISS or (is_unread and identities.is_in_doubt(ledger)):
            return self._counted(EntryListResponse(Code.IO_ERROR))
        if ledger in self._limbo:
            return self._counted(EntryListResponse(Code.UNKNOWN_LEDGER_STATE))
        identity = identities.identity(ledger)
        if identity is None or identity.deleted:
            return self._counted(EntryListResponse(self._storage.absent(ledger)))

        def snapshot() -> StoredIds | Code:
            if is_unread and identities.is_in_doubt(ledger):
                return Code.IO_ERROR
            ids = self._storage.stored_ids(ledger)
            return self._storage.absent(ledger) if ids is None else ids

        def begin(owner: Requester, done: Callable[[EntryListResponse], None]) -> None:
            def listed(code: Code, ids: bytes) -> None:
                done(self._counted(EntryListResponse(code, ids)))

            self._lists.list(owner, snapshot, listed)

        return Later(begin)

    def _counted(self, response: EntryListResponse) -> EntryListResponse:
        self._counts.entry_lists += 1
        self._counts.entry_lists_failed += response.code != Code.OK
        return response
