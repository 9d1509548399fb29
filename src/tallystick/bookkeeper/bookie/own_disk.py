"""Is this the bookie's disk, and has it all that was acknowledged? Or does the bookie rejoin with another one?

``cookies.py`` says whose it is, ``progress.py`` whether it is behind, and ``rejoin.py`` what a bookie does with a disk
that lost something. All of it comes before anybody may ask the bookie, in this order::

    claim ─► (storage is opened) ─► check_journal ─► begin ─► (it listens, and registers) ─► says … ─► say
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.cookies import check_cookies, stored_instance
from tallystick.bookkeeper.bookie.progress import ProgressRecord
from tallystick.bookkeeper.bookie.rejoin import Rejoin
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.values import BookieId
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
        rejoin: Rejoin | None = None,
        is_new: bool = False,
    ) -> None:
        self._bookie, self._outside, self._rejoin = bookie, outside, rejoin
        self.progress, self.instance = progress, instance  # the latter is the cluster of the bookie's cookie
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
        rejoins: bool,
        patience_s: float,
    ) -> OwnDisk:
        """Check the locked ``folders``; those of a new bookie get cookies.

        Raises InvalidCookie for another bookie's disk, an empty one, or one of an earlier start; UsageError, if the
        bookie may not rejoin; CorruptRecord, MetadataError.
        """
        place = driver, outside.disk, bookie, settings.journal_dir, settings.ledger_dir
        progress = await ProgressRecord.read(driver, outside.disk, folders, bookie, outside.events)
        if rejoins:
            rejoin = Rejoin(*place)
            await rejoin.prepare(patience_s)
            return cls(bookie, outside, progress, rejoin.instance, rejoin=rejoin)
        is_new = await check_cookies(*place, stamping=progress.renew)
        if is_new:
            outside.events.emit("cookie written", bookie=bookie, reason="new bookie, empty folders")
        else:
            progress.check()
        return cls(bookie, outside, progress, stored_instance(outside.disk, settings.ledger_dir), is_new=is_new)

    def check_journal(self, position: int) -> None:
        """Raises InvalidCookie if the journal, whose last synced commit this is, is behind."""
        if self._is_compared:
            self.progress.check(position)

    async def begin(self, storage: Storage, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Count the start; of one that rejoins all ledgers are in limbo first, by a ``checkpoint``. Raises
        MetadataError, StorageError."""
        if self._rejoin is not None:
            ledgers = await self._rejoin.list_ledgers()
            await self._rejoin.enter_limbo(storage, ledgers)
            await checkpoint()
            self._rejoin.finish()
            reason = "the disk may lack what was acknowledged: these ledgers are in limbo until it is fetched"
            count, fenced = len(ledgers), sum(ledger.key is not None for ledger in ledgers)
            self._outside.events.emit(
                "bookie rejoins", bookie=self._bookie, ledgers=count, fenced=fenced, reason=reason
            )
        await self.progress.begin(storage.synced_commit)
