"""A store in this process, for tests: nothing outlives the process, so a session ends only when its store is closed.

Trees have names; stores of one name share one, on whatever threads and event loops they live.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tallystick.bookkeeper.metadata.changes import apply, take_number
from tallystick.bookkeeper.metadata.store import Change, Create, Creation, Owner, Point, Version, Watch, Znode
from tallystick.bookkeeper.metadata.watch import KeyWatch, Watchers, children_key, keys_of
from tallystick.errors import MetadataError
from tallystick.runtime.fork import ProcessLock

T = TypeVar("T")


@dataclass
class MemoryTree:
    """The tree that the stores of one name share; every access holds ``lock``."""

    lock: ProcessLock = field(default_factory=ProcessLock)
    watchers: Watchers = field(default_factory=Watchers)
    nodes: dict[str, Znode] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)  # of the children, by path
    counters: dict[str, int] = field(default_factory=dict)  # the next number, by path
    created: Creation = 0  # the last one
    owners: int = 0
    _before: dict[str, Znode | None] = field(default_factory=dict)  # what the transaction changed, as it was

    def transact(self, work: Callable[[], T]) -> T:
        """Returns what ``work`` returns. Its changes are undone when it raises; else their watchers are told."""
        with self.lock:
            self._before = {}
            try:
                result = work()
            except BaseException:
                for path, node in list(self._before.items()):
                    self._set(path, node)
                raise
            changes = [(path, before, self.nodes.get(path)) for path, before in self._before.items()]
        for path, before, after in changes:
            if before is not None and (after is None or after.creation != before.creation):
                self.counters.pop(path, None)
        for key in dict.fromkeys(key for each in changes for key in keys_of(*each)):
            self.watchers.notify(key)
        return result

    def _set(self, path: str, node: Znode | None) -> None:
        self._before.setdefault(path, self.nodes.get(path))
        folder, _, name = path.rpartition("/")
        if node is not None:
            self.nodes[path] = node
            self.names.setdefault(folder, set()).add(name)
        elif self.nodes.pop(path, None) is not None:
            self.names[folder].remove(name)
            if not self.names[folder]:
                del self.names[folder]

    # As ``changes.Znodes``.

    def find(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def has_children(self, path: str) -> bool:
        return path in self.names

    def insert(self, path: str, data: bytes, owner: Owner | None) -> None:
        self.created += 1
        self._set(path, Znode(data, 0, self.created, time.time_ns() // 1_000_000, owner))

    def write(self, path: str, data: bytes, version: Version) -> None:
        self._set(path, self.nodes[path]._replace(data=data, version=version))

    def remove(self, path: str) -> None:
        self._set(path, None)

    def next_number(self, path: str) -> int | None:
        if path not in self.nodes:
            return None
        number = self.counters.get(path, 0)
        self.counters[path] = number + 1
        return number

    def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        """Returns the creations that are not of this tree's past."""
        return {one for one in creations if one > self.created}


_trees: dict[str, MemoryTree] = {}
_trees_lock = ProcessLock()


def share(name: str, tree: MemoryTree) -> None:
    """Give the stores of this name, which come from now on, a tree of another kind."""
    with _trees_lock:
        _trees[name] = tree


def forget(name: str) -> None:
    """Drop a tree that no store uses any more."""
    with _trees_lock:
        _trees.pop(name, None)


class MemoryStore:
    """A MetadataStore; see ``store.py``."""

    is_connected, generation = True, 0

    def __init__(self, name: str, *, session_timeout_s: float = 10.0) -> None:
        with _trees_lock:
            self._tree = _trees.setdefault(name, MemoryTree())
        with self._tree.lock:
            self._tree.owners += 1
            self.owners = (str(self._tree.owners),)
        self._name = name
        self.where, self.expiry_s = f"memory://{name}", session_timeout_s
        self._watches: weakref.WeakSet[KeyWatch] = weakref.WeakSet()
        self._closed = False

    async def _call(self, work: Callable[[], T]) -> T:
        """Let others run first, as every call to a real service does."""
        await asyncio.sleep(0)
        if self._closed:
            raise MetadataError("this metadata connection is closed", where=self.where)
        with self._tree.lock:
            return work()

    async def make(self) -> None:
        """Does nothing: the tree exists."""

    async def get(self, path: str) -> Znode | None:
        return (await self.get_many([path])).get(path)

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        nodes = self._tree.nodes
        return await self._call(lambda: {path: nodes[path] for path in paths if path in nodes})

    async def children(self, path: str) -> list[str] | None:
        tree = self._tree
        return await self._call(lambda: sorted(tree.names.get(path, ())) if path in tree.nodes else None)

    async def change(self, *changes: Change) -> None:
        await self._call(lambda: self._tree.transact(lambda: apply(self._tree, changes, self.owners[0])))

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        def take() -> int | None:
            if unless in self._tree.nodes:
                return None
            number = self._tree.transact(lambda: take_number(self._tree, counter))
            self._tree.transact(lambda: apply(self._tree, create(number), self.owners[0]))
            return number

        return await self._call(take)

    async def sync(self) -> Point:
        return await self._call(lambda: Point(self.generation, self._tree.created))

    async def snapshot(self, paths: Sequence[str]) -> None:
        """Returns None: this store stands for services that have no such read, too."""

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        return await self._call(lambda: self._tree.never_made(creations))

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(path, changed)

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._watch(children_key(path), changed)

    def _watch(self, key: str, changed: Callable[[], None]) -> Watch:
        watch = self._tree.watchers.add(key, changed)
        self._watches.add(watch)
        return watch

    async def another(self, *, session_timeout_s: float) -> MemoryStore:
        return MemoryStore(self._name, session_timeout_s=session_timeout_s)

    async def close(self) -> None:
        if self._closed:
            return
        for watch in list(self._watches):
            watch.cancel()
        await self._call(lambda: self._tree.transact(self._end_session))
        self._closed = True

    def _end_session(self) -> None:
        for path in [path for path, node in self._tree.nodes.items() if node.owner == self.owners[0]]:
            self._tree.remove(path)
