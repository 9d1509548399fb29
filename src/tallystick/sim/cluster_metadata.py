"""The metadata service of simulated clusters: the memory driver behind requests and responses that are late or lost.

A request takes effect when it arrives, whatever becomes of its process. When the request or its response is lost, its
caller hears after a while that a change is uncertain, or that nothing could be read. A process that dies stays
registered until its session has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, cast

from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import (
    BookiePresence,
    BookieRegistration,
    Moment,
    Record,
    Records,
    RegisteredBookies,
    Versioned,
)
from tallystick.bookkeeper.metadata.memory import MemoryStore, MemoryTree, forget, share
from tallystick.bookkeeper.metadata.store import Create, Creation, MetadataStore, Version, Watch, Znode
from tallystick.bookkeeper.wire.values import BookieId, BookieInfo, LedgerId, LedgerMetadata
from tallystick.errors import MetadataUnavailable, MetadataUncertain
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process

T = TypeVar("T")

ADDRESS = "10.0.0.250"
SESSION_S = 4.0
RESPONSE_S = 2.0  # who has no response by then gives up


class LedgerWatcher(Protocol):
    """Hears of each change of a ledger at the moment in which it takes effect."""

    def made(self, ledger: LedgerId, metadata: LedgerMetadata, creation: Creation) -> None: ...

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None:
        """None: it was deleted."""
        ...


@dataclass(frozen=True)
class MetadataFaults:
    """Probabilities for each call."""

    lose_request: float = 0.0
    lose_response: float = 0.0
    slow: float = 0.0


class MetadataService:
    """One service."""

    def __init__(
        self,
        fabric: Fabric,
        rng: random.Random,
        name: str,
        faults: MetadataFaults,
        watcher: LedgerWatcher,
        tree: MemoryTree | None = None,
    ) -> None:
        """``tree``: where it keeps what it has, if not in one of the usual kind."""
        self.fabric, self.random, self.faults, self.watcher = fabric, rng, faults, watcher
        self.known_creations: dict[Creation, None] = {}  # the watcher knows these ledgers
        self.name = name
        if tree is not None:
            share(name, tree)
        self.driver = ClusterMetadata(MemoryStore(name))  # its own look at what it has

    def connect(self, process: Process) -> RemoteMetadata:
        """For one process."""
        return RemoteMetadata(self, process)

    def delay_s(self) -> float:
        if self.random.random() < self.faults.slow:
            return min(3.0, 0.02 * self.random.paretovariate(0.8))
        return 0.0002 + 0.002 * self.random.random()

    def end(self) -> None:
        """Nobody asks it any more."""
        forget(self.name)


class RemoteMetadata:
    """A ``MetadataDriver`` of one process."""

    def __init__(self, service: MetadataService, process: Process) -> None:
        self._service, self._process = service, process
        self._loop = asyncio.get_running_loop()
        self._inner = ClusterMetadata(MemoryStore(service.name, session_timeout_s=SESSION_S))
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        process.on_death.append(self._process_died)

    @property
    def store(self) -> MetadataStore:
        return self._inner.store

    @property
    def root(self) -> str:
        return self._inner.root

    async def _call(self, operation: Callable[[], Awaitable[T]], *, changes: bool = False) -> T:
        """Have the service do something, whatever becomes of us meanwhile."""
        service, response = self._service, self._loop.create_future()
        faults, rng, where = service.faults, service.random, self._process.address
        is_lost = rng.random() < faults.lose_request or not service.fabric.passes(where, ADDRESS)
        if not is_lost:
            self._loop.call_later(service.delay_s(), self._begin, operation, response, context=service.fabric.context)
        try:
            async with asyncio.timeout(RESPONSE_S):
                return await response  # type: ignore[no-any-return]  # a future of Any
        except TimeoutError:
            self._generation += 1
            if changes:
                raise MetadataUncertain("the metadata service did not answer") from None
            raise MetadataUnavailable("the metadata service did not answer") from None

    def _begin(self, operation: Callable[[], Awaitable[T]], response: asyncio.Future[T]) -> None:
        task = self._loop.create_task(self._serve(operation, response), context=self._service.fabric.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, operation: Callable[[], Awaitable[T]], response: asyncio.Future[T]) -> None:
        service, result, error = self._service, None, None
        try:
            result = await operation()
        except Exception as failure:
            error = failure
        is_lost = service.random.random() < service.faults.lose_response
        if is_lost or not service.fabric.passes(ADDRESS, self._process.address):
            return
        self._loop.call_later(service.delay_s(), _respond, response, result, error, context=self._process.context)

    def _process_died(self) -> None:
        """Its session ends a while later."""
        self._loop.call_later(
            SESSION_S * (0.2 + 0.8 * self._service.random.random()),
            self._begin,
            self._inner.close,
            self._loop.create_future(),
            context=self._service.fabric.context,
        )

    # Ledgers.

    async def create_ledger(
        self,
        metadata: LedgerMetadata,
        ledger: LedgerId | None = None,
        *,
        beside: Callable[[LedgerId], Sequence[Create]] = lambda ledger: (),
    ) -> Versioned[LedgerId]:
        async def create() -> Versioned[LedgerId]:
            created = await self._inner.create_ledger(metadata, ledger, beside=beside)
            await self._tell(created.value, metadata)
            return created

        return await self._again(create)

    async def _tell(self, ledger: LedgerId, metadata: LedgerMetadata) -> None:
        """A create that was tried again may have found its ledger."""
        record = (await self._inner.look_up([ledger]))[ledger]
        if record is not None and record.creation not in self._service.known_creations:
            self._service.known_creations[record.creation] = None
            self._service.watcher.made(ledger, metadata, record.creation)

    async def _again(self, create: Callable[[], Awaitable[T]]) -> T:
        """As the drivers of real services: a create is recognised by its token."""
        with contextlib.suppress(MetadataUncertain):
            return await self._call(create, changes=True)
        return await self._call(create, changes=True)

    async def read_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata]:
        return await self._call(lambda: self._inner.read_ledger(ledger))

    async def read_ledgers(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Znode]:
        return await self._call(lambda: self._inner.read_ledgers(ledgers))

    async def write_ledger(
        self, ledger: LedgerId, metadata: LedgerMetadata, version: Version, *, absent: Collection[BookieId] = ()
    ) -> Version:
        async def write() -> Version:
            new_version = await self._inner.write_ledger(ledger, metadata, version, absent=absent)
            self._service.watcher.stored(ledger, metadata)
            return new_version

        return await self._call(write, changes=True)

    async def delete_ledger(self, ledger: LedgerId) -> None:
        async def delete() -> None:
            await self._inner.delete_ledger(ledger)
            self._service.watcher.stored(ledger, None)

        await self._call(delete, changes=True)

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        async def listing() -> list[LedgerId]:
            return [ledger async for ledger in self._inner.ledgers()]

        for ledger in await self._call(listing):
            yield ledger

    async def sync(self) -> Moment:
        moment = await self._call(self._inner.sync)
        return replace(moment, generation=self._generation)

    async def look_up(self, ledgers: Sequence[LedgerId]) -> Mapping[LedgerId, Record | None]:
        return await self._call(lambda: self._inner.look_up(ledgers))

    async def look(self, ledgers: Sequence[LedgerId]) -> Records:
        return Records(await self.sync(), await self.look_up(ledgers), await self.sync())

    def watch_ledger(self, ledger: LedgerId, changed: Callable[[], None]) -> Watch:
        return self._watch(changed, lambda notify: self._inner.watch_ledger(ledger, notify))

    # Bookies.

    async def bookies(self) -> RegisteredBookies:
        return await self._call(self._inner.bookies)

    def watch_bookies(self, changed: Callable[[], None]) -> Watch:
        return self._watch(changed, self._inner.watch_bookies)

    def _watch(self, changed: Callable[[], None], watch: Callable[[Callable[[], None]], Watch]) -> Watch:
        def notify() -> None:
            self._loop.call_later(self._service.delay_s(), changed, context=self._process.context)

        return self._service.fabric.context.copy().run(watch, notify)

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
        async def take() -> BookieRegistration:
            return await self._inner.register(
                bookie, info, read_only=read_only, replace=replace, joined=joined, since=since
            )

        return _RemoteRegistration(self._call, self._leave, await self._call(take, changes=True))

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        return await self._call(lambda: self._inner.read_cookie(bookie))

    async def write_cookie(self, bookie: BookieId, cookie: bytes, version: Version | None) -> None:
        await self._call(lambda: self._inner.write_cookie(bookie, cookie, version), changes=True)

    async def delete_cookie(self, bookie: BookieId, version: Version, *beside: Create, is_down: bool = False) -> None:
        await self._call(lambda: self._inner.delete_cookie(bookie, version, *beside, is_down=is_down), changes=True)

    async def read_progress(self, bookie: BookieId) -> Versioned[bytes] | None:
        return await self._call(lambda: self._inner.read_progress(bookie))

    async def write_progress(self, bookie: BookieId, progress: bytes, version: Version | None) -> None:
        await self._call(lambda: self._inner.write_progress(bookie, progress, version), changes=True)

    async def skip_ids(self, ledgers: Collection[LedgerId]) -> None:
        await self._call(lambda: self._inner.skip_ids(ledgers))

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        return await self._call(lambda: self._inner.never_made(creations))

    async def bookie_creation(self, bookie: BookieId) -> Creation | None:
        return await self._call(lambda: self._inner.bookie_creation(bookie))

    async def bookie_presence(self, bookie: BookieId) -> BookiePresence:
        return await self._call(lambda: self._inner.bookie_presence(bookie))

    async def cookies(self) -> list[BookieId]:
        return await self._call(self._inner.cookies)

    async def instance_id(self) -> str:
        return await self._call(self._inner.instance_id)

    async def init_cluster(self) -> str:
        return await self._call(self._inner.init_cluster, changes=True)

    async def close(self) -> None:
        await self._leave(self._inner.close)

    async def _leave(self, close: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._call(close, changes=True)
        except MetadataUncertain:
            self._process_died()  # the session ends by itself


class _RemoteRegistration:
    def __init__(
        self, call: Callable[..., Awaitable[None]], leave: Callable[..., Awaitable[None]], inner: BookieRegistration
    ) -> None:
        self._call, self._leave, self._inner = call, leave, inner
        self.loss, self.failure = inner.loss, inner.failure

    @property
    def is_reached(self) -> bool:
        return self._inner.is_reached

    async def set_read_only(self, read_only: bool) -> None:
        await self._call(lambda: self._inner.set_read_only(read_only), changes=True)

    async def set_info(self, info: BookieInfo) -> None:
        await self._call(lambda: self._inner.set_info(info), changes=True)

    async def close(self) -> None:
        await self._leave(self._inner.close)


def _respond(response: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if response.done():
        return
    if error is not None:
        response.set_exception(error)
    else:
        response.set_result(cast("T", result))
