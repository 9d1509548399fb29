"""A cluster's metadata over any store: ledgers, cookies, registrations, its identity. The tree is in ``layout.py``.

The versions of compare-and-set are those of the nodes. A registration lives as long as the store's session: when its
process dies, until the session has expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from tallystick.bookkeeper.metadata import ctoken, layout
from tallystick.bookkeeper.metadata.driver import (
    BookiePresence,
    BookieRegistration,
    Moment,
    Record,
    Records,
    RegisteredBookies,
    Versioned,
)
from tallystick.bookkeeper.metadata.layout import Manager
from tallystick.bookkeeper.metadata.ledger_ids import LedgerIds
from tallystick.bookkeeper.metadata.registration import StoreRegistration
from tallystick.bookkeeper.metadata.store import (
    Absent,
    Create,
    Creation,
    Delete,
    MetadataStore,
    Update,
    Version,
    Watch,
    Znode,
)
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT
from tallystick.bookkeeper.metadata.watch import Both
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire import registration
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import (
    LedgerExists,
    MetadataConflict,
    MetadataError,
    NoSuchLedger,
    NoSuchZnode,
    UsageError,
    ZnodeChanged,
    ZnodeExists,
)

LIST_ATTEMPTS = 5  # to see the lists of bookies without a bookie that is just moving
DECODED_A_TURN = 128  # ledgers, before others run: about 3 ms
_COOKIE_CHANGED = "another process changed this cookie first"

# The parts of a ledger's path: the topmost folder of short ids and of long ones, those below, the node.
_SHORT, _LONG, _MIDDLE, _LEDGER = (re.compile(part, re.ASCII) for part in (r"\d{2}", r"\d{3}", r"\d{4}", r"L\d{4}"))


class ClusterMetadata:
    """A MetadataDriver; see ``driver.py``. The first call that needs a cluster checks that there is one.

    ``wanted``: how the cluster must keep its ledgers, and how
    a new one does; None for any.
    """

    def __init__(self, store: MetadataStore, root: str = DEFAULT_ROOT, wanted: Manager | None = None) -> None:
        self._store, self._root = store, root
        self._available, self._read_only = f"{root}/available", f"{root}/available/{registration.READ_ONLY_FOLDER}"
        self._instance_path = f"{root}/INSTANCEID"
        self._ids = LedgerIds(store, root)
        self._registrations: list[StoreRegistration] = []
        self._wanted = wanted
        self._manager: Manager | None = None  # once the LAYOUT is read

    @property
    def store(self) -> MetadataStore:
        return self._store

    @property
    def root(self) -> str:
        return self._root

    async def _cluster(self) -> MetadataStore:
        """Returns the store when the LAYOUT is one that we know."""
        if self._manager is None:
            path = f"{self._root}/LAYOUT"
            layout_node = (await self._present([path])).get(path)
            if layout_node is None:
                raise self._no_cluster()
            where = f"{self.store.where}{path}"
            manager = layout.manager_of(layout_node.data.decode(errors="replace"), where)
            if self._wanted not in (None, manager):
                stored = manager.value.rpartition(".")[2]
                raise MetadataError(
                    f"the cluster keeps its ledgers with {stored}; the URI asks for another", where=where
                )
            self._manager = manager
        return self.store

    async def _present(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        """Returns the nodes that exist, also those that a server which lags does not have yet."""
        nodes = await self.store.get_many(paths)
        if missing_paths := [path for path in paths if path not in nodes]:
            await self.store.sync()
            nodes = {**nodes, **await self.store.get_many(missing_paths)}
        return nodes

    def _no_cluster(self) -> MetadataError:
        return MetadataError(
            "there is no cluster here; make one with `tally cluster init`", where=self.store.where, root=self._root
        )

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def _path(self, ledger: LedgerId) -> str:
        """Returns where a ledger is, after ``_cluster``."""
        assert self._manager is not None
        return layout.ledger_path(self._root, ctoken.check_ledger_id(ledger), self._manager)

    async def create_ledger(
        self,
        metadata: LedgerMetadata,
        ledger: LedgerId | None = None,
        *,
        beside: Callable[[LedgerId], Sequence[Create]] = lambda ledger: (),
    ) -> Versioned[LedgerId]:
        await self._cluster()
        stamped_metadata = ctoken.stamped(metadata)
        data = wire.encode(stamped_metadata)
        if ledger is not None:
            return await self._create_with_id(ledger, stamped_metadata, data)
        while True:
            with contextlib.suppress(ZnodeExists):  # somebody chose this id
                return Versioned(await self._ids.create_next(lambda id: (Create(self._path(id), data), *beside(id))), 0)

    async def skip_ids(self, ledgers: Collection[LedgerId]) -> None:
        await self._cluster()
        await self._ids.skip(ledgers)

    async def _create_with_id(self, ledger: LedgerId, metadata: LedgerMetadata, data: bytes) -> Versioned[LedgerId]:
        path = self._path(ledger)
        while True:
            try:
                await self.store.change(Create(path, data))
                return Versioned(ledger, 0)
            except ZnodeExists:
                node = await self.store.get(path)
                if node is None:  # deleted in between: try again
                    continue
                if ctoken.is_own(node.data, metadata):
                    return Versioned(ledger, node.version)
                raise LedgerExists(ledger=ledger) from None

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        node = (await self.read_ledgers([ledger])).get(ledger)
        if node is None:
            raise NoSuchLedger(ledger=ledger)
        where = f"{self.store.where}{self._path(ledger)}"
        return Versioned(wire.decode(node.data, where=where, ctime_ms=node.ctime_ms), node.version)

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Znode]:
        await self._cluster()
        paths = {ledger: self._path(ledger) for ledger in ledgers}
        nodes = await self._present(list(paths.values()))
        return {ledger: nodes[path] for ledger, path in paths.items() if path in nodes}

    async def write_ledger(
        self, ledger: LedgerId, metadata: LedgerMetadata, version: Version, *, absent: Collection[BookieId] = ()
    ) -> Version:
        data, store = ctoken.rewritten(metadata), await self._cluster()
        places = [place for bookie in absent for place in self._no_places(bookie)]
        try:
            await store.change(Update(self._path(ledger), data, version), *places)
        except NoSuchZnode:
            raise NoSuchLedger(ledger=ledger) from None
        except ZnodeChanged as error:
            raise MetadataConflict(ledger=ledger, expected=version, stored=error.stored) from None
        return version + 1

    async def delete_ledger(self, ledger: LedgerId) -> None:
        store, path = await self._cluster(), self._path(ledger)
        try:
            await store.change(Delete(path))
        except NoSuchZnode:
            raise NoSuchLedger(ledger=ledger) from None
        with contextlib.suppress(MetadataError):  # folders that stay cost a listing little
            for folder in layout.folders_of(self._root, path):
                with contextlib.suppress(NoSuchZnode):
                    await store.change(Delete(folder))

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        names = await (await self._cluster()).children(self._root)
        if names is None:
            raise self._no_cluster()
        for folder, depth in ((_SHORT, 2), (_LONG, 4)):  # short ids are smaller than long ones
            for name in filter(folder.fullmatch, names):
                async for ledgers in self._below(f"{self._root}/{name}", name, depth):
                    for ledger in ledgers:
                        yield ledger

    async def _below(self, folder: str, digits: str, depth: int) -> AsyncIterator[list[LedgerId]]:
        """Yields the ledgers of a folder that is ``depth`` levels above them, those of each inner folder together."""
        # None: its last ledger was deleted, and the folder with it, since the folder above was listed.
        names = await self.store.children(folder) or []
        if depth == 1:
            yield [int(digits + name[1:]) for name in filter(_LEDGER.fullmatch, names)]
            return
        for name in filter(_MIDDLE.fullmatch, names):
            async for ledgers in self._below(f"{folder}/{name}", digits + name, depth - 1):
                yield ledgers

    async def sync(self) -> Moment:
        store = await self._cluster()
        while True:
            point, instance = await store.sync(), await self.instance_id()
            if point.generation == store.generation:
                return Moment(instance, point.generation, point.newest)

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        return await (await self._cluster()).never_made(creations)

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        store = await self._cluster()
        paths = {ledger: self._path(ledger) for ledger in ledgers}
        return await self._records(paths, await store.get_many(list(paths.values())))

    async def look(self, ledgers: Sequence[LedgerId]) -> Records:
        store = await self._cluster()
        paths = {ledger: self._path(ledger) for ledger in ledgers}
        snapshot = await store.snapshot([self._instance_path, *paths.values()])
        if snapshot is None:
            return Records(await self.sync(), await self.look_up(ledgers), await self.sync())
        point, nodes = snapshot
        moment = Moment(self._instance(nodes), point.generation, point.newest)
        return Records(moment, await self._records(paths, nodes), moment)

    async def _records(
        self, paths: Mapping[LedgerId, str], nodes: Mapping[str, Znode]
    ) -> Mapping[LedgerId, Record | None]:
        records: dict[LedgerId, Record | None] = {}
        for ledger, path in paths.items():
            records[ledger] = _record(nodes.get(path))
            if len(records) % DECODED_A_TURN == 0:
                await asyncio.sleep(0)
        return records

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        if self._manager is not None:
            return self.store.watch(self._path(ledger), changed)
        paths = [layout.ledger_path(self._root, ctoken.check_ledger_id(ledger), manager) for manager in Manager]
        return Both(*(self.store.watch(path, changed) for path in paths))

    # -- registrations ------------------------------------------------------------------------------------------------

    async def bookies(self) -> RegisteredBookies:
        """A bookie that moves between the lists, which are two reads, is in one of them at least."""
        await self._cluster()
        for _ in range(LIST_ATTEMPTS):
            # The writable ones before and after: a bookie that comes back enters there before it leaves the others.
            folders = (self._available, self._read_only, self._available)
            lists = await asyncio.gather(*(self._registered(folder) for folder in folders))
            writable, read_only = sorted({*lists[0], *lists[2]}), sorted(lists[1])
            paths = {f"{self._available}/{name}": name for name in writable}
            paths_read_only = {f"{self._read_only}/{name}": name for name in read_only}
            nodes = await self.store.get_many([*paths, *paths_read_only])
            if len(nodes) == len(writable) + len(read_only):
                break  # none left its list while it was read
        return RegisteredBookies(_infos(paths, nodes), _infos(paths_read_only, nodes))

    async def _registered(self, folder: str) -> list[BookieId]:
        names = await self.store.children(folder) or []
        return [name for name in names if name != registration.READ_ONLY_FOLDER]

    def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return Both(*(self.store.watch_children(path, changed) for path in (self._available, self._read_only)))

    async def register(
        self,
        bookie: BookieId,
        info: BookieInfo,
        *,
        read_only: bool = False,
        replace: bool = False,
        joined: Creation | None = None,
        since: Version | None = None,
    ) -> BookieRegistration:
        cookie, store = self._cookie_path(bookie), await self._cluster()
        place = StoreRegistration(
            store, self._available, bookie, info, read_only, cookie=cookie, joined=joined, since=since
        )
        await place.enter(replace=replace)
        self._registrations.append(place)
        return place

    def _no_places(self, bookie: BookieId) -> list[Absent]:
        """Returns what a change has beside it that is made only while a bookie is not registered."""
        return [Absent(f"{folder}/{bookie}") for folder in (self._available, self._read_only)]

    # -- cookies and the cluster --------------------------------------------------------------------------------------

    def _cookie_path(self, bookie: BookieId) -> str:
        return f"{self._root}/cookies/{registration.check_bookie_id(bookie)}"

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        path = self._cookie_path(bookie)
        node = (await self._synced([path])).get(path)
        return None if node is None else Versioned(node.data, node.version, node.creation)

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        store, path = await self._cluster(), self._cookie_path(bookie)
        try:
            await store.change(Create(path, cookie) if version is None else Update(path, cookie, version))
        except MetadataConflict:
            raise MetadataConflict(_COOKIE_CHANGED, bookie=bookie) from None

    async def delete_cookie(self, bookie: BookieId, version: Version, *beside: Create, is_down: bool = False) -> None:
        store, path = await self._cluster(), self._cookie_path(bookie)
        places = self._no_places(bookie) if is_down else []
        try:
            await store.change(Delete(path, version), *places, *beside)
        except NoSuchZnode:
            pass
        except MetadataConflict:
            reason = "another process changed this cookie first, or it came back" if is_down else _COOKIE_CHANGED
            raise MetadataConflict(reason, bookie=bookie) from None

    def _progress_path(self, bookie: BookieId) -> str:
        return f"{layout.own_folder(self._root)}/bookies/{registration.check_bookie_id(bookie)}"

    async def read_progress(self, bookie: BookieId) -> Versioned[bytes] | None:
        path = self._progress_path(bookie)
        node = (await self._synced([path])).get(path)
        return None if node is None else Versioned(node.data, node.version)

    async def write_progress(self, bookie: BookieId, progress: bytes, version: Version | None) -> None:
        store, path = await self._cluster(), self._progress_path(bookie)
        try:
            await store.change(Create(path, progress) if version is None else Update(path, progress, version))
        except MetadataConflict:
            raise MetadataConflict("another process said how far this bookie is", bookie=bookie) from None

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        """Returns when the cookie was created: the original's bookies have one, too."""
        path = self._cookie_path(bookie)
        cookie_node = (await self._synced([path])).get(path)
        return None if cookie_node is None else cookie_node.creation

    async def bookie_presence(self, bookie: BookieId) -> BookiePresence:
        cookie_path, places = self._cookie_path(bookie), [f"{self._available}/{bookie}", f"{self._read_only}/{bookie}"]
        # Places once more: a bookie that moves from one to the other between two reads is in neither of them.
        nodes = await self._synced([cookie_path, *places])
        if not any(place in nodes for place in places):
            nodes = {**nodes, **await self._synced(places)}
        creation = nodes[cookie_path].creation if cookie_path in nodes else None
        infos = [registration.decode_or_empty(nodes[place].data, bookie) for place in places if place in nodes]
        return BookiePresence(creation, infos[0].address if infos else None)

    async def _synced(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        """Returns those nodes that exist, as of now."""
        store = await self._cluster()
        while True:
            point, nodes = await store.sync(), await store.get_many(paths)
            if point.generation == store.generation:
                return nodes

    async def cookies(self) -> list[BookieId]:
        # The folder comes with the first cookie.
        return await (await self._cluster()).children(f"{self._root}/cookies") or []

    async def instance_id(self) -> str:
        store, path = await self._cluster(), self._instance_path
        return self._instance({path: node} if (node := await store.get(path)) is not None else {})

    def _instance(self, nodes: Mapping[str, Znode]) -> str:
        node = nodes.get(self._instance_path)
        if node is None:
            raise MetadataError("the cluster has no instance id", where=self.store.where, root=self._root)
        return node.data.decode(errors="replace")

    async def init_cluster(self) -> str:
        """Like the original's ``initnewcluster``, in one transaction: a cluster is there whole or not at all."""
        instance = str(uuid.uuid4())
        folders = (self._root, self._available, self._read_only)
        texts = {"INSTANCEID": instance, "LAYOUT": (self._wanted or Manager.HIERARCHICAL).layout_text}
        files = [Create(f"{self._root}/{name}", text.encode()) for name, text in texts.items()]
        await self.store.make()
        try:
            await self.store.change(*map(Create, folders), *files)
        except ZnodeExists:
            raise UsageError(
                "a cluster, or a part of one, is here already: use it, or choose another place",
                where=self.store.where,
                root=self._root,
            ) from None
        return instance

    async def close(self) -> None:
        for place in self._registrations:
            place.let_go()
        await self.store.close()


def _infos(paths: Mapping[str, BookieId], nodes: Mapping[str, Znode]) -> dict[BookieId, BookieInfo]:
    here = ((bookie, nodes[path]) for path, bookie in paths.items() if path in nodes)
    return {bookie: registration.decode_or_empty(node.data, bookie) for bookie, node in here}


def _record(node: Znode | None) -> Record | None:
    return None if node is None else Record(wire.state_of(node.data), node.creation)
