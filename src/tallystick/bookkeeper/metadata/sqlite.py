"""A coordination service in one SQLite file, for one machine: ``tally dev`` needs nothing else.

Compare-and-set is a ``BEGIN IMMEDIATE`` transaction. The connection is in ``sqlite_file.py``, the statements are in
``sqlite_store.py``, the thread that all drivers of a file share is in ``sqlite_thread.py``, leases are in
``sqlite_leases.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tallystick.bookkeeper.metadata import ctoken
from tallystick.bookkeeper.metadata.driver import (
    Bookies,
    Creation,
    Moment,
    Record,
    Registration,
    Version,
    Versioned,
    Watch,
)
from tallystick.bookkeeper.metadata.sqlite_leases import Lease
from tallystick.bookkeeper.metadata.sqlite_store import PAGE
from tallystick.bookkeeper.metadata.sqlite_thread import SqliteThread
from tallystick.bookkeeper.metadata.watch import BOOKIES, take_place
from tallystick.bookkeeper.wire.registration import check_bookie_id
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import MetadataConflict, MetadataError

T = TypeVar("T")


class SqliteDriver:
    """A MetadataDriver; see ``driver.py``. The file is looked for at the first call."""

    def __init__(self, path: str, *, session_timeout_s: float = 10.0) -> None:
        self._session_timeout_s = session_timeout_s
        self._thread = SqliteThread.acquire(path)
        self._store = self._thread.store
        self._registrations: list[SqliteRegistration] = []
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._closed = False

    async def _read(self, job: Callable[[], T]) -> T:
        return await self._open_thread().call(job)

    async def _write(self, job: Callable[[], T]) -> T:
        return await self._open_thread().call(job, writes=True)

    def _open_thread(self) -> SqliteThread:
        if self._closed:
            raise MetadataError("this metadata connection is closed", path=self._store.path)
        return self._thread

    async def create_ledger(self, metadata: LedgerMetadata, ledger: LedgerId | None = None) -> Versioned[LedgerId]:
        stored = ctoken.stamped(metadata)
        return await self._write(partial(self._store.create_ledger, stored, ledger))

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        return await self._read(partial(self._store.read_ledger, ctoken.check_ledger_id(ledger)))

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Versioned[LedgerMetadata]]:
        asked = [ctoken.check_ledger_id(ledger) for ledger in ledgers]
        return await self._read(partial(self._store.read_ledgers, asked))

    async def write_ledger(self, ledger: LedgerId, metadata: LedgerMetadata, version: Version) -> Version:
        data = ctoken.rewritten(metadata)
        job = partial(self._store.write_ledger, ctoken.check_ledger_id(ledger), data, version)
        return await self._write(job)

    async def delete_ledger(self, ledger: LedgerId) -> None:
        await self._write(partial(self._store.delete_ledger, ctoken.check_ledger_id(ledger)))

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        last, page = -1, PAGE
        while page == PAGE:
            found = await self._read(partial(self._store.ledgers_after, last))
            for ledger in found:
                yield ledger
            last, page = found[-1] if found else last, len(found)

    async def sync(self) -> Moment:
        return await self._read(self._store.sync)

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        asked = [ctoken.check_ledger_id(ledger) for ledger in ledgers]
        return await self._read(partial(self._store.look_up, asked))

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        return self._watch(ctoken.check_ledger_id(ledger), changed)

    async def bookies(self) -> Bookies:
        return await self._read(self._store.bookies)

    def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return self._watch(BOOKIES, changed)

    def _watch(self, key: LedgerId | str, changed: Callable[[], None]) -> Watch:
        thread = self._open_thread()
        watch = thread.watchers.add(key, changed)
        self._watches.add(watch)
        thread.watched(key)
        return watch

    async def register(
        self, bookie: BookieId, info: BookieInfo, *, read_only: bool = False, replace: bool = False
    ) -> Registration:
        lease = Lease(check_bookie_id(bookie), info, str(uuid.uuid4()), self._session_timeout_s, read_only)
        registration = SqliteRegistration(self._open_thread(), lease)
        take = partial(registration.take, lease, replace=replace)
        try:
            await take_place(bookie, take, self.watch_bookies, self._session_timeout_s)
        except asyncio.CancelledError:  # the place may have been taken all the same
            registration.abandon()
            raise
        self._registrations.append(registration)
        return registration

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        return await self._read(partial(self._store.read_cookie, bookie))

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        await self._write(partial(self._store.write_cookie, check_bookie_id(bookie), cookie, version))

    async def delete_cookie(self, bookie: BookieId, version: Version) -> None:
        await self._write(partial(self._store.delete_cookie, bookie, version))

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        return await self._read(partial(self._store.bookie_creation, bookie))

    async def cookies(self) -> list[BookieId]:
        return await self._read(self._store.cookies)

    async def instance_id(self) -> str:
        return await self._read(self._store.instance_id)

    async def init_cluster(self) -> str:
        return await self._read(self._store.init_cluster)

    async def close(self) -> None:
        if self._closed:
            return
        for registration in self._registrations:
            await registration.close()
        self._registrations.clear()
        self._closed = True
        for watch in list(self._watches):
            watch.cancel()
        await self._thread.release()


class SqliteRegistration:
    """A Registration; its lease is renewed until it is closed or another process took the place."""

    def __init__(self, thread: SqliteThread, lease: Lease) -> None:
        self._thread, self._lease = thread, lease
        self._open = True
        self.lost = asyncio.Event()
        self.failure: Exception | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def is_reached(self) -> bool:
        return True  # it is a file, and its errors are told

    async def take(self, lease: Lease, *, replace: bool) -> bool:
        taken = await self._thread.call(partial(self._thread.store.take_place, lease, replace=replace), writes=True)
        if taken:  # the row alone is good for the first term
            await self._thread.call(partial(self._thread.hold, lease, self._on_lost))
        return taken

    def _on_lost(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self.lost.set)

    async def set_read_only(self, read_only: bool) -> None:
        await self._change(dataclasses.replace(self._lease, read_only=read_only))

    async def set_info(self, info: BookieInfo) -> None:
        await self._change(dataclasses.replace(self._lease, info=info))

    async def _change(self, lease: Lease) -> None:
        if not await self.take(lease, replace=False):
            raise MetadataConflict("another process took this bookie's registration", bookie=lease.bookie)
        self._lease = lease

    def abandon(self) -> None:
        """Leave, whether the place was taken or not."""
        self._thread.post(partial(self._thread.drop, self._lease))
        self._thread.post(partial(self._thread.store.leave_place, self._lease), writes=True)

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._thread.call(partial(self._thread.drop, self._lease))
            await self._thread.call(partial(self._thread.store.leave_place, self._lease), writes=True)
