"""What a bookie reads of its ledgers elsewhere, to make its own copies good.

Its client shows who it is as any other client does: by the security of the file that ``TALLY_SECURITY`` names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.repair.copying import Copying
from tallystick.bookkeeper.repair.fill_core import other_replicas
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerMetadata


class Replicas:
    """The other replicas of what one bookie has. ``close`` it."""

    def __init__(self, own: OwnCopies) -> None:
        """Raises UsageError if the file of its security cannot be used."""
        self._own = own
        self._directory = BookieDirectory(own.driver)
        self.client = BookieClient(
            own.outside,
            self._directory.resolve,
            secured(ClientSettings()),
            identify=own.driver.bookie_presence,
            offers=self._directory.offers,
        )
        self._directory.on_change(self.client.registrations_changed)
        self._directory.on_read(self.client.registered)

    async def close(self) -> None:
        await self.client.close()
        self._directory.close()

    def copying(self, ledger: LedgerId, metadata: LedgerMetadata, settings: RepairSettings) -> Copying:
        return Copying(self.client, ledger, metadata, settings, self._own.pace, self._tell_bad)

    def _tell_bad(self, ledger: LedgerId, entry: EntryId, bookie: BookieId, reason: str) -> None:
        self._own.outside.events.emit("bad replica", ledger=ledger, entry=entry, bookie=bookie, reason=reason)

    async def fetch(
        self, copying: Copying, ledger: LedgerId, metadata: LedgerMetadata, entries: Sequence[EntryId]
    ) -> Mapping[EntryId, bytes]:
        """Return those of the entries that a replica gave, with a good digest, at the pace of all repairs."""
        read = await copying.read(entries, lambda entry: other_replicas(metadata, self._own.bookie, entry))
        await self._own.pace.spend(read.bytes)
        return read.frames
