"""A bookie makes entries good that it stores and cannot read, from the other replicas.

A finding may be old, or an error of one moment: the entry is read again first, from the disk, and compared with its
digest by metadata as of now. What is still bad is read elsewhere, its digest is checked, and it is stored as it came,
as recovery does; then it is read back. An entry that no metadata places here is not repaired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.store import Znode
from tallystick.bookkeeper.repair.replicas import Replicas
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import runs_of
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.digest import Digest, master_key
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata
from tallystick.errors import DigestMismatch, MetadataError, TallyError, Unavailable

LEAST_PAUSE_S, MOST_PAUSE_S = 10.0, 600.0  # before what could not be mended is tried again
READS = RepairSettings(batch_entries=64, batch_bytes=1024 * 1024)


async def mend(own: OwnCopies) -> None:
    """Mend what is damaged, for ever."""
    replicas = Replicas(own)
    try:
        await _Mending(own, replicas).run()
    finally:
        await replicas.close()


class _Mending:
    """The work on one bookie."""

    def __init__(self, own: OwnCopies, replicas: Replicas) -> None:
        self._own, self._replicas, self._events = own, replicas, own.outside.events
        self._reasons: dict[LedgerId, str] = {}  # why they are not mended, as it was told

    async def run(self) -> None:
        pause_s = LEAST_PAUSE_S
        while True:
            added = self._own.damages.added
            if not len(self._own.damages):
                pause_s = LEAST_PAUSE_S
                await added.wait()
            added.clear()
            for ledger in self._own.damages.ledgers():
                await self._try(ledger)
            self._reasons = {ledger: self._reasons[ledger] for ledger in self._own.damages.ledgers()
                             if ledger in self._reasons}  # fmt: skip
            if len(self._own.damages):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)

    async def _try(self, ledger: LedgerId) -> None:
        if not self._own.is_stored(ledger):
            self._own.damages.forget([ledger])
            return
        try:
            await self._ledger(ledger, (await self._own.metadata([ledger]))[ledger])
        except TallyError as error:
            if self._reasons.get(ledger) != str(error):
                self._reasons[ledger] = str(error)
                self._events.emit("entries not mended", ledger=ledger, reason=str(error))

    async def _ledger(self, ledger: LedgerId, node: Znode | None) -> None:
        if node is None:
            raise Unavailable("the metadata has no such ledger: it is deleted here soon, or the metadata comes back")
        metadata = wire.decode(node.data, where=str(ledger), ctime_ms=node.ctime_ms)
        if not metadata.has_password:
            raise MetadataError("the metadata has no password: nobody knows the key that entries are stored with")
        self._own.identify(ledger, node.creation)
        copying, lacking = self._replicas.copying(ledger, metadata, READS), list[EntryId]()
        async for batch in copying.batches([self._own.damages.of(ledger)]):
            bad = await self._still_bad(ledger, metadata, batch)
            frames = await self._replicas.fetch(copying, ledger, metadata, bad) if bad else {}
            lacking += [entry for entry in bad if entry not in frames]
            if frames:
                await self._own.store(ledger, master_key(metadata.password), sorted(frames.items()))
                if any(self._own.read(ledger, entry) != frame for entry, frame in frames.items()):
                    raise Unavailable("what was repaired does not read back", ledger=ledger)
                self._own.counts.scrub_mended += len(frames)
                self._own.mended(ledger, list(frames))
                self._events.emit("entries mended", ledger=ledger, entries=runs_of(sorted(frames)))
        if lacking:
            first, count = lacking[0], len(lacking)
            raise Unavailable("no other replica gave these entries", ledger=ledger, count=count, first=first)

    async def _still_bad(self, ledger: LedgerId, metadata: LedgerMetadata, entries: Sequence[EntryId]) -> list[EntryId]:
        """Return those of the entries that are placed here and cannot be read; the others are settled."""
        digest, bad, settled = Digest.of(metadata.digest_type, metadata.password), list[EntryId](), list[EntryId]()
        for entry in entries:
            sound = not is_placed(metadata, self._own.bookie, entry) or self._is_good(digest, ledger, entry)
            (settled if sound else bad).append(entry)
            await asyncio.sleep(0)  # each was a read of the disk
        if settled:
            self._own.mended(ledger, settled)
        return bad

    def _is_good(self, digest: Digest, ledger: LedgerId, entry: EntryId) -> bool:
        data = self._own.read(ledger, entry)
        if data is None:
            return False
        try:
            digest.decode(ledger, entry, data)
        except DigestMismatch:
            return False
        return True


def is_placed(metadata: LedgerMetadata, bookie: BookieId, entry: EntryId) -> bool:
    """Return whether the metadata places an entry at the bookie."""
    if metadata.is_closed and entry > metadata.last_entry:
        return False
    ensemble = metadata.ensemble_of(entry)
    return any(ensemble[slot] == bookie for slot in Striping.of(metadata).slots(entry))
