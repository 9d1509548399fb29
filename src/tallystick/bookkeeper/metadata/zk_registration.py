"""A bookie's ephemeral node, kept up: made again after the session was lost, until another session owns it.

Going read-only makes the node under ``available/readonly`` first and then deletes the one under ``available``, so that
the bookie is always listed; going back likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kazoo.exceptions import NoNodeError

from tallystick.bookkeeper.metadata.driver import Watch
from tallystick.bookkeeper.metadata.zk_session import RETRY_S, ZkSession
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.registration import READ_ONLY_FOLDER
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo
from tallystick.errors import MetadataConflict, MetadataError
from tallystick.runtime.tasks import watch


class ZkRegistration:
    """A Registration. ``take`` first; ``keep`` once that was true."""

    def __init__(self, session: ZkSession, available: str, bookie: BookieId, info: bytes, read_only: bool) -> None:
        self._session, self._available, self._bookie, self._info = session, available, bookie, info
        self._read_only = read_only
        self._changing = asyncio.Lock()
        self._watch: Watch | None = None
        self._looking: asyncio.Task[None] | None = None
        self._look_again = self._closed = False
        self.lost = asyncio.Event()
        self.failure: Exception | None = None

    def _path(self, read_only: bool) -> str:
        return "/".join((self._available, *([READ_ONLY_FOLDER] if read_only else []), self._bookie))

    @property
    def is_reached(self) -> bool:
        return self._session.is_connected

    async def take(self, *, replace: bool) -> bool:
        """Make our node, or find it made; False when another session has one, here or in the other list."""
        here, there = self._path(self._read_only), self._path(not self._read_only)
        while True:
            owners = {path: await self._owner(path) for path in (here, there)}
            if owners[here] == self._session.ids[-1]:
                return True
            foreign = [path for path, owner in owners.items() if owner not in (None, *self._session.ids)]
            if foreign and not replace:
                return False
            if any(owner in self._session.ids[:-1] for owner in owners.values()):
                await asyncio.sleep(RETRY_S)  # of our expired session: as good as gone
            elif await self._enter(here, foreign, there if owners[there] is None else None):
                return True

    async def _enter(self, here: str, foreign: list[str], empty: str | None) -> bool:
        """Make our node in place of others', in one step, and only while nobody is at ``empty``.

        So no bookie vanishes while it is replaced, and of two processes with one id at most one is in the lists.
        """

        def fill(parts: Any) -> None:
            for path in foreign:
                parts.delete(path)
            if empty is not None:  # making it fails where something is
                parts.create(empty, ephemeral=True)
                parts.delete(empty)
            parts.create(here, self._info, ephemeral=True)

        results = await self._session.transaction(fill)
        if any(isinstance(result, NoNodeError) for result in results[len(foreign) :]):
            await self._session.call("ensure_path", f"{self._available}/{READ_ONLY_FOLDER}")
        return not any(isinstance(result, Exception) for result in results)

    async def _owner(self, path: str) -> int | None:
        """The session that made a node; 0 when it does not end with a session."""
        stat = await self._session.call("exists", path)
        return None if stat is None else int(stat.ephemeralOwner)

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            await self._session.call("delete", path)

    def keep(self) -> None:
        """From now on look after each change of the node, and after each break of the connection."""
        self._watch = self._session.watch_node(self._path(self._read_only), self._changed, at_once=True)

    def _changed(self) -> None:
        self._look_again = True
        if self._looking is None and not self._closed:
            self._looking = asyncio.get_running_loop().create_task(self._look())
            watch([self._looking], self._fail)

    def _fail(self, error: Exception) -> None:
        """Nobody keeps the node up any more: a bookie that goes on would be missing in the list, and not know it."""
        self.let_go()
        self.failure = error
        self.lost.set()

    async def _look(self) -> None:
        try:
            while self._look_again and not self._closed:
                self._look_again = False
                async with self._changing:
                    if not await self.take(replace=False):
                        self.let_go()
                        self.lost.set()
        except MetadataError:
            self._session.later(self._changed)
        finally:
            self._looking = None

    def let_go(self) -> None:
        """Keep the node up no longer; it ends with the session."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()

    def abandon(self) -> None:
        """Let a node go that may or may not have been made."""
        self.let_go()
        self._session.post("delete", self._path(self._read_only))

    async def set_read_only(self, read_only: bool) -> None:
        """After a MetadataError the bookie may be in both lists, until this is called again."""
        async with self._changing:
            previous, self._read_only = self._read_only, read_only
            try:
                taken = await self.take(replace=False)
            except MetadataError:
                self._read_only = previous
                raise
            if not taken:
                self._read_only = previous
                raise MetadataConflict("another process took this bookie's registration", bookie=self._bookie)
            if self._watch is not None:
                self._watch.cancel()
            self.keep()
            await self._delete(self._path(not read_only))

    async def set_info(self, info: BookieInfo) -> None:
        data = registration.encode(info)
        async with self._changing:
            if not await self.take(replace=False):
                raise MetadataConflict("another process took this bookie's registration", bookie=self._bookie)
            self._info = data  # what a later session registers, too
            with contextlib.suppress(NoNodeError):  # the session ended just now: then it is made again with it
                await self._session.call("set", self._path(self._read_only), data)

    async def close(self) -> None:
        if self._closed:
            return
        self.let_go()
        async with self._changing:
            for path in (self._path(False), self._path(True)):
                if await self._owner(path) in self._session.ids:
                    await self._delete(path)
