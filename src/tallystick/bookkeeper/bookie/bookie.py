"""One bookie, from its folders to its registration, and back in reverse (``EmbeddedServer``; facts 6.8).

::

    folders locked ─► ports bound ─► cookie ─► journal replayed ─► alone at the address ─► listening ─► registered

A start that gets no port has written no cookie, which would list a bookie that never was. The lock proves that the last
process on these folders is dead and the cookie that they are this bookie's: only then may it take over a registration
that is still listed, without waiting for the old session to end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tallystick.bookkeeper.bookie.address import Address, wait_for_address
from tallystick.bookkeeper.bookie.collection import GarbageCollection
from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.config import BookieSettings, addresses_of
from tallystick.bookkeeper.bookie.cookies import check_cookies, folder_of, stored_instance
from tallystick.bookkeeper.bookie.fences import Fences
from tallystick.bookkeeper.bookie.garbage import GarbageRules
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.listing import Listing
from tallystick.bookkeeper.bookie.looking import Looks
from tallystick.bookkeeper.bookie.metrics import Counts, View, registry
from tallystick.bookkeeper.bookie.recent_adds import RecentAdds
from tallystick.bookkeeper.bookie.server import BookieServer, Bounds
from tallystick.bookkeeper.bookie.service import Service
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.bookie.upkeep import BookieUpkeep
from tallystick.bookkeeper.bookie.wire_v2 import WireV2
from tallystick.bookkeeper.bookie.wires import Wires
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import Connect, open_driver
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, Endpoint
from tallystick.errors import DiskFull, StorageError, UsageError
from tallystick.runtime.folders import make_folder
from tallystick.runtime.health import HealthPages, serve_health
from tallystick.runtime.network import Listener
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch


async def start_bookie(
    settings: BookieSettings, outside: Outside, storage: StorageSettings | None = None, connect: Connect = open_driver
) -> Bookie:
    """A bookie that is registered and answers; ``stop`` it. ``connect`` opens the metadata that the settings name.

    Raises UsageError (settings, folder in use, port), InvalidCookie, StorageError, MetadataError.
    """
    bookie = Bookie(settings, outside, storage or StorageSettings(), connect)
    try:
        await bookie._start()
    except BaseException:
        await bookie.stop()
        raise
    return bookie


class Bookie:
    """Made by ``start_bookie``. ``failure`` gets an exception when it cannot go on; ``stop`` it in any case."""

    def __init__(
        self, settings: BookieSettings, outside: Outside, storage_settings: StorageSettings, connect: Connect
    ) -> None:
        self._settings, self._outside, self._storage_settings = settings, outside, storage_settings
        self._connect = connect
        self._addresses = addresses_of(settings)
        self._stack = AsyncExitStack()  # what to undo, newest first
        self._tasks: list[asyncio.Task[None]] = []
        self._listing: Listing | None = None
        self._clean = False  # its storage was closed with a checkpoint
        self.counts = Counts()
        self.guard = DiskGuard(settings.disk_usage_threshold, settings.high_priority_spare_bytes)
        self._recent = RecentAdds()
        self.address: Address = (self._addresses.listen_host, settings.port)
        self.http_address: Address | None = None
        self._http_door: Listener | None = None
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @property
    def id(self) -> BookieId:
        return self._addresses.bookie

    @property
    def _advertised(self) -> Address:
        """What clients are told. Its port is known once it is bound."""
        return self._addresses.advertised_host, self.address[1]

    @property
    def _folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self._settings.journal_dir, self._settings.ledger_dir)))

    async def stop(self) -> None:
        """Leave the list of the living, answer what is under way, write a checkpoint, unlock the folders."""
        await self._stack.aclose()
        if self._clean:
            self._clean = False
            self._outside.events.emit("bookie stopped", bookie=self.id, reason="asked to; nothing is left to replay")

    async def _start(self) -> None:
        settings, outside = self._settings, self._outside
        self._lock_folders()
        await self._bind()
        self.driver = await self._connect(settings.metadata_uri, session_timeout_s=settings.session_timeout_s)
        self._stack.push_async_callback(self.driver.close)
        if await check_cookies(self.driver, outside.disk, self.id, settings.journal_dir, settings.ledger_dir):
            outside.events.emit("cookie written", bookie=self.id, reason="new bookie, empty folders")
        await self._open_storage()
        collection = self._open_collection(self.driver)
        await collection.compare()
        await wait_for_address(
            self.driver, self.id, self._advertised, 2 * settings.session_timeout_s, self._wait_for_address
        )
        await self._listen()
        listing = await self._register(self.driver)
        self._begin(self.upkeep.checkpoints())
        self._begin(collection.runs(settings.gc_wait_s))
        self._begin(self.upkeep.disks(outside.disk, self._folders, listing.look))
        self._begin(listing.ended())

    def _lock_folders(self) -> None:
        for folder in self._folders:
            make_folder(self._outside.disk, folder_of(folder))
            self._stack.callback(self._outside.disk.lock(folder_of(folder)).release)

    async def _open_storage(self) -> None:
        settings, outside = self._settings, self._outside
        self._worker, self._journal_worker = outside.workers("tally-upkeep"), outside.workers("tally-journal")
        self._stack.callback(self._worker.close)
        self._stack.callback(self._journal_worker.close)
        journal = os.path.join(folder_of(settings.journal_dir), "journal")
        ledgers = os.path.join(folder_of(settings.ledger_dir), "ledgers")
        self.storage = await self._worker.run(
            lambda: Storage.open(
                outside.disk, journal, ledgers, self._storage_settings, clock=outside.clock, random=outside.random
            )
        )
        self.storage.identities.bound_unmade(settings.max_ledgers_without_metadata)
        self._stack.push_async_callback(self._close_storage)
        if (stats := self.storage.replay_stats).commits:
            outside.events.emit(
                "journal replayed", commits=stats.commits, entries=stats.entries, bytes=stats.bytes,
                reason="the last process did not stop in order",
            )  # fmt: skip
        self.committer = Committer(
            self.storage, self._journal_worker, outside.clock, self.counts,
            full=self._space, committed=lambda: self.upkeep.committed(), failed=self._fail,
        )  # fmt: skip
        self.upkeep = BookieUpkeep(
            self.storage, self._storage_settings, self._worker, self.guard, self.counts, outside.events,
            press=self.committer.press, moded=self._moded,
        )  # fmt: skip
        self.guard.measured([outside.disk.usage(folder) for folder in self._folders])

    def _report_deletions(self, waiting: int, ahead: int) -> None:
        if self._listing is not None:
            self._listing.deletions_wait(waiting, ahead)

    def _open_collection(self, driver: MetadataDriver) -> GarbageCollection:
        settings, outside = self._settings, self._outside
        rules = GarbageRules(
            min(GarbageRules.gap_s, settings.gc_wait_s), settings.gc_large_share, patience_s=settings.gc_large_wait_s
        )
        self.collection = GarbageCollection(
            driver, self.id, rules, stored_instance(outside.disk, settings.ledger_dir), self.storage, outside.disk,
            settings.ledger_dir, self._worker, self._recent, outside.clock, self.counts, outside.events,
            delete=self.upkeep.collect, report=self._report_deletions, save=self.upkeep.save,
        )  # fmt: skip
        return self.collection

    async def _close_storage(self) -> None:
        """After a failed or stuck commit nothing more is written: the next start replays the journal."""
        clean = self.committer.idle.is_set() and not self.failure.done()
        self.committer.close()
        # A commit may be under way. Its journal must not be closed before: the number of a closed file is soon that of
        # another one, and the commit would be written into that.
        await self._journal_worker.run(lambda: None)
        try:
            await self._worker.run(lambda: self.storage.close(clean=clean))
            self._clean = clean
        except StorageError as error:
            self._outside.events.emit("no checkpoint at stop", reason=str(error))
            await self._worker.run(lambda: self.storage.close(clean=False))

    async def _bind(self) -> None:
        """Take the ports, and refuse connections until there is somebody to answer. Raises UsageError."""
        settings = self._settings
        self._door = await self._bound(
            self._addresses.listen_host, settings.port, "clients",
            partial(self._outside.network.listen, factory=lambda: self._server.session(), serving=False),
        )  # fmt: skip
        self.address = self._door.address
        if settings.http_enabled:
            pages = HealthPages(registry(self._view()), self._state)
            bind = partial(serve_health, self._outside.network, pages=pages, serving=False)
            self._http_door = await self._bound(settings.http_host, settings.http_port, "HTTP", bind)
            self.http_address = self._http_door.address

    async def _bound(self, host: str, port: int, whom: str, bind: Callable[..., Awaitable[Listener]]) -> Listener:
        try:
            listener = await bind(host=host, port=port)
        except OSError as error:
            raise UsageError(f"cannot listen for {whom}: {error.strerror}", host=host, port=port) from error
        self._stack.push_async_callback(listener.close)
        return listener

    def _view(self) -> View:
        return View(
            self.counts,
            lambda: self.storage.stats(),
            lambda: not self.guard.read_only,
            self._is_metadata_reached,
            lambda: self.committer.staged_bytes,
            lambda: dict(zip(self._folders, self.guard.usages, strict=True)),
        )

    async def _listen(self) -> None:
        settings = self._settings
        self.looks = Looks(
            self.driver, self.id, stored_instance(self._outside.disk, settings.ledger_dir), self.storage.identities,
            self.upkeep.renew, self.committer.reserve, self.committer.flush, self.counts, self._outside.events,
            self._fail,
        )  # fmt: skip
        self._stack.push_async_callback(self.looks.close)
        self.fences = Fences(
            self.storage, self.counts, self._recent, settings.max_fences_without_entries,
            looks=self.looks.has_room, tell=self._fences_refused,
        )  # fmt: skip
        service = Service(
            self.storage, self.guard, self.fences, self.counts, self._recent, looks=lambda: self.looks.active,
            look_at=self.looks.look_at,
        )  # fmt: skip
        largest = settings.max_frame_bytes
        v2 = WireV2(service, max_frame_bytes=largest, max_batch_bytes=settings.max_batch_read_bytes)
        wires = Wires(v2, max_frame_bytes=largest)
        bounds = Bounds.of(self._outside.open_files, settings.max_frame_bytes)
        self._server = BookieServer(wires, self.committer, self.looks, self.counts, self._outside.events, bounds)
        self._stack.push_async_callback(self._server.stop)
        try:
            await self._server.serve(self._door)
            if self._http_door is not None:
                self._stack.push_async_callback(self._http_door.close)
                await self._http_door.serve()
        except OSError as error:  # another process bound the port in the same moment and was faster
            raise UsageError(f"cannot listen: {error.strerror}", port=settings.port) from error
        if not self._addresses.is_loopback:
            self._outside.events.emit(
                "listening beyond this machine", host=self.address[0], port=self.address[1],
                reason="listeningInterface says so; whoever reaches the port can read and write",
            )  # fmt: skip

    def _wait_for_address(self, others: list[BookieId]) -> None:
        self._outside.events.emit(
            "address not free", bookie=self.id, others=others,
            reason="they are registered here and have left; clients would take this bookie for them",
        )  # fmt: skip

    def _fences_refused(self) -> None:
        self._outside.events.emit(
            "fences refused", count=self.storage.fences_without_entries,
            reason="so many ledgers without an entry here are fenced (maxFencesWithoutEntries); another is fenced when "
            "the metadata has it",
        )  # fmt: skip

    def _state(self) -> dict[str, object]:
        return {
            "healthy": not self.failure.done(), "bookie": self.id, "read_only": self.guard.read_only,
            "metadata_reached": self._is_metadata_reached(),
        }  # fmt: skip

    def _is_metadata_reached(self) -> bool:
        return self._listing is None or self._listing.reached

    async def _register(self, driver: MetadataDriver) -> Listing:
        info = BookieInfo.at(*self._advertised)
        if self.http_address is not None:
            info = BookieInfo((*info.endpoints, Endpoint("httpserver", *self.http_address, "http")))
        registration = await driver.register(self.id, info, read_only=self.guard.read_only, replace=True)
        self._listing = Listing(self.id, registration, info, self.guard, self._outside.events)
        self._stack.push_async_callback(self._listing.leave)
        self._stack.push_async_callback(self._end_tasks)
        self._report_deletions(self.counts.deletions_waiting, self.counts.ledgers_ahead)
        self._begin(self._listing.follow())
        return self._listing

    def _space(self, error: DiskFull | None) -> None:
        """A commit waits for space (or, without error, does no longer)."""
        if error is not None and self.guard.filled("commit"):
            self._outside.events.emit("disk full", reason=str(error))
            self._moded()
        elif error is None and self.guard.written("commit"):
            self._moded()

    def _moded(self) -> None:
        if self._listing is not None:
            self._listing.changed()

    def _fail(self, error: Exception) -> None:
        """The bookie cannot go on: nothing more is answered."""
        if not self.failure.done():
            self._outside.events.emit("bookie cannot go on", reason=str(error))
            self.failure.set_result(error)
            self.committer.close()
            self._server.abort()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        watch([task], self._fail)

    async def _end_tasks(self) -> None:
        await self.upkeep.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
