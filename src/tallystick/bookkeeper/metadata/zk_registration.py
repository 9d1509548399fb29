"""A bookie's ephemeral node, kept up: made again after the session was lost, until another session owns it.

Going read-only makes the node under ``available/readonly`` first and then deletes the one under ``available``, so that
the bookie is always listed; going back likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from tallystick.bookkeeper.metadata.driver import Watch
from tallystick.bookkeeper.metadata.zk_session import RETRY_S, ZkSession
from tallystick.bookkeeper.wire.registration import READ_ONLY_FOLDER
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataConflict, MetadataError


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

    def _path(self, read_only: bool) -> str:
        return "/".join((self._available, *([READ_ONLY_FOLDER] if read_only else []), self._bookie))

    async def take(self, *, replace: bool) -> bool:
        """Make our node, or find it made; False when another session has one, here or in the other list."""
        here, there = self._path(self._read_only), self._path(not self._read_only)
        other = await self._owner(there)
        taken_there = other is not None and other[0] not in self._session.ids
        if taken_there and not replace:
            return False
        while not await self._create(here):
            found = await self._owner(here)
            if found is None:
                continue  # it vanished in between
            if found[0] == self._session.ids[-1]:
                break
            if found[0] in self._session.ids:  # of our expired session: as good as gone
                await asyncio.sleep(RETRY_S)
            elif replace:
                await self._replace(here, found[1])
            else:
                return False
        if taken_there:  # after ours is made: so a predecessor that lives sees that it was replaced
            await self._delete(there)
        return True

    async def _create(self, path: str) -> bool:
        try:
            await self._session.call("create", path, self._info, ephemeral=True)
        except NodeExistsError:
            return False
        except NoNodeError as error:
            raise MetadataError("the cluster has no folder for registrations", path=path) from error
        return True

    async def _replace(self, path: str, version: int) -> None:
        """In one step: nobody sees the bookie gone, and a former process of ours sees at once that it was replaced."""

        def fill(parts: Any) -> None:
            parts.delete(path, version=version)
            parts.create(path, self._info, ephemeral=True)

        await self._session.transaction(fill)  # whether it succeeded shows when the node is looked at again

    async def _owner(self, path: str) -> tuple[int, int] | None:
        """Session and version of a node."""
        stat = await self._session.call("exists", path)
        return None if stat is None else (stat.ephemeralOwner, stat.version)

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

    async def _look(self) -> None:
        try:
            while self._look_again and not self._closed:
                self._look_again = False
                async with self._changing:
                    if not await self.take(replace=False):
                        self.let_go()
                        self.lost.set()
                        await self._delete_own()  # made just before the other's was seen
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
        async with self._changing:
            if read_only == self._read_only:
                return
            self._read_only = read_only
            if not await self.take(replace=False):
                self._read_only = not read_only
                raise MetadataConflict("another process took this bookie's registration", bookie=self._bookie)
            if self._watch is not None:
                self._watch.cancel()
            await self._delete(self._path(not read_only))
            self.keep()

    async def close(self) -> None:
        if self._closed:
            return
        self.let_go()
        async with self._changing:
            await self._delete_own()

    async def _delete_own(self) -> None:
        for path in (self._path(False), self._path(True)):
            found = await self._owner(path)
            if found is not None and found[0] in self._session.ids:
                await self._delete(path)
