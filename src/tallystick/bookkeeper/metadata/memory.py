"""A coordination service in this process, for tests: nothing outlives the process, so no registration ever expires.

Clusters have names; drivers of one name share one, on whatever threads and event loops they live.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from tallystick.bookkeeper.metadata.watch import BOOKIES, Watchers, take_place
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.registration import check_bookie_id
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import LedgerExists, MetadataConflict, MetadataError, NoSuchLedger, UsageError
from tallystick.runtime.fork import ProcessLock


@dataclass(frozen=True)
class _Ledger:
    data: bytes
    version: Version
    ctime_ms: int
    creation: Creation


@dataclass(frozen=True)
class _Place:
    info: BookieInfo
    read_only: bool
    owner: MemoryRegistration


@dataclass
class MemoryCluster:
    """What the drivers of one name share; every access holds ``lock``."""

    lock: ProcessLock = field(default_factory=ProcessLock)
    watchers: Watchers = field(default_factory=Watchers)
    instance: str | None = None
    next_id: LedgerId = 0
    ledgers: dict[LedgerId, _Ledger] = field(default_factory=dict)
    places: dict[BookieId, _Place] = field(default_factory=dict)
    cookies: dict[BookieId, Versioned[bytes]] = field(default_factory=dict)
    creations: dict[BookieId, Creation] = field(default_factory=dict)  # of the cookies
    created: Creation = 0  # the last one

    def create(self) -> Creation:
        self.created += 1
        return self.created


_clusters: dict[str, MemoryCluster] = {}
_clusters_lock = ProcessLock()


def forget(name: str) -> None:
    """Drop a cluster that no driver uses any more."""
    with _clusters_lock:
        _clusters.pop(name, None)


class MemoryDriver:
    """A MetadataDriver; see ``driver.py``."""

    def __init__(self, name: str, *, session_timeout_s: float = 10.0) -> None:
        with _clusters_lock:
            self._shared = _clusters.setdefault(name, MemoryCluster())
        self._name, self._session_timeout_s = name, session_timeout_s
        self._registrations: list[MemoryRegistration] = []
        self._closed = False

    async def _cluster(self) -> MemoryCluster:
        """Lets others run first, as every call to a real service does."""
        await asyncio.sleep(0)
        if self._closed:
            raise MetadataError("this metadata connection is closed", uri=f"memory://{self._name}")
        if self._shared.instance is None:
            raise MetadataError("there is no cluster here; make one with init_cluster()", uri=f"memory://{self._name}")
        return self._shared

    async def create_ledger(self, metadata: LedgerMetadata, ledger: LedgerId | None = None) -> Versioned[LedgerId]:
        stored = ctoken.stamped(metadata)
        cluster = await self._cluster()
        with cluster.lock:
            chosen = ctoken.check_ledger_id(self._new_id(cluster) if ledger is None else ledger)
            found = cluster.ledgers.get(chosen)
            if found is None:
                cluster.ledgers[chosen] = _Ledger(wire.encode(stored), 0, time.time_ns() // 1_000_000, cluster.create())
            elif not ctoken.is_own(found.data, stored):
                raise LedgerExists(ledger=chosen)
        cluster.watchers.notify(chosen)
        return Versioned(chosen, found.version if found else 0)

    def _new_id(self, cluster: MemoryCluster) -> LedgerId:
        while cluster.next_id in cluster.ledgers:
            cluster.next_id += 1
        cluster.next_id += 1
        return cluster.next_id - 1

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        cluster = await self._cluster()
        with cluster.lock:
            found = cluster.ledgers.get(ctoken.check_ledger_id(ledger))
        if found is None:
            raise NoSuchLedger(ledger=ledger)
        return _decoded(ledger, found)

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Versioned[LedgerMetadata]]:
        cluster = await self._cluster()
        with cluster.lock:
            found = {ledger: cluster.ledgers.get(ctoken.check_ledger_id(ledger)) for ledger in ledgers}
        return {ledger: _decoded(ledger, each) for ledger, each in found.items() if each is not None}

    async def write_ledger(self, ledger: LedgerId, metadata: LedgerMetadata, version: Version) -> Version:
        data = ctoken.rewritten(metadata)
        cluster = await self._cluster()
        with cluster.lock:
            found = cluster.ledgers.get(ctoken.check_ledger_id(ledger))
            if found is None:
                raise NoSuchLedger(ledger=ledger)
            if found.version != version:
                raise MetadataConflict(ledger=ledger, expected=version, stored=found.version)
            cluster.ledgers[ledger] = replace(found, data=data, version=version + 1)
        cluster.watchers.notify(ledger)
        return version + 1

    async def delete_ledger(self, ledger: LedgerId) -> None:
        cluster = await self._cluster()
        with cluster.lock:
            if cluster.ledgers.pop(ctoken.check_ledger_id(ledger), None) is None:
                raise NoSuchLedger(ledger=ledger)
        cluster.watchers.notify(ledger)

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        cluster = await self._cluster()
        with cluster.lock:
            found = sorted(cluster.ledgers)
        for ledger in found:
            yield ledger

    async def sync(self) -> Moment:
        return Moment(await self.instance_id(), 0, self._shared.created)

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        cluster = await self._cluster()
        with cluster.lock:
            found = {ledger: cluster.ledgers.get(ctoken.check_ledger_id(ledger)) for ledger in ledgers}
        return {
            ledger: None if each is None else Record(wire.state_of(each.data), each.creation)
            for ledger, each in found.items()
        }

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        return self._shared.watchers.add(ctoken.check_ledger_id(ledger), changed)

    async def bookies(self) -> Bookies:
        cluster = await self._cluster()
        with cluster.lock:
            places = sorted(cluster.places.items())
        return Bookies(
            {bookie: place.info for bookie, place in places if not place.read_only},
            {bookie: place.info for bookie, place in places if place.read_only},
        )

    def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return self._shared.watchers.add(BOOKIES, changed)

    async def register(
        self, bookie: BookieId, info: BookieInfo, *, read_only: bool = False, replace: bool = False
    ) -> Registration:
        registration = MemoryRegistration(await self._cluster(), check_bookie_id(bookie), info)

        async def take() -> bool:
            return registration.take(read_only, replace=replace)

        await take_place(bookie, take, self.watch_bookies, self._session_timeout_s)
        self._registrations.append(registration)
        return registration

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        cluster = await self._cluster()
        with cluster.lock:
            return cluster.cookies.get(bookie)

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        check_bookie_id(bookie)
        cluster = await self._cluster()
        with cluster.lock:
            cookies = cluster.cookies
            stored = cookies[bookie].version if bookie in cookies else None
            if stored != version:
                raise MetadataConflict("another process changed this cookie first", bookie=bookie)
            cookies[bookie] = Versioned(cookie, 0 if version is None else version + 1)
            if version is None:
                cluster.creations[bookie] = cluster.create()

    async def delete_cookie(self, bookie: BookieId, version: Version) -> None:
        cluster = await self._cluster()
        with cluster.lock:
            if bookie in cluster.cookies and cluster.cookies[bookie].version != version:
                raise MetadataConflict("another process changed this cookie first", bookie=bookie)
            cluster.cookies.pop(bookie, None)
            cluster.creations.pop(bookie, None)

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        cluster = await self._cluster()
        with cluster.lock:
            return cluster.creations.get(bookie)

    async def cookies(self) -> list[BookieId]:
        cluster = await self._cluster()
        with cluster.lock:
            return sorted(cluster.cookies)

    async def instance_id(self) -> str:
        instance = (await self._cluster()).instance
        assert instance is not None, "_cluster() has looked"
        return instance

    async def init_cluster(self) -> str:
        with self._shared.lock:
            if self._shared.instance is not None:
                raise UsageError("there is a cluster here already", uri=f"memory://{self._name}")
            self._shared.instance = str(uuid.uuid4())
            return self._shared.instance

    async def close(self) -> None:
        for registration in self._registrations:
            await registration.close()
        self._closed = True


class MemoryRegistration:
    """A Registration; lost only when another one replaces it."""

    def __init__(self, cluster: MemoryCluster, bookie: BookieId, info: BookieInfo) -> None:
        self._cluster, self._bookie, self._info = cluster, bookie, info
        self._watch: Watch | None = None
        self.lost = asyncio.Event()
        self.failure: Exception | None = None

    @property
    def is_reached(self) -> bool:
        return True  # it is in this process

    def take(self, read_only: bool, *, replace: bool) -> bool:
        cluster = self._cluster
        with cluster.lock:
            place = cluster.places.get(self._bookie)
            if place is not None and place.owner is not self and not replace:
                return False
            cluster.places[self._bookie] = _Place(self._info, read_only, self)
        if self._watch is None:
            self._watch = cluster.watchers.add(BOOKIES, self._look)
        cluster.watchers.notify(BOOKIES)
        return True

    def _look(self) -> None:
        if not self._holds():
            self.lost.set()

    def _holds(self) -> bool:
        place = self._cluster.places.get(self._bookie)
        return place is not None and place.owner is self

    async def set_read_only(self, read_only: bool) -> None:
        if not self.take(read_only, replace=False):
            raise MetadataConflict("another process took this bookie's registration", bookie=self._bookie)

    async def set_info(self, info: BookieInfo) -> None:
        self._info = info
        place = self._cluster.places.get(self._bookie)
        await self.set_read_only(place is not None and place.read_only)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        with self._cluster.lock:
            if not self._holds():
                return
            del self._cluster.places[self._bookie]
        self._cluster.watchers.notify(BOOKIES)


def _decoded(ledger: LedgerId, found: _Ledger) -> Versioned[LedgerMetadata]:
    return Versioned(wire.decode(found.data, where=f"ledger {ledger}", ctime_ms=found.ctime_ms), found.version)
