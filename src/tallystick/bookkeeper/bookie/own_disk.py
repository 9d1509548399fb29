"""Is this the bookie's disk, and has it all that was acknowledged? Or does the bookie rejoin with another one?

``cookies.py`` says whose it is, ``progress.py`` whether it is behind, and ``rejoin.py`` what a bookie does with a disk
that lost something. All of it comes before anybody may ask the bookie, in this order::

    claim ─► (storage is opened) ─► check_journals ─► begin ─► (it listens, and registers) ─► says … ─► say
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.cookies import check_cookies, folder_of, stored_instance
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.progress import ProgressRecord
from tallystick.bookkeeper.bookie.rejoin import Rejoin
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import BookieRegistration, MetadataDriver
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import DiskFull
from tallystick.runtime.outside import Outside


class OwnDisk:
    """The disk of one start, made by ``claim``."""

    def __init__(
        self,
        bookie: BookieId,
        outside: Outside,
        progress: ProgressRecord,
        instance: str,
        *,
        joined: Creation | None,
        folders: Sequence[str],
        unusable: Sequence[str] = (),
        rejoin: Rejoin | None = None,
        is_new: bool = False,
    ) -> None:
        self._bookie, self._outside, self._rejoin = bookie, outside, rejoin
        self.progress, self.instance = progress, instance  # the latter is the cluster of the bookie's cookie
        self._joined = joined  # when that was made
        self._folders, self._unusable = folders, unusable
        self._is_compared = rejoin is None and not is_new  # with what the metadata knows of the bookie's disk

    @classmethod
    async def claim(
        cls,
        driver: MetadataDriver,
        settings: BookieSettings,
        bookie: BookieId,
        outside: Outside,
        *,
        folders: Sequence[str],
        unusable: Sequence[str],
        rejoins: bool,
        patience_s: float,
    ) -> OwnDisk:
        """Check the locked ``folders``; those of a new bookie get cookies. ``unusable`` ledger folders have failed, or
        fail now.

        Raises InvalidCookie for another bookie's disk, an empty one, or one of an earlier start; UsageError, if the
        bookie may not rejoin; CorruptRecord, MetadataError.
        """
        configured = StorageFolders(settings.journal_dirs, settings.ledger_dirs)
        progress = await ProgressRecord.read(driver, outside.disk, folders, bookie, outside.events)
        if rejoins:
            rejoin = Rejoin(driver, outside.disk, bookie, configured, folders)
            await rejoin.prepare(patience_s)
            instance = rejoin.instance
            return cls(
                bookie, outside, progress, instance, joined=rejoin.joined, folders=folders, unusable=unusable,
                rejoin=rejoin,
            )  # fmt: skip

        def stamping(added: Sequence[str]) -> None:
            if added:
                progress.join([folder for folder in folders if folder_of(folder) in added])
            else:
                progress.renew()

        place = driver, outside.disk, bookie, configured
        stamped = await check_cookies(*place, unused=unusable, expands=settings.allow_expansion, stamping=stamping)
        if stamped.is_new:
            outside.events.emit("cookie written", bookie=bookie, reason="new bookie, empty folders")
        else:
            progress.check()
        if stamped.added:
            reason = "allowStorageExpansion: these folders are new, and empty"
            outside.events.emit("storage expanded", bookie=bookie, folders=list(stamped.added), reason=reason)
        instance = stored_instance(outside.disk, folders[0])
        joined, is_new = stamped.joined, stamped.is_new
        return cls(bookie, outside, progress, instance, joined=joined, folders=folders, is_new=is_new)

    @property
    def lost(self) -> list[str]:
        """The folders that came back empty."""
        return list(self._rejoin.lost) if self._rejoin is not None else []

    def check_journals(self, positions: tuple[int, ...]) -> None:
        """Raises InvalidCookie if a journal, whose last synced commit this is, is behind."""
        if self._is_compared:
            self.progress.check(positions)

    def _may_lack_anything(self, storage: Storage) -> bool:
        """Return whether the bookie may have lost more than what was in the folders that came back empty, or failed."""
        bare = self._rejoin.bare if self._rejoin is not None else ()
        kept = [folder for folder in self._folders if folder not in bare]
        if not kept or not (bare or self._unusable):
            return True
        if bare and not self.lost:  # a rejoin was cut short when it was registered: others may have been since
            return True
        return self.progress.lags(kept, storage.positions, storage.lost_journals)

    async def begin(self, storage: Storage, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Count the start; of one that rejoins all ledgers are in limbo first, by a ``checkpoint``. Raises
        MetadataError, StorageError."""
        if self._rejoin is not None:
            ledgers = await self._rejoin.list_ledgers()
            if not self._may_lack_anything(storage):
                ledgers = [ledger for ledger in ledgers if storage.may_lack(ledger.id)]
            await self._rejoin.enter_limbo(storage, ledgers)
            await checkpoint()
            reason = "the disk may lack what was acknowledged: these ledgers are in limbo until it is fetched"
            count, fenced = len(ledgers), sum(ledger.key is not None for ledger in ledgers)
            self._outside.events.emit(
                "bookie rejoins", bookie=self._bookie, ledgers=count, fenced=fenced, reason=reason
            )
        await self._write_rebuilt(storage, checkpoint)
        await self.progress.begin(storage.positions, rejoins=self._rejoin is not None)

    async def register(self, driver: MetadataDriver, info: BookieInfo, *, read_only: bool) -> BookieRegistration:
        """List the bookie, while its cookie is the one that was checked. Raises MetadataError, StorageError.

        One that rejoins is not listed if another process was since ``claim``: what that got is in no listing. Until it
        is, its folders start no bookie but by another rejoin.
        """
        bookie, joined, rejoin = self._bookie, self._joined, self._rejoin
        if rejoin is None:
            return await driver.register(bookie, info, read_only=read_only, replace=True, joined=joined)
        since = rejoin.version
        registration = await driver.register(bookie, info, read_only=read_only, joined=joined, since=since)
        rejoin.finish()
        return registration

    async def _write_rebuilt(self, storage: Storage, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Tell of indexes that were damaged, and put those in their place that were made anew. Raises StorageError."""
        rebuilt = storage.rebuilt_indexes
        for made in rebuilt:
            doubtful = sum(map(made.may_lack, storage.limbo))
            reason = "its file was damaged or missing; ledgers that may have had more in that log are in limbo"
            log, entries = made.log.id, made.log.entries
            self._outside.events.emit(
                "index of an entry log rebuilt", log=log, entries=entries, limbo=doubtful, reason=reason
            )
        if rebuilt:
            with contextlib.suppress(DiskFull):  # they stay in memory, and the next checkpoint writes them
                await checkpoint()
