"""A coordination service in ZooKeeper: the original's tree, byte for byte (``layout.py``), through kazoo.

The versions of compare-and-set are ZooKeeper's data versions. A registration lives as long as the session: when its
process dies, until the time that the server granted is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from tallystick.bookkeeper.metadata import ctoken, layout
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
from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.bookkeeper.metadata.watch import take_place
from tallystick.bookkeeper.metadata.zk_ids import LedgerIds
from tallystick.bookkeeper.metadata.zk_registration import ZkRegistration
from tallystick.bookkeeper.metadata.zk_session import Uncertain, ZkSession
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import LedgerExists, MetadataConflict, MetadataError, NoSuchLedger, UsageError

READS_AT_ONCE = 64
T = TypeVar("T")

LIST_ATTEMPTS = 5  # to see the lists of bookies without a bookie that is just moving


class ZooKeeperDriver:
    """A MetadataDriver; see ``driver.py``. That there is a cluster is looked up at the first call that needs one."""

    def __init__(self, session: ZkSession, root: str) -> None:
        self._session, self._root = session, root
        self._available, self._read_only = f"{root}/available", f"{root}/available/{registration.READ_ONLY_FOLDER}"
        self._ids = LedgerIds(session, root)
        self._registrations: list[ZkRegistration] = []
        self._has_layout = False

    @classmethod
    async def connect(cls, uri: ZooKeeperUri, *, session_timeout_s: float) -> ZooKeeperDriver:
        session = ZkSession(uri, session_timeout_s)
        await session.start()
        return cls(session, uri.root)

    async def _cluster(self) -> ZkSession:
        """The session, once the LAYOUT was seen to be one that we know."""
        if not self._has_layout:
            try:
                data, _ = await self._present(f"{self._root}/LAYOUT")
            except NoNodeError:
                raise self._no_cluster() from None
            layout.check_layout(data.decode(errors="replace"), f"{self._session.servers}{self._root}/LAYOUT")
            self._has_layout = True
        return self._session

    async def _present(self, path: str) -> Any:
        """Bytes and stat of a node. Raises NoNodeError when it is not there, which a server that lags cannot say."""
        with contextlib.suppress(NoNodeError):
            return await self._session.call("get", path)
        await self._session.sync(path)
        return await self._session.call("get", path)

    def _no_cluster(self) -> MetadataError:
        return MetadataError(
            "there is no cluster here; make one with `tally cluster init`",
            servers=self._session.servers, root=self._root,
        )  # fmt: skip

    # -- ledgers ------------------------------------------------------------------------------------------------------

    async def create_ledger(self, metadata: LedgerMetadata, ledger: LedgerId | None = None) -> Versioned[LedgerId]:
        session, stored = await self._cluster(), ctoken.stamped(metadata)
        data = wire.encode(stored)
        while True:
            chosen = await self._ids.next() if ledger is None else ctoken.check_ledger_id(ledger)
            path = layout.ledger_path(self._root, chosen)
            try:
                await self._create(path, data)
                return Versioned(chosen, 0)
            except NodeExistsError:
                with contextlib.suppress(NoNodeError):  # deleted in between: try again
                    found, stat = await session.call("get", path)
                    if ctoken.is_own(found, stored):
                        return Versioned(chosen, stat.version)
                    if ledger is not None:
                        raise LedgerExists(ledger=ledger) from None

    async def _create(self, path: str, data: bytes) -> None:
        while True:  # until no delete prunes a folder between its making and ours
            with contextlib.suppress(NoNodeError):
                await self._session.call("create", path, data, makepath=True)
                return

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        session, path = await self._cluster(), layout.ledger_path(self._root, ctoken.check_ledger_id(ledger))
        try:
            data, stat = await self._present(path)
        except NoNodeError:
            raise NoSuchLedger(ledger=ledger) from None
        where = f"{session.servers}{path}"
        return Versioned(wire.decode(data, where=where, ctime_ms=stat.ctime), stat.version)

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Versioned[LedgerMetadata]]:
        async def read(ledger: LedgerId) -> Versioned[LedgerMetadata] | None:
            try:
                return await self.read_ledger(ledger)
            except NoSuchLedger:
                return None

        found = await _pipelined(read, ledgers)
        return {ledger: each for ledger, each in found.items() if each is not None}

    async def write_ledger(self, ledger: LedgerId, metadata: LedgerMetadata, version: Version) -> Version:
        session, path = await self._cluster(), layout.ledger_path(self._root, ctoken.check_ledger_id(ledger))
        data = ctoken.rewritten(metadata)
        try:
            stat = await session.call("set", path, data, version, repeatable=False)
            return int(stat.version)
        except NoNodeError:
            raise NoSuchLedger(ledger=ledger) from None
        except BadVersionError:
            raise MetadataConflict(ledger=ledger, expected=version) from None
        except Uncertain:
            return await self._was_written(ledger, path, data, version)

    async def _was_written(self, ledger: LedgerId, path: str, data: bytes, version: Version) -> Version:
        """After a write whose answer was lost: ours stands if its bytes are there under the next version.

        Another client that wrote the same bytes is no danger: the next write of one of us fails.
        """
        try:
            stored, stat = await self._session.call("get", path)
        except NoNodeError:
            raise NoSuchLedger(ledger=ledger) from None
        if (stored, stat.version) != (data, version + 1):
            raise MetadataConflict(ledger=ledger, expected=version, stored=stat.version)
        return version + 1

    async def delete_ledger(self, ledger: LedgerId) -> None:
        session, path = await self._cluster(), layout.ledger_path(self._root, ctoken.check_ledger_id(ledger))
        try:
            await session.call("delete", path, repeatable=False)
        except NoNodeError:
            raise NoSuchLedger(ledger=ledger) from None
        except Uncertain:
            pass  # gone: by the attempt whose answer was lost
        with contextlib.suppress(NotEmptyError, MetadataError):  # folders that stay cost a listing little
            for folder in layout.folders_of(self._root, path):
                with contextlib.suppress(NoNodeError):
                    await session.call("delete", folder)

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        session = await self._cluster()
        try:
            names = await session.call("get_children", self._root)
        except NoNodeError:
            raise self._no_cluster() from None
        for pattern, depth in ((r"\d{2}", 2), (r"\d{3}", 4)):  # short ids are smaller than long ones
            for name in sorted(name for name in names if re.fullmatch(pattern, name, re.ASCII)):
                async for ledger in self._below(f"{self._root}/{name}", name, depth):
                    yield ledger

    async def _below(self, folder: str, digits: str, depth: int) -> AsyncIterator[LedgerId]:
        """Ledgers in a folder that is ``depth`` levels above its ledgers."""
        try:
            names = await self._session.call("get_children", folder)
        except NoNodeError:
            return  # its last ledger was deleted, and the folder with it, since the folder above was listed
        for name in sorted(names):
            if depth > 1 and re.fullmatch(r"\d{4}", name, re.ASCII):
                async for ledger in self._below(f"{folder}/{name}", digits + name, depth - 1):
                    yield ledger
            elif depth == 1 and re.fullmatch(r"L\d{4}", name, re.ASCII):
                yield int(digits + name[1:])

    async def sync(self) -> Moment:
        session = await self._cluster()
        while True:
            generation = await session.sync(self._root)
            instance, newest = await self.instance_id(), session.newest
            if generation == session.generation:
                return Moment(instance, generation, newest)

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        await self._cluster()
        return await _pipelined(self._look_up, ledgers)

    async def _look_up(self, ledger: LedgerId) -> Record | None:
        try:
            data, stat = await self._session.call("get", layout.ledger_path(self._root, ctoken.check_ledger_id(ledger)))
        except NoNodeError:
            return None
        return Record(wire.state_of(data), int(stat.czxid))

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        return self._session.watch_node(layout.ledger_path(self._root, ctoken.check_ledger_id(ledger)), changed)

    # -- registrations ------------------------------------------------------------------------------------------------

    async def bookies(self) -> Bookies:
        """A bookie that moves between the lists, which are two reads, is in one of them at least."""
        await self._cluster()
        for _ in range(LIST_ATTEMPTS):
            # The writable ones before and after: a bookie that comes back enters there before it leaves the others.
            folders = (self._available, self._read_only, self._available)
            lists = await asyncio.gather(*(self._children(folder) for folder in folders))
            writable, read_only = {*lists[0], *lists[2]}, lists[1]
            found = await asyncio.gather(
                self._infos(self._available, writable), self._infos(self._read_only, read_only)
            )
            if (len(found[0]), len(found[1])) == (len(writable), len(read_only)):
                break  # none left its list while it was read
        return Bookies(*found)

    async def _children(self, folder: str) -> list[BookieId]:
        try:
            names = await self._session.call("get_children", folder)
        except NoNodeError:
            return []
        return [name for name in names if name != registration.READ_ONLY_FOLDER]

    async def _infos(self, folder: str, names: Iterable[BookieId]) -> dict[BookieId, BookieInfo]:
        bookies = sorted(names)
        found = await asyncio.gather(*(self._get(f"{folder}/{bookie}") for bookie in bookies))
        pairs = zip(bookies, found, strict=True)
        return {bookie: registration.decode_or_empty(each.value, bookie) for bookie, each in pairs if each is not None}

    def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return _Both(*(self._session.watch_children(path, changed) for path in (self._available, self._read_only)))

    async def register(
        self, bookie: BookieId, info: BookieInfo, *, read_only: bool = False, replace: bool = False
    ) -> Registration:
        session, data = await self._cluster(), registration.encode(info)
        made = ZkRegistration(session, self._available, registration.check_bookie_id(bookie), data, read_only)
        # ZooKeeper notices a dead session only at the next of its ticks, so wait a little longer than the session time.
        timeout_s = session.timeout_s * 1.5
        try:
            await take_place(bookie, partial(made.take, replace=replace), self.watch_bookies, timeout_s)
        except asyncio.CancelledError:  # the place may have been taken all the same
            made.abandon()
            raise
        made.keep()
        self._registrations.append(made)
        return made

    # -- cookies and the cluster --------------------------------------------------------------------------------------

    async def _get(self, path: str) -> Versioned[bytes] | None:
        try:
            data, stat = await self._session.call("get", path)
        except NoNodeError:
            return None
        return Versioned(data, stat.version)

    def _cookie_path(self, bookie: BookieId) -> str:
        return f"{self._root}/cookies/{registration.check_bookie_id(bookie)}"

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        await self._cluster()
        return await self._get(self._cookie_path(bookie))

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        session, path = await self._cluster(), self._cookie_path(bookie)

        try:
            if version is None:
                await session.call("create", path, cookie, makepath=True, repeatable=False)
            else:
                await session.call("set", path, cookie, version, repeatable=False)
        except Uncertain:
            wanted = Versioned(cookie, 0 if version is None else version + 1)
            if await self._get(path) != wanted:
                raise MetadataConflict("another process changed this cookie first", bookie=bookie) from None
        except (NodeExistsError, BadVersionError, NoNodeError):
            raise MetadataConflict("another process changed this cookie first", bookie=bookie) from None

    async def delete_cookie(self, bookie: BookieId, version: Version) -> None:
        session, path = await self._cluster(), self._cookie_path(bookie)
        try:
            await session.call("delete", path, version)
        except NoNodeError:
            pass
        except BadVersionError:
            raise MetadataConflict("another process changed this cookie first", bookie=bookie) from None

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        """The transaction that made the cookie: the original's bookies have it too."""
        session, path = await self._cluster(), self._cookie_path(bookie)
        while True:
            generation = await session.sync(path)
            stat = await session.call("exists", path)
            if generation == session.generation:
                return None if stat is None else int(stat.czxid)

    async def cookies(self) -> list[BookieId]:
        session = await self._cluster()
        try:
            return sorted(await session.call("get_children", f"{self._root}/cookies"))
        except NoNodeError:
            return []  # the folder comes with the first cookie

    async def instance_id(self) -> str:
        await self._cluster()
        found = await self._get(f"{self._root}/INSTANCEID")
        if found is None:
            raise MetadataError("the cluster has no instance id", servers=self._session.servers, root=self._root)
        return found.value.decode(errors="replace")

    async def init_cluster(self) -> str:
        """Like the original's ``initnewcluster``, in one transaction: a cluster is there whole or not at all."""
        instance = str(uuid.uuid4())
        parent = self._root.rpartition("/")[0]
        if parent:
            await self._session.call("ensure_path", parent)

        def fill(parts: Any) -> None:
            for path in (self._root, self._available, self._read_only):
                parts.create(path)
            parts.create(f"{self._root}/INSTANCEID", instance.encode())
            parts.create(f"{self._root}/LAYOUT", layout.LAYOUT_TEXT.encode())

        results = await self._session.transaction(fill)
        failed = [result for result in results if isinstance(result, Exception)]
        if failed and await self._get(f"{self._root}/INSTANCEID") != Versioned(instance.encode(), 0):
            # Not our own first attempt, whose answer was lost.
            raise UsageError("there is something here already", servers=self._session.servers, root=self._root)
        return instance

    async def close(self) -> None:
        for made in self._registrations:
            made.let_go()
        await self._session.close()


async def _pipelined(read: Callable[[LedgerId], Awaitable[T]], ledgers: Sequence[LedgerId]) -> dict[LedgerId, T]:
    """What ``read`` says of each ledger, ``READS_AT_ONCE`` at a time."""
    found: dict[LedgerId, T] = {}
    for at in range(0, len(ledgers), READS_AT_ONCE):
        part = ledgers[at : at + READS_AT_ONCE]
        found.update(zip(part, await asyncio.gather(*map(read, part)), strict=True))
    return found


class _Both:
    """Two watches as one."""

    def __init__(self, *watches: Watch) -> None:
        self._watches = watches

    def cancel(self) -> None:
        for watch in self._watches:
            watch.cancel()
