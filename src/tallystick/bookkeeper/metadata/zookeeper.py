"""A store in ZooKeeper, through kazoo; the session is in ``zk_session.py``.

An ephemeral node lives as long as the session: when its process dies, until the time that the server granted is over.
A change is one transaction of ZooKeeper's, asked for again when its response was lost: if then it fails, what it asked
for may be there already, by the first attempt, and that is a success. (Another client that stored the same bytes is no
danger: the next write of one of the two fails.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from tallystick.bookkeeper.metadata.store import (
    Absent,
    Change,
    Check,
    Create,
    Creation,
    Delete,
    Point,
    Update,
    Watch,
    Znode,
    parent_of,
)
from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.bookkeeper.metadata.zk_identity import WHAT_TO_DO
from tallystick.bookkeeper.metadata.zk_session import ZkSession
from tallystick.errors import (
    MetadataError,
    MetadataRefused,
    MetadataUnavailable,
    MetadataUncertain,
    NoSuchZnode,
    ZnodeChanged,
    ZnodeExists,
    ZnodeNotEmpty,
)

READS_AT_ONCE = 64
EXPIRY_TERMS = 1.5  # ZooKeeper notices a dead session only at the next of its ticks


class ZooKeeperStore:
    """A MetadataStore; see ``store.py``."""

    def __init__(self, session: ZkSession) -> None:
        self.session, self.where = session, session.servers

    @classmethod
    async def connect(cls, uri: ZooKeeperUri, *, session_timeout_s: float) -> ZooKeeperStore:
        session = ZkSession(uri, session_timeout_s)
        await session.start()
        return cls(session)

    @property
    def expiry_s(self) -> float:
        return self.session.timeout_s * EXPIRY_TERMS

    @property
    def owners(self) -> Sequence[str]:
        return [str(number) for number in self.session.ids]

    @property
    def is_connected(self) -> bool:
        return self.session.is_connected

    @property
    def generation(self) -> int:
        return self.session.generation

    async def make(self) -> None:
        """Does nothing: ZooKeeper has its root."""

    async def get(self, path: str) -> Znode | None:
        try:
            data, stat = await self.session.call("get", path)
        except NoNodeError:
            return None
        owner = str(stat.ephemeralOwner) if stat.ephemeralOwner else None
        return Znode(data, stat.version, stat.czxid, stat.ctime, owner)

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        present_nodes: dict[str, Znode] = {}
        for at in range(0, len(paths), READS_AT_ONCE):
            part = paths[at : at + READS_AT_ONCE]
            nodes = await asyncio.gather(*map(self.get, part))
            present_nodes.update((path, node) for path, node in zip(part, nodes, strict=True) if node is not None)
        return present_nodes

    async def children(self, path: str) -> list[str] | None:
        try:
            return sorted(await self.session.call("get_children", path))
        except NoNodeError:
            return None

    async def change(self, *changes: Change) -> None:
        await self._make_all(changes, repeats=True)

    async def _make_all(self, changes: Sequence[Change], *, repeats: bool) -> None:
        def fill(parts: Any) -> None:
            for each in changes:
                _add(parts, each)

        was_lost = False
        while True:
            results, is_lost = await self.session.transaction(fill, repeats=repeats)
            was_lost = was_lost or is_lost
            first_failure = _failure([part for each in changes for part in [each] * _parts_of(each)], results)
            if first_failure is None or (was_lost and await self._is_made(changes)):
                return
            change, failure = first_failure
            if not (isinstance(change, Create | Absent) and isinstance(failure, NoNodeError)):
                raise _error(change, failure)
            await self._make_folders(changes)  # and again, if a delete prunes one of them before it is used

    async def _make_folders(self, changes: Sequence[Change]) -> None:
        new_paths = {change.path for change in changes if isinstance(change, Create)}
        folders = [parent_of(change.path) for change in changes if isinstance(change, Create | Absent)]
        for folder in dict.fromkeys(folder for folder in folders if folder and folder not in new_paths):
            with contextlib.suppress(NoNodeError):  # pruned while it was made: the change finds that
                await self.session.ensure(folder)

    async def _is_made(self, changes: Sequence[Change]) -> bool:
        """Returns whether the tree is as the changes would make it."""
        last = {change.path: change for change in changes if isinstance(change, Create | Update | Delete)}
        nodes = await self.get_many(list(last))
        return all(self._is_as(change, nodes.get(path)) for path, change in last.items())

    def _is_as(self, change: Change, node: Znode | None) -> bool:
        if isinstance(change, Create):
            owner = self.owners[-1] if change.ephemeral else None
            return node is not None and (node.data, node.version, node.owner) == (change.data, 0, owner)
        if isinstance(change, Update):
            return node is not None and (node.data, node.version) == (change.data, change.version + 1)
        return node is None

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        """Uses the counter of sequential nodes.

        A number whose nodes may have been made is not used a second time: somebody may have found them since, and
        deleted them.
        """
        if unless is not None and await self.get(unless) is not None:
            return None
        for is_last in (False, False, True):
            number = await self._take_number(counter)
            changes = create(number)
            if not changes:
                return number
            try:
                await self._make_all(changes, repeats=False)
                return number
            except MetadataUncertain:
                if await self._was_made(changes):
                    return number
                if is_last:
                    raise
        raise AssertionError("the last attempt returned or raised")

    async def _was_made(self, changes: Sequence[Change]) -> bool:
        """The same as ``_is_made``, as of now. Raises MetadataUncertain when nobody can tell."""
        try:
            await self.sync()
            return await self._is_made(changes)
        except MetadataUnavailable as error:
            raise MetadataUncertain(error.message, **error.fields) from error

    async def _take_number(self, counter: str) -> int:
        path = ""
        while not path:  # until no delete prunes the counter while it is made
            with contextlib.suppress(NoNodeError):
                path = await self.session.call("create", f"{counter}/ID-", ephemeral=True, sequence=True, makepath=True)
        self.session.post("delete", path)  # were it lost: the node is ephemeral
        return int(path.rpartition("/ID-")[2])

    async def another(self, *, session_timeout_s: float) -> ZooKeeperStore:
        return await ZooKeeperStore.connect(self.session.uri, session_timeout_s=session_timeout_s)

    async def sync(self) -> Point:
        generation = await self.session.sync("/")
        return Point(generation, self.session.newest)

    async def snapshot(self, paths: Sequence[str]) -> None:
        """Returns None: a read of ZooKeeper is of one node."""

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        newest = (await self.sync()).newest
        return {one for one in creations if one > newest}

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return self.session.watch_node(path, changed)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        return self.session.watch_children(path, changed)

    async def close(self) -> None:
        await self.session.close()


def _add(parts: Any, change: Change) -> None:
    """Add a change to a transaction of kazoo's."""
    if isinstance(change, Create):
        parts.create(change.path, change.data, ephemeral=change.ephemeral)
    elif isinstance(change, Update):
        parts.set_data(change.path, change.data, change.version)
    elif isinstance(change, Delete):
        parts.delete(change.path, -1 if change.version is None else change.version)
    elif isinstance(change, Check):
        parts.check(change.path, change.version)
    else:  # making it fails where something is
        parts.create(change.path, ephemeral=True)
        parts.delete(change.path)


def _parts_of(change: Change) -> int:
    return 2 if isinstance(change, Absent) else 1


def _failure(parts: Sequence[Change], results: Sequence[Any]) -> tuple[Change, KazooException] | None:
    """Returns the part that failed, and its error. Returns None if none did; the others were rolled back for it."""
    for part, result in zip(parts, results, strict=True):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            return part, result
    return None


def _error(change: Change, failure: Exception) -> MetadataError:
    if isinstance(failure, NodeExistsError):
        return ZnodeExists(path=change.path)
    if isinstance(failure, NoNodeError):
        return NoSuchZnode(path=change.path)
    if isinstance(failure, BadVersionError):
        return ZnodeChanged(path=change.path, expected=getattr(change, "version", None))
    if isinstance(failure, NotEmptyError):
        return ZnodeNotEmpty(path=change.path)
    if isinstance(failure, NoAuthError):
        return MetadataRefused(WHAT_TO_DO, path=change.path)
    return MetadataError(f"ZooKeeper refuses: {type(failure).__name__} {failure}", path=change.path)
