"""One bookie starts from its folders up to its registration, and stops in reverse (``EmbeddedServer``).

::

    folders locked ─► ports bound ─► cookie ─► journal replayed ─► alone at the address ─► listening ─► registered
                                        │                       └─ ledgers in limbo ─┘     (``rejoin.py``)
                                        └─ no older disk than the metadata knows           (``progress.py``)

A start that gets no port has written no cookie, which would list a bookie that never was there. The lock proves that
the last process on these folders is dead and the cookie that they are this bookie's: only then may it take over a
registration that is still listed, without waiting for the old session to end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from tallystick.bookkeeper.bookie.address import Address, wait_for_address
from tallystick.bookkeeper.bookie.collection import GarbageCollection
from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.config import BookieSettings, addresses_of, is_near
from tallystick.bookkeeper.bookie.cookies import folder_of, journal_of, ledgers_of
from tallystick.bookkeeper.bookie.drains import DrainFile
from tallystick.bookkeeper.bookie.folder_room import FOLDERS
from tallystick.bookkeeper.bookie.front import Behind, open_front
from tallystick.bookkeeper.bookie.garbage import GarbageRules
from tallystick.bookkeeper.bookie.handshakes import Handshakes
from tallystick.bookkeeper.bookie.limbo_bookie import Fill, LimboBookie, Mend
from tallystick.bookkeeper.bookie.limits import DiskGuard, DiskPlaces
from tallystick.bookkeeper.bookie.listing import Listing, with_properties
from tallystick.bookkeeper.bookie.locked_folders import lock_folders
from tallystick.bookkeeper.bookie.looks import Looks
from tallystick.bookkeeper.bookie.marking import LimboMarks
from tallystick.bookkeeper.bookie.metrics import Counts, View, registry
from tallystick.bookkeeper.bookie.own_copies import OwnCopies
from tallystick.bookkeeper.bookie.own_disk import OwnDisk
from tallystick.bookkeeper.bookie.places import LedgerFolder, StorageFolders
from tallystick.bookkeeper.bookie.ports import BookiePorts
from tallystick.bookkeeper.bookie.progress import ProgressRecord
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.scrubber import Scrubber
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.surplus import SURPLUS_FILE, Shed, SurplusCopies
from tallystick.bookkeeper.bookie.upkeep import BookieUpkeep
from tallystick.bookkeeper.bookie.waiting_deletions import WaitingFile
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import Connect, open_driver
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import DiskFull, InvalidCookie, StorageError
from tallystick.runtime.health import HealthPages
from tallystick.runtime.outside import Outside
from tallystick.runtime.pace import Pace
from tallystick.runtime.tasks import watch
from tallystick.runtime.worker import Worker

Copies = TypeVar("Copies", bound=OwnCopies)


async def start_bookie(
    settings: BookieSettings,
    outside: Outside,
    storage: StorageSettings | None = None,
    connect: Connect = open_driver,
    *,
    fill: Fill | None = None,
    mend: Mend | None = None,
    shed: Shed | None = None,
    rejoin: bool = False,
) -> Bookie:
    """Start a bookie: it is registered and serves; ``stop`` it. ``connect`` opens the metadata that the settings name.

    ``rejoin``: its disk is empty, or older than what it acknowledged: all its ledgers are in limbo until ``fill`` has
    fetched what lacks. Without one they stay so. ``mend`` makes entries good that cannot be read, from other replicas;
    ``shed`` drops copies that others have instead.

    Raises UsageError (settings, folder in use, port), InvalidCookie, StorageError, MetadataError.
    """
    bookie = Bookie(settings, outside, storage or StorageSettings(), connect, fill, mend, shed)
    try:
        await bookie._start(rejoin=rejoin)
    except BaseException:
        await bookie.stop()
        raise
    return bookie


class Bookie:
    """A bookie, made by ``start_bookie``. ``failure`` gets an exception when it cannot go on; ``stop`` it in any
    case."""

    def __init__(
        self,
        settings: BookieSettings,
        outside: Outside,
        storage_settings: StorageSettings,
        connect: Connect,
        fill: Fill | None,
        mend: Mend | None = None,
        shed: Shed | None = None,
    ) -> None:
        self._settings, self._outside, self._storage_settings = settings, outside, storage_settings
        self._connect, self._fill, self._mend, self._shed = connect, fill, mend, shed
        self.repair_pace = Pace(outside.clock, settings.fill_bytes_per_s)  # of all that its process fetches for repair
        self._addresses = addresses_of(settings)
        self._stack = AsyncExitStack()  # what to undo, newest first
        self._tasks: list[asyncio.Task[None]] = []
        self._task_workers: list[Worker] = []  # of tasks: closed when those have ended
        self._filling: asyncio.Task[None] | None = None
        self._listing: Listing | None = None
        self._clean = False  # its storage was closed with a checkpoint
        self.counts = Counts()
        self.guard = DiskGuard(
            settings.disk_usage_threshold,
            settings.high_priority_spare_bytes,
            warn=settings.disk_usage_warn_threshold,
            any_full=settings.read_only_when_any_full,
        )
        self.scrubber: Scrubber | None = None
        self.surplus: SurplusCopies | None = None
        self._peers: Handshakes | None = None
        self._drain = DrainFile(outside.disk, settings.home)
        self._recent = RecentAdds()
        self._ports = BookiePorts(settings, self._addresses, outside)
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @property
    def id(self) -> BookieId:
        return self._addresses.bookie

    @property
    def address(self) -> Address:
        return self._ports.address

    @property
    def http_address(self) -> Address | None:
        return self._ports.http_address

    async def stop(self) -> None:
        """Remove the registration, serve what is under way, write a checkpoint, unlock the folders."""
        await self._stack.aclose()
        if self._clean:
            self._clean = False
            self._outside.events.emit("bookie stopped", bookie=self.id, reason="asked to; nothing is left to replay")

    async def _start(self, *, rejoin: bool) -> None:
        settings, outside = self._settings, self._outside
        locked = self._stack.callback
        self._folders = lock_folders(outside.disk, settings, self._storage_settings, locked, rejoin=rejoin)
        self._stack.push_async_callback(self._ports.close)
        await self._ports.bind(lambda: self._server.session(), self._pages)
        self.driver = await self._connect(settings.metadata_uri, session_timeout_s=settings.session_timeout_s)
        self._stack.push_async_callback(self.driver.close)
        patience_s = 2 * settings.session_timeout_s
        own_disk = await OwnDisk.claim(
            self.driver, settings, self.id, outside, folders=self._folders.in_use, unusable=self._folders.unusable,
            rejoins=rejoin, patience_s=patience_s,
        )  # fmt: skip
        self._instance = own_disk.instance
        self._stack.push_async_callback(self._say_the_end, own_disk.progress)
        await self._open_storage(own_disk)
        collection = self._open_collection(self.driver, own_disk.instance)
        await collection.compare()
        await own_disk.begin(self.storage, self.upkeep.checkpoint)
        await wait_for_address(self.driver, self.id, self._ports.advertised, patience_s, self._report_others)
        await self._listen()
        listing = await self._register(own_disk)
        self._begin(self.upkeep.checkpoints())
        self._begin(self.upkeep.compactions())
        self._begin(collection.runs(settings.gc_wait_s))
        self._begin(self.upkeep.disks(outside.disk, partial(self._look, listing)))
        self._begin(own_disk.progress.says(lambda: self.storage.positions))
        self._begin(listing.ended())
        self._begin_fill()
        if self.storage.folders.failed and self.storage.limbo:
            self._begin(self._marks.mark(list(self.storage.limbo)))
        if settings.scrub_bytes_per_s:
            self.scrubber = self._open_scrubber()
            self._begin(self.scrubber.run())
        if self._mend is not None:
            self._begin(self._mend(self._copies(OwnCopies)))
        if self._shed is not None and settings.surplus_wait_s:
            self.surplus = self._open_surplus(listing)
            self._begin(self.surplus.rounds(self._shed))

    async def _say_the_end(self, progress: ProgressRecord) -> None:
        """Say how far the disk is when nothing is written to it any more."""
        if self._clean:
            await progress.say(self.storage.positions)

    def _copies(self, kind: type[Copies]) -> Copies:
        worker = self._outside.workers("tally-fill")
        self._task_workers.append(worker)
        return kind(
            self.id, self.driver, self._outside, instance=self._instance, pace=self.repair_pace, storage=self.storage,
            service=self._service, committer=self.committer, worker=worker, counts=self.counts,
            look_at=self.looks.look_at, changed=self._show_limbo,
        )  # fmt: skip

    def _open_surplus(self, listing: Listing) -> SurplusCopies:
        settings = self._settings
        surplus, wait_s = self._copies(SurplusCopies), settings.surplus_wait_s
        path = os.path.join(folder_of(settings.home), SURPLUS_FILE)
        surplus.begin(
            GarbageRules.of(settings, wait_s), wait_s, WaitingFile(self._outside.disk, path),
            drop=self.upkeep.drop_copies, save=self.upkeep.save, report=listing.surplus_waits,
        )  # fmt: skip
        self.collection.ordered = surplus.ordered
        return surplus

    def _open_scrubber(self) -> Scrubber:
        worker = self._outside.workers("tally-scrub")
        self._task_workers.append(worker)
        return Scrubber(
            self.storage,
            self.driver,
            self._outside,
            folder=folder_of(self._settings.home),
            bytes_per_s=self._settings.scrub_bytes_per_s,
            worker=worker,
            counts=self.counts,
            show=self._show_scrub,
        )

    def _show_scrub(self) -> None:
        if self._listing is not None and self.scrubber is not None:
            self._listing.scrubbed(self.scrubber.progress.shown(self.scrubber.ends_ms), len(self.storage.damages))

    def _begin_fill(self) -> None:
        """Fetch what the bookie lacks of ledgers in limbo, unless that is under way."""
        if self._fill is not None and self.storage.limbo and (self._filling is None or self._filling.done()):
            self._filling = self._begin(self._fill(self._copies(LimboBookie)))

    def _folder_lost(self, ledgers: Sequence[LedgerId]) -> None:
        self._show_limbo()
        if self._listing is not None:  # else the start is not done, and does it
            self._begin_fill()
            self._begin(self._marks.mark(ledgers))

    def _show_limbo(self) -> None:
        if self._listing is not None:
            self._listing.in_limbo(len(self.storage.limbo))
            self._listing.damaged(len(self.storage.damages))

    async def _open_storage(self, own_disk: OwnDisk) -> None:
        settings, outside = self._settings, self._outside
        self._worker, self._journal_worker = outside.workers("tally-upkeep"), outside.workers("tally-journal")
        self._stack.callback(self._worker.close)
        self._stack.callback(self._journal_worker.close)
        journals, ledgers = tuple(map(journal_of, settings.journal_dirs)), tuple(map(ledgers_of, settings.ledger_dirs))
        opening = partial(
            Storage.open,
            outside.disk,
            StorageFolders(journals, ledgers),
            self._storage_settings,
            lost=[path for folder in own_disk.lost for path in (journal_of(folder), ledgers_of(folder))],
            failed=[ledgers_of(folder) for folder in self._folders.unusable],
        )
        self.storage = await self._worker.run(lambda: opening(clock=outside.clock, random=outside.random))
        try:
            own_disk.check_journals(self.storage.positions)
        except InvalidCookie:
            await self._worker.run(lambda: self.storage.close(clean=False))
            raise
        self._marks = LimboMarks(self.driver, self.id, self.storage.limbo, outside.clock)
        self.storage.identities.bound_unmade(settings.max_ledgers_without_metadata)
        self._stack.push_async_callback(self._close_storage)
        if (stats := self.storage.replay_stats).commits:
            counts, reason = asdict(stats), "the last process did not stop in order"
            outside.events.emit("journal replayed", **counts, reason=reason)
        self.committer = Committer(
            self.storage,
            self._journal_worker,
            outside.clock,
            self.counts,
            full=self._space,
            committed=lambda: self.upkeep.committed(),
            failed=self._fail,
        )
        self.upkeep = BookieUpkeep(
            self.storage,
            settings=self._storage_settings,
            worker=self._worker,
            guard=self.guard,
            counts=self.counts,
            events=outside.events,
            press=self.committer.press,
            moded=self._moded,
            deleted=lambda ledgers: self._service.polls.deleted(ledgers),
            folder_lost=self._folder_lost,
            places=DiskPlaces(settings.journal_dirs, {ledgers_of(folder): folder for folder in settings.ledger_dirs}),
            compaction_pace=(
                Pace(outside.clock, settings.compaction_bytes_per_s),
                Pace(outside.clock, settings.compaction_entries_per_s),
            ),
        )
        self.upkeep.measure(outside.disk)
        self.guard.set_drained(self._drain.is_there)

    def _report_deletions(self, waiting: int, ahead: int) -> None:
        if self._listing is not None:
            self._listing.deletions_wait(waiting, ahead)

    def _open_collection(self, driver: MetadataDriver, instance: str) -> GarbageCollection:
        settings, outside = self._settings, self._outside
        self.collection = GarbageCollection(
            driver, bookie=self.id, rules=GarbageRules.of(settings, settings.gc_wait_s), instance=instance,
            storage=self.storage, disk=outside.disk, folder=settings.home, worker=self._worker, recent=self._recent,
            clock=outside.clock, counts=self.counts, events=outside.events, delete=self.upkeep.collect,
            report=self._report_deletions, save=self.upkeep.save,
        )  # fmt: skip
        return self.collection

    async def _close_storage(self) -> None:
        """Close the storage. After a failed or stuck commit nothing is written: the next start replays the journal."""
        clean = self.committer.idle.is_set() and not self.failure.done()
        self.committer.close()
        # A commit may be under way. Its journal must not be closed before: the number of a closed file is soon that of
        # another one, and the commit would be written into that.
        await self._journal_worker.run(lambda: None)
        failed = self.storage.folders.failed
        try:
            await self._worker.run(lambda: self.storage.close(clean=clean))
            self._clean = clean
            self._report_failed(failed)
        except StorageError as error:
            self._outside.events.emit("no checkpoint at stop", reason=str(error))
            await self._worker.run(lambda: self.storage.close(clean=False))

    def _report_failed(self, before: Sequence[LedgerFolder]) -> None:
        """Tell of ledger folders that failed when the storage was closed."""
        ledgers, reason = len(self.storage.limbo), "at the last checkpoint: from the next start on it is not used"
        for folder in self.storage.folders.failed:
            if folder not in before:
                self._outside.events.emit("ledger folder failed", folder=folder.path, ledgers=ledgers, reason=reason)

    def _view(self) -> View:
        return View(
            self.counts,
            lambda: self.storage.stats(),
            lambda: not self.guard.read_only,
            self._is_metadata_reached,
            lambda: self.committer.staged_bytes,
            lambda: self.upkeep.usages,
        )

    async def _listen(self) -> None:
        settings = self._settings
        self.looks = Looks(
            self.driver,
            bookie=self.id,
            instance=self._instance,
            ledgers=self.storage.identities,
            renew=self.upkeep.renew,
            reserve=self.committer.reserve,
            flush=self.committer.flush,
            counts=self.counts,
            events=self._outside.events,
            failed=self._fail,
        )
        self._stack.push_async_callback(self.looks.close)
        behind = Behind(
            settings, self._outside, self.storage, self.committer, self.looks, self.guard, self.counts, self._recent,
            self._fail,
        )  # fmt: skip
        front = open_front(behind, self._stack)
        self._server, self._service, self._peers = front.server, front.service, front.peers
        self._stack.push_async_callback(self._ports.close)
        await self._ports.serve(self._server)

    def _pages(self) -> HealthPages:
        """Who came is for eyes of this machine alone."""
        more = {"/authentication": self.authentication} if is_near(self._settings.http_host) else {}
        return HealthPages(registry(self._view()), self._state, more)

    def authentication(self) -> list[dict[str, object]]:
        """Return who came, from where and how often, since the start: a row for each host and identity."""
        return self._peers.peers.rows() if self._peers is not None else []

    def _report_others(self, others: list[BookieId]) -> None:
        reason = "they are registered here and have left; clients would take this bookie for them"
        self._outside.events.emit("address not free", bookie=self.id, others=others, reason=reason)

    def _state(self) -> dict[str, object]:
        is_healthy, is_read_only = not self.failure.done(), self.guard.read_only
        state = {"healthy": is_healthy, "bookie": self.id, "read_only": is_read_only, "drained": self.guard.drained}
        return {**state, "metadata_reached": self._is_metadata_reached()}

    def _is_metadata_reached(self) -> bool:
        return self._listing is None or self._listing.reached

    async def _register(self, own_disk: OwnDisk) -> Listing:
        shown = {LIMBO: str(len(self.storage.limbo) or ""), FOLDERS: self.upkeep.shown_room}
        info = with_properties(self._ports.info, shown)
        registration = await own_disk.register(self.driver, info, read_only=self.guard.read_only)
        self._listing = Listing(self.id, registration, info, self.guard, self._outside.events)
        self._stack.push_async_callback(self._listing.leave)
        self._stack.push_async_callback(self._end_tasks)
        self._report_deletions(self.counts.deletions_waiting, self.counts.ledgers_ahead)
        self._listing.drained()
        self._begin(self._listing.follow())
        return self._listing

    def _look(self, listing: Listing) -> None:
        listing.look(self.upkeep.shown_room)
        if self.guard.set_drained(self._drain.is_there):
            listing.drained()

    def _space(self, error: DiskFull | None) -> None:
        """Hear that a commit waits for space or, without ``error``, does so no longer."""
        if error is not None and self.guard.filled("commit"):
            self._outside.events.emit("disk full", reason=str(error))
            self._moded()
        elif error is None and self.guard.written("commit"):
            self._moded()

    def _moded(self) -> None:
        if self._listing is not None:
            self._listing.changed()

    def _fail(self, error: Exception) -> None:
        """End all connections: the bookie cannot go on."""
        if not self.failure.done():
            self._outside.events.emit("bookie cannot go on", reason=str(error))
            self.failure.set_result(error)
            self.committer.close()
            self._server.abort()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        watch([task], self._fail)
        return task

    async def _end_tasks(self) -> None:
        await self.upkeep.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._task_workers:
            worker.close()
