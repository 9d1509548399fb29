"""A bookie's ephemeral node, kept up: made again after the session was lost, until another session owns it, or the
bookie's cookie is gone: it was taken out while it hung, and its folders start no bookie any more.

Going read-only makes the node under ``available/readonly`` first and then deletes the one under ``available``, so that
the bookie is always listed; going back likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tallystick.bookkeeper.metadata.store import (
    Absent,
    Change,
    Create,
    Creation,
    Delete,
    MetadataStore,
    Update,
    Version,
    Watch,
    Znode,
)
from tallystick.bookkeeper.metadata.watch import Both, take_place
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.registration import READ_ONLY_FOLDER
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataConflict, MetadataError, NoSuchZnode
from tallystick.runtime.tasks import watch

RETRY_S = 0.1  # after a look that the service did not answer


class StoreRegistration:
    """A Registration. ``enter`` first: it is kept up once that has returned."""

    def __init__(
        self,
        store: MetadataStore,
        available: str,
        bookie: BookieId,
        info: BookieInfo,
        read_only: bool,
        *,
        cookie: str = "",
        joined: Creation | None = None,
        since: Version | None = None,
    ) -> None:
        """``cookie``: the path of the bookie's cookie. ``joined``: when that was made; None: it is not looked at.
        ``since``: its version when the bookie enters; None: any."""
        self._cookie, self._cookie_creation, self._since = cookie, joined, since
        self._store, self._available, self._bookie = store, available, bookie
        self._data, self._read_only = registration.encode(info), read_only
        self._changing = asyncio.Lock()
        self._watch: Watch | None = None
        self._look_task: asyncio.Task[None] | None = None
        self._look_again = self._closed = False
        self.loss = asyncio.Event()
        self.failure: Exception | None = None

    def _path(self, read_only: bool) -> str:
        return "/".join((self._available, *([READ_ONLY_FOLDER] if read_only else []), self._bookie))

    @property
    def is_reached(self) -> bool:
        return self._store.is_connected

    async def enter(self, *, replace: bool) -> None:
        """Take the place when it is free, or at once (``replace``). Raises MetadataConflict when its holder lives, or
        the bookie was taken out."""
        loop, store = asyncio.get_running_loop(), self._store
        attempts: list[asyncio.Task[bool]] = []

        async def attempt() -> bool:
            attempts.append(loop.create_task(self.take(replace=replace)))
            is_ours = await asyncio.shield(attempts[-1])
            if self.failure is not None:
                raise self.failure
            return is_ours

        try:
            await take_place(self._bookie, attempt, self._watch_places, store.expiry_s)
        except asyncio.CancelledError:  # the last attempt may take the place all the same
            with contextlib.suppress(MetadataError):
                await attempts[-1]
            with contextlib.suppress(MetadataError):
                await self.close()
            raise
        self._since = None
        self._keep()

    def _watch_places(self, changed: Callable[[], None]) -> Watch:
        return Both(*(self._store.watch(self._path(read_only), changed) for read_only in (False, True)))

    async def take(self, *, replace: bool) -> bool:
        """Make our node unless it exists. Returns False when another session has one, here or in the other list."""
        here, there = self._path(self._read_only), self._path(not self._read_only)
        while True:
            nodes, owners = dict(await self._store.get_many([here, there, *self._cookies])), self._store.owners
            cookie = nodes.pop(self._cookie, None)
            # A session that lapsed may go on, with its node.
            if self._cookies and (cookie is None or cookie.creation != self._cookie_creation):
                self.failure = MetadataConflict("it was taken out of the cluster meanwhile", bookie=self._bookie)
                return False
            if here in nodes and nodes[here].owner == owners[-1]:
                return True
            if cookie is not None and self._since not in (None, cookie.version):
                self.failure = MetadataConflict("it was registered meanwhile: rejoin again", bookie=self._bookie)
                return False
            foreign = [path for path, node in nodes.items() if node.owner not in owners]
            if foreign and not replace:
                return False
            if any(node.owner in owners[:-1] for node in nodes.values()):
                await asyncio.sleep(RETRY_S)  # of our expired session: as good as gone
            elif await self._fill(here, foreign, nodes.get(there) is None, there, cookie):
                return True

    @property
    def _cookies(self) -> list[str]:
        return [self._cookie] if self._cookie_creation is not None else []

    async def _fill(self, here: str, foreign: list[str], is_empty: bool, there: str, cookie: Znode | None) -> bool:
        """Make our node in place of others', in one step, and only while nobody is at the other place if it is empty.

        So no bookie vanishes while it is replaced, and of two processes with one id at most one is in the lists.
        """
        parts: list[Change] = [Delete(path) for path in foreign]
        if is_empty:
            parts.append(Absent(there))
        if cookie is not None:  # who takes bookies out sees by its version that this one was there meanwhile
            parts.append(Update(self._cookie, cookie.data, cookie.version))
        try:
            await self._store.change(*parts, Create(here, self._data, ephemeral=True))
        except MetadataConflict:
            return False  # somebody was faster: look again
        return True

    def _keep(self) -> None:
        """Check the node after each change of it and each break of the connection, from now on."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._store.watch(self._path(self._read_only), self._changed)
        self._changed()  # for what happened before the watch

    def _changed(self) -> None:
        self._look_again = True
        if self._look_task is None and not self._closed:
            self._look_task = asyncio.get_running_loop().create_task(self._look())
            watch([self._look_task], self._fail)

    def _fail(self, error: Exception) -> None:
        """Nobody keeps the node up any more: a bookie that goes on would be missing in the list, and not know it."""
        self.let_go()
        self.failure = error
        self.loss.set()

    async def _look(self) -> None:
        try:
            while self._look_again and not self._closed:
                self._look_again = False
                async with self._changing:
                    if not self._closed and not await self.take(replace=False):
                        self.let_go()
                        self.loss.set()
        except MetadataError:
            asyncio.get_running_loop().call_later(RETRY_S, self._changed)
        finally:
            self._look_task = None

    def let_go(self) -> None:
        """Keep the node up no longer; it ends with the session."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()

    async def set_read_only(self, read_only: bool) -> None:
        """Move to the other list. After a MetadataError the bookie may be in both, until this is called again."""
        async with self._changing:
            previous, self._read_only = self._read_only, read_only
            try:
                await self._retake()
            except MetadataError:
                self._read_only = previous
                raise
            self._keep()
            await self._delete_own(self._path(not read_only))

    async def set_info(self, info: BookieInfo) -> None:
        data = registration.encode(info)
        async with self._changing:
            await self._retake()
            self._data = data  # what a later session registers, too
            path = self._path(self._read_only)
            with contextlib.suppress(NoSuchZnode):  # the session ended just now: then it is made again with it
                if (node := await self._own(path)) is not None:
                    await self._store.change(Update(path, data, node.version))

    async def _retake(self) -> None:
        if not await self.take(replace=False):
            raise self.failure or MetadataConflict(
                "another process took this bookie's registration", bookie=self._bookie
            )

    async def _own(self, path: str) -> Znode | None:
        node = await self._store.get(path)
        return node if node is not None and node.owner in self._store.owners else None

    async def _delete_own(self, path: str) -> None:
        if (node := await self._own(path)) is not None:
            with contextlib.suppress(NoSuchZnode):
                await self._store.change(Delete(path, node.version))

    async def close(self) -> None:
        """Leave the lists. Raises MetadataError; the node then ends with the session."""
        if self._closed:
            return
        self.let_go()
        async with self._changing:
            for read_only in (False, True):
                await self._delete_own(self._path(read_only))
