"""The thread that owns a SQLite connection: runs calls in order, looks for others' changes, keeps registrations up.

Other processes' commits show in ``PRAGMA data_version``, asked for every 50 ms while anyone watches. It does not show
own commits, and an expiry is no commit at all: after each own call, and at the earliest expiry, the thread looks too.
Renewals are made here and not on the event loop, so that a busy loop does not cost a bookie its registration.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tallystick.bookkeeper.metadata.sqlite_store import Lease, Sight, SqliteStore, boot_now
from tallystick.bookkeeper.metadata.watch import BOOKIES, Watchers
from tallystick.errors import MetadataError, UsageError

T = TypeVar("T")

POLL_S = 0.05
RENEWALS = 3  # in the time of a lease
RETRY_S = 1.0  # after a renewal that failed


class SqliteThread:
    """Ends with ``close``, or with the process (it is a daemon)."""

    def __init__(self, store: SqliteStore, watchers: Watchers) -> None:
        self._store, self._watchers = store, watchers
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._leases: dict[str, tuple[Lease, Callable[[], None]]] = {}  # by owner; used on the thread only
        self._renew_at = float("inf")
        self._data_version = -1
        self._seen = Sight()
        self._running, self._closed, self._pid = True, False, os.getpid()
        self._thread = threading.Thread(target=self._run, name="tally-sqlite", daemon=True)
        self._thread.start()

    # -- from event loops ---------------------------------------------------------------------------------------------

    async def call(self, job: Callable[[], T], *, writes: bool = False) -> T:
        """Run ``job`` on the thread, after all calls before it. With ``writes`` own watchers are told at once."""
        self._check_usable()
        return await self._submit(job, writes)

    def _submit(self, job: Callable[[], T], writes: bool) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = job()
            except BaseException as error:
                _resolve(loop, future, None, error)
            else:
                if writes:
                    self._look()
                _resolve(loop, future, result, None)

        self._jobs.put(run)
        return future

    def post(self, job: Callable[[], object]) -> None:
        """Run ``job`` like ``call`` does, with nobody waiting for it; its MetadataError is dropped."""
        self._check_usable()

        def run() -> None:
            with contextlib.suppress(MetadataError):
                job()
                self._look()

        self._jobs.put(run)

    def watched(self) -> None:
        """Note how things are before whatever the caller asks next: a change after that is told."""
        self._check_usable()
        self._jobs.put(self._look)

    async def close(self) -> None:
        """Close the connection after all calls before it, and end."""

        def end() -> None:
            self._store.close()
            self._running = False

        if not self._closed:
            self._closed = True
            await self._submit(end, writes=False)

    def _check_usable(self) -> None:
        if self._closed:
            raise MetadataError("this metadata connection is closed", path=self._store.path)
        if self._pid != os.getpid():  # SQLite forbids it, and the thread is not here
            raise UsageError("a metadata connection does not survive a fork; connect again", path=self._store.path)

    # -- on the thread ------------------------------------------------------------------------------------------------

    def hold(self, lease: Lease, lost: Callable[[], None]) -> None:
        """Keep a lease up from now on (in place of an older one of its owner); ``lost`` when another took the place."""
        self._leases[lease.owner] = lease, lost
        self._renew_at = min(self._renew_at, time.monotonic() + lease.seconds / RENEWALS)

    def drop(self, lease: Lease) -> None:
        self._leases.pop(lease.owner, None)

    def _run(self) -> None:
        while self._running:
            wait = self._renew_at - time.monotonic()
            if self._watchers.keys():
                wait = min(wait, POLL_S)
            try:
                job = self._jobs.get(timeout=None if wait == float("inf") else max(wait, 0.0))
            except queue.Empty:
                job = self._tick
            job()

    def _tick(self) -> None:
        if time.monotonic() >= self._renew_at:
            self._renew()
        expired = self._seen.next_expiry is not None and boot_now() >= self._seen.next_expiry
        with contextlib.suppress(MetadataError):  # watchers hear of it when the file can be read again
            if self._watchers.keys() and (expired or self._store.data_version() != self._data_version):
                self._look()

    def _look(self) -> None:
        """Tell the watchers of all that differs from the last look."""
        keys = self._watchers.keys()
        if not keys:
            self._seen = Sight()
            return
        ledgers = [key for key in keys if isinstance(key, int)]
        try:
            # The version first: a commit between the two shows in the sight, and once more at the next tick.
            self._data_version, before = self._store.data_version(), self._seen
            self._seen = self._store.sight(ledgers, bookies=BOOKIES in keys)
        except MetadataError:
            return  # the next tick tries again
        for ledger in ledgers:
            if ledger in before.ledgers and before.ledgers[ledger] != self._seen.ledgers[ledger]:
                self._watchers.notify(ledger)
        if None not in (before.bookies, self._seen.bookies) and before.bookies != self._seen.bookies:
            self._watchers.notify(BOOKIES)

    def _renew(self) -> None:
        wait = float("inf")
        for lease, lost in list(self._leases.values()):
            wait = min(wait, lease.seconds / RENEWALS)
            try:
                # The row may have expired, or be gone: it is ours as long as nobody else has taken the place.
                if not self._store.take_place(lease, replace=False):
                    self.drop(lease)
                    lost()
            except MetadataError:
                wait = min(wait, RETRY_S)
        self._renew_at = time.monotonic() + wait


def _resolve(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], result: T | None, error: BaseException | None
) -> None:
    def settle() -> None:
        if future.done():  # its caller was cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None is the result of a T that is None

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(settle)
