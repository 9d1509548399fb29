"""The store of one process of a simulated life, as that of ZooKeeper is: behind a network, and with sessions.

A request whose connection broke is asked for again for as long as a session may take. A change that then fails may
have been made by an earlier attempt: the store looks, as the drivers of real services do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tallystick.bookkeeper.metadata.changes import apply, take_number
from tallystick.bookkeeper.metadata.store import Change, Create, Creation, Delete, Owner, Point, Update, Watch, Znode
from tallystick.bookkeeper.metadata.watch import children_key
from tallystick.errors import MetadataError, MetadataUnavailable, MetadataUncertain
from tallystick.sim.past_tree import Moment
from tallystick.sim.store_service import ConnectionLost, SessionExpired, StoreService
from tallystick.sim.virtual.process import Process

T = TypeVar("T")

RETRY_S = 0.1  # after a break
SESSION_S = 4.0


class RemoteStore:
    """A MetadataStore of one process."""

    where = "simulated"

    def __init__(self, service: StoreService, process: Process, session_timeout_s: float) -> None:
        self._service, self._process, self._timeout_s = service, process, session_timeout_s
        self._tree, self._loop = service.tree, service.fabric.loop
        self._session = service.begin(process, session_timeout_s, self)
        self._owners, self._watches = [self._session.owner], dict[_RemoteWatch, None]()
        self.is_connected, self.generation = True, 0
        self._closed = self._is_leaving = False

    @property
    def expiry_s(self) -> float:
        return self._timeout_s * 1.5

    @property
    def owners(self) -> Sequence[Owner]:
        return tuple(self._owners)

    # The connection.

    async def _ask(self, serve: Callable[[], T], error: type[MetadataError], *, repeats: bool = True) -> tuple[T, bool]:
        """Returns the response, and whether one was lost before. Raises ``error`` when none came in time, or the only
        one was lost that there is unless it ``repeats``."""
        was_lost, until = False, self._loop.time() + self._timeout_s
        while True:
            if self._closed:
                raise MetadataError("this metadata connection is closed", where=self.where)
            session, response = self._session, self._loop.create_future()
            self._service.request(session, serve, response)
            try:
                async with asyncio.timeout(self._timeout_s / 3):
                    result: T = await response
                self.heard(owes=False)
                return result, was_lost
            except SessionExpired:
                if self._is_leaving:
                    raise error("the session has expired", where=self.where) from None
                self.heard(owes=True)
            except (ConnectionLost, TimeoutError):
                self._broke()
            was_lost = True
            if self._loop.time() >= until or not repeats:
                raise error("the metadata service did not answer", where=self.where)
            await asyncio.sleep(RETRY_S)

    def heard(self, *, owes: bool) -> None:
        if self._closed or self._is_leaving:
            return
        if self._session.is_over:
            self._session = self._service.begin(self._process, self._timeout_s, self)
            self._owners.append(self._session.owner)
            self.is_connected = False
        if not self.is_connected:
            self.is_connected, owes = True, True
            self.generation += 1
        if owes:
            for watch in list(self._watches):
                self._loop.call_soon(self._tell, watch, self._tree.moment, context=self._process.context)

    def unheard(self) -> None:
        self._broke()

    def _broke(self) -> None:
        if self.is_connected:
            self.is_connected = False
            self.generation += 1
            self._session.connect()

    # Reads.

    async def make(self) -> None:
        """Does nothing: the tree exists."""

    async def get(self, path: str) -> Znode | None:
        return (await self.get_many([path])).get(path)

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        def read() -> Mapping[str, Znode]:
            view = self._session.view
            nodes = ((path, self._tree.find_at(path, view)) for path in paths)
            return {path: node for path, node in nodes if node is not None}

        return (await self._ask(read, MetadataUnavailable))[0]

    async def children(self, path: str) -> list[str] | None:
        def read() -> list[str] | None:
            return self._tree.children_at(path, self._session.view)

        return (await self._ask(read, MetadataUnavailable))[0]

    async def sync(self) -> Point:
        def catch_up() -> Creation:
            self._session.see(self._tree.moment)
            return self._tree.created

        while True:
            generation = self.generation
            newest, _ = await self._ask(catch_up, MetadataUnavailable)
            if generation == self.generation:
                return Point(generation, newest)

    async def snapshot(self, paths: Sequence[str]) -> None:
        """Returns None: there is no such read."""

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        newest = (await self.sync()).newest
        return {one for one in creations if one > newest}

    # Changes.

    async def change(self, *changes: Change) -> None:
        await self._make_all(changes, repeats=True)

    async def _make_all(self, changes: Sequence[Change], *, repeats: bool) -> None:
        def make() -> MetadataError | None:
            error = None
            try:
                self._tree.transact(lambda: apply(self._tree, changes, self._session.owner))
            except MetadataError as failure:
                error = failure
            self._session.see(self._tree.moment)
            return error

        error, was_lost = await self._ask(make, MetadataUncertain, repeats=repeats)
        if error is not None and not (was_lost and await self._is_made(changes)):
            raise error

    async def _is_made(self, changes: Sequence[Change]) -> bool:
        """Returns whether the tree is as the changes would make it."""
        last = {change.path: change for change in changes if isinstance(change, Create | Update | Delete)}
        try:
            nodes = await self.get_many(list(last))
        except MetadataUnavailable as error:
            raise MetadataUncertain("the metadata service did not answer", where=self.where) from error
        return all(self._is_as(change, nodes.get(path)) for path, change in last.items())

    def _is_as(self, change: Create | Update | Delete, node: Znode | None) -> bool:
        if isinstance(change, Create):
            owner = self._owners[-1] if change.ephemeral else None
            return node is not None and (node.data, node.version, node.owner) == (change.data, 0, owner)
        if isinstance(change, Update):
            return node is not None and (node.data, node.version) == (change.data, change.version + 1)
        return node is None

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        """Takes the number and makes what is said of it in two steps, and never with a number whose nodes may have been
        made before, as ZooKeeper's driver does."""
        if unless is not None and await self.get(unless) is not None:
            return None

        def take() -> int:
            return self._tree.transact(lambda: take_number(self._tree, counter))

        for is_last in (False, False, True):
            number, _ = await self._ask(take, MetadataUncertain)
            changes = create(number)
            if not changes:
                return number
            try:
                await self._make_all(changes, repeats=False)
                return number
            except MetadataUncertain as error:
                try:
                    await self.sync()
                except MetadataUnavailable:
                    raise error from None
                if await self._is_made(changes):
                    return number
                if is_last:
                    raise
        raise AssertionError("the last attempt returned or raised")

    # Watches, and the end.

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(path, changed)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(children_key(path), changed)

    def _watch(self, key: str, changed: Callable[[], None]) -> Watch:
        watch = _RemoteWatch(changed, self._watches)
        add = self._service.fabric.context.copy().run
        watch.inner = add(self._tree.watchers.add, key, lambda: self._fired(watch))
        if self._tree.was_told(key, self._session.view):
            self._fired(watch)  # a server that lags has that change still before it
        return watch

    def _fired(self, watch: _RemoteWatch) -> None:
        """The service tells of a change."""
        session, service = self._session, self._service
        if service.reaches(self._process):
            delay_s = service.delay_s() + session.lag_s * service.random.random()
            self._loop.call_later(delay_s, self._tell, watch, self._tree.moment, context=self._process.context)
        else:
            session.owes = True

    def _tell(self, watch: _RemoteWatch, moment: Moment) -> None:
        """We hear of a change: what we read from now on has it."""
        self._session.see(moment)
        if watch in self._watches:
            watch.changed()

    async def another(self, *, session_timeout_s: float) -> RemoteStore:
        await self._ask(lambda: None, MetadataUnavailable)
        return RemoteStore(self._service, self._process, session_timeout_s)

    async def close(self) -> None:
        if self._closed:
            return
        for watch in list(self._watches):
            watch.cancel()
        session, self._is_leaving = self._session, True
        with contextlib.suppress(MetadataError):  # the session ends by itself
            await self._ask(session.end, MetadataUncertain)
        self._closed = True
        session.leave()


class _RemoteWatch:
    """A Watch. ``watches`` has those that were not cancelled."""

    inner: Watch

    def __init__(self, changed: Callable[[], None], watches: dict[_RemoteWatch, None]) -> None:
        self.changed, self._watches = changed, watches
        watches[self] = None

    def cancel(self) -> None:
        self._watches.pop(self, None)
        self.inner.cancel()
