"""A bookie comes back with an empty disk, or one that is behind, and does not know what it lost (``limbo.py``).

::

    not registered any more ─► folders marked ─► synced listing of all ledgers ─► those that name it in limbo and
    fenced, durably ─► the start counted ─► it listens, and registers, if nobody was since ─► cookies in place

A crash at any point leaves folders without a cookie, or a disk that is behind: only another rejoin starts with them.
The mark is the cookie under another name. Folders without either that hold data may be another bookie's: refused.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.bookkeeper.bookie.cookies import FILE, MARK, START_FILE, Folder, expected_cookie, look, require_same
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.progress import stored_start
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.store import Creation, Version
from tallystick.bookkeeper.wire import cookie as cookie_format
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import CorruptRecord, InvalidCookie, MetadataError, MetadataUnavailable, UsageError
from tallystick.runtime.atomic import write_atomic
from tallystick.runtime.disk import Disk, read_file

_PAGE = 1024  # ledgers
_TURN = 64  # of them, before others run
_TRIES = 3  # of a listing, when the connection breaks in it
_POLL_S = 0.2


@dataclass(frozen=True)
class NamedLedger:
    """A ledger whose ensembles have the bookie, or may have it. ``key`` is None where the metadata does not say it."""

    id: LedgerId
    key: bytes | None
    creation: Creation


class Rejoin:
    """One rejoin: ``prepare``, then ``list_ledgers`` and ``enter_limbo``, then ``finish`` when that is durable."""

    def __init__(
        self, driver: MetadataDriver, disk: Disk, bookie: BookieId, configured: StorageFolders, folders: Sequence[str]
    ) -> None:
        """``folders`` are the configured ones that can be used."""
        self._driver, self._disk, self._bookie = driver, disk, bookie
        self._configured, self._folders = configured, folders
        self._bare: Sequence[Folder] = ()
        self._cookie = b""
        self.bare: Sequence[str] = ()  # the folders that have no cookie, once prepared
        self.lost: Sequence[str] = ()  # those of which nothing is read: they came back empty
        self.instance = ""  # of the cluster, once prepared
        self.joined: Creation | None = None  # when the bookie's cookie was made, once prepared
        self.version: Version | None = None  # of the cookie, while nobody was registered; each registration makes one

    async def prepare(self, patience_s: float) -> None:
        """Check cookies and registration, and mark the folders that have no cookie. They exist and are locked.

        Raises UsageError while the bookie is registered, or if none of its id ever joined; InvalidCookie for folders of
        another one; MetadataError.
        """
        expected = await expected_cookie(self._driver, self._bookie, self._configured)
        record = await self._driver.read_cookie(self._bookie)
        if record is None:
            raise UsageError(
                "no bookie of this id ever joined this cluster: start it without --rejoin", bookie=self._bookie
            )
        self.joined = record.creation
        folders = [look(self._disk, path) for path in self._folders]
        service_cookie = cookie_format.decode(record.value, where="the metadata service")
        require_same(expected, service_cookie, folders)
        self._bare = [folder for folder in folders if folder.cookie is None]
        self.bare = [path for path, folder in zip(self._folders, folders, strict=True) if folder.cookie is None]
        self._cookie, self.instance = cookie_format.encode(expected), expected.instance_id or ""
        for folder in self._bare:
            mark = os.path.join(folder.path, MARK)
            if folder.has_data and not self._disk.exists(mark):
                reason = "this folder holds data without a cookie, which may be another bookie's: empty it, and rejoin"
                raise InvalidCookie(reason, bookie=self._bookie, folder=folder.path)
            if folder.has_data:
                rejoined = cookie_format.decode(read_file(self._disk, mark), where=mark)
                require_same(expected, None, [replace(folder, cookie=rejoined)])
            write_atomic(self._disk, mark, self._cookie)
        self.lost = () if self._is_whole(folders) else self.bare
        await self._wait_until_gone(patience_s)

    def _is_whole(self, folders: Sequence[Folder]) -> bool:
        """Return whether a rejoin that was cut short made a whole disk of the folders, but for some of the cookies: all
        of them lack those, or its start was counted in each, which is done when all else is durable."""
        if len(self._bare) == len(folders):
            return any(folder.has_data for folder in folders)
        try:
            starts = {stored_start(self._disk, os.path.join(folder.path, START_FILE)) for folder in folders}
        except CorruptRecord:
            return False
        return all(folder.has_data for folder in self._bare) and len(starts) == 1

    async def _wait_until_gone(self, patience_s: float) -> None:
        """Wait for the end of the registration: who is registered acknowledges entries that no listing has. One that
        hung may come back all the same: it is seen by the cookie, which is read first."""
        ends = asyncio.get_running_loop().time() + patience_s
        while True:
            record = await self._driver.read_cookie(self._bookie)
            self.version = None if record is None else record.version
            if (await self._driver.bookie_presence(self._bookie)).address is None:
                return
            if asyncio.get_running_loop().time() >= ends:
                raise UsageError("this bookie is registered: stop its process first", bookie=self._bookie)
            await asyncio.sleep(_POLL_S)

    async def list_ledgers(self) -> list[NamedLedger]:
        """Return all ledgers that name the bookie, or whose metadata cannot be read. Raises MetadataError."""
        for _ in range(_TRIES):
            began = await self._driver.sync()
            ledgers = await self._list()
            if began.instance != self.instance:
                raise MetadataError("the metadata is of another cluster", instance=began.instance)
            if await self._driver.sync() == began:
                return ledgers
        raise MetadataUnavailable("the connection to the metadata broke while ledgers were listed; try again")

    async def _list(self) -> list[NamedLedger]:
        named, page = list[NamedLedger](), list[LedgerId]()
        async for ledger in self._driver.ledgers():
            page.append(ledger)
            if len(page) == _PAGE:
                named += await self._named(page)
                page = []
        return named + await self._named(page)

    async def _named(self, page: Sequence[LedgerId]) -> list[NamedLedger]:
        nodes, named = await self._driver.read_ledgers(page), list[NamedLedger]()
        for count, ledger in enumerate(page):
            if not count % _TURN:
                await asyncio.sleep(0)
            if (node := nodes.get(ledger)) is None:
                named.append(NamedLedger(ledger, None, UNKNOWN))  # deleted just now, or not: one look is no proof
                continue
            try:
                metadata = wire.decode(node.data, where=str(ledger), ctime_ms=node.ctime_ms)
            except MetadataError:
                named.append(NamedLedger(ledger, None, UNKNOWN))
                continue
            if any(self._bookie in fragment.bookies for fragment in metadata.fragments):
                is_fenced = metadata.has_password and not metadata.is_closed
                named.append(NamedLedger(ledger, master_key(metadata.password) if is_fenced else None, node.creation))
        return named

    async def enter_limbo(self, storage: Storage, ledgers: Sequence[NamedLedger]) -> None:
        """Put them in limbo, and fence those that are not closed; durable with the next checkpoint."""
        for count, ledger in enumerate(ledgers):
            if not count % _TURN:
                await asyncio.sleep(0)
            storage.enter_limbo(ledger.id, ledger.key, ledger.creation)

    def finish(self) -> None:
        """Give the folders their cookies: an ordinary start may use them from now on. Raises StorageError."""
        for folder in self._bare:
            self._disk.rename(os.path.join(folder.path, MARK), os.path.join(folder.path, FILE))
            self._disk.sync_dir(folder.path)
