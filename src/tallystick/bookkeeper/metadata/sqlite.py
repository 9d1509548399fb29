"""A store in one SQLite file, for one machine: ``tally dev`` needs nothing else.

A change is a ``BEGIN IMMEDIATE`` transaction. The connection is in ``sqlite_file.py``, the statements are in
``sqlite_tree.py``, the thread that all stores of a file share is in ``sqlite_thread.py``, leases are in
``sqlite_leases.py``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tallystick.bookkeeper.metadata.sqlite_leases import Lease
from tallystick.bookkeeper.metadata.sqlite_thread import SqliteThread
from tallystick.bookkeeper.metadata.store import Change, Create, Creation, Point, Update, Watch, Znode
from tallystick.bookkeeper.metadata.watch import KeyWatch, children_key
from tallystick.errors import MetadataError

T = TypeVar("T")


class SqliteStore:
    """A MetadataStore; see ``store.py``. The first call opens the file."""

    is_connected, generation = True, 0  # it is a file, and its errors are told

    def __init__(self, path: str, *, session_timeout_s: float = 10.0) -> None:
        self.where, self.expiry_s = path, session_timeout_s
        self._thread = SqliteThread.acquire(path)
        self._tree = self._thread.tree
        self._lease = Lease(self._tree.leases.new_owner(), session_timeout_s)
        self.owners = (self._lease.owner,)
        self._beginning = asyncio.Lock()
        self._has_session = self._may_hold = self._closed = False
        self._watches: weakref.WeakSet[KeyWatch] = weakref.WeakSet()

    def _open_thread(self) -> SqliteThread:
        if self._closed:
            raise MetadataError("this metadata connection is closed", path=self.where)
        return self._thread

    async def _read(self, job: Callable[[], T]) -> T:
        return await self._open_thread().call(job)

    async def _write(self, job: Callable[[], T]) -> T:
        return await self._open_thread().call(job, writes=True)

    async def make(self) -> None:
        await self._read(self._tree.make)

    async def get(self, path: str) -> Znode | None:
        return (await self.get_many([path])).get(path)

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        return await self._read(partial(self._tree.get_many, paths))

    async def children(self, path: str) -> list[str] | None:
        return await self._read(partial(self._tree.children, path))

    async def change(self, *changes: Change) -> None:
        if any(isinstance(change, Create) and change.ephemeral for change in changes):
            await self._begin_session()
        update = changes[0] if len(changes) == 1 and isinstance(changes[0], Update) else None
        job = partial(self._tree.change, changes, self._lease.owner)
        await self._open_thread().call(job, writes=True, update=update)

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        return await self._write(partial(self._tree.create_next, counter, create, unless, self._lease.owner))

    async def another(self, *, session_timeout_s: float) -> SqliteStore:
        return SqliteStore(self.where, session_timeout_s=session_timeout_s)

    async def _begin_session(self) -> None:
        """Write the lease, before the first node that needs it."""
        async with self._beginning:
            if not self._has_session:
                self._may_hold = True
                await self._read(partial(self._thread.hold, self._lease, self._lapsed))
                self._has_session = True
                self._thread.post(self._tree.remove_left_behind, writes=True)

    def _lapsed(self) -> None:
        """The thread that renews leases calls this: for others our nodes had expired, and what we watch may differ."""
        self._thread.post(partial(self._tree.touch, self._lease.owner), writes=True)
        for watch in list(self._watches):
            watch.tell()

    async def sync(self) -> Point:
        return await self._read(self._tree.point)

    async def snapshot(self, paths: Sequence[str]) -> tuple[Point, Mapping[str, Znode]]:
        return await self._read(partial(self._tree.snapshot, paths))

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        return await self._read(partial(self._tree.never_made, creations))

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(path, changed)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(children_key(path), changed)

    def _watch(self, key: str, changed: Callable[[], None]) -> Watch:
        thread = self._open_thread()
        watch = thread.watchers.add(key, changed)
        self._watches.add(watch)
        thread.watched(key)
        return watch

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watch in list(self._watches):
            watch.cancel()
        try:
            if self._may_hold:
                await self._thread.call(partial(self._thread.drop, self._lease))
                await self._thread.call(partial(self._tree.end_session, self._lease.owner), writes=True)
        finally:
            await self._thread.release()
