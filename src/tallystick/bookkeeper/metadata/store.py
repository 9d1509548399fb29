"""The store under a cluster's metadata: a tree of small versioned nodes, as ZooKeeper has. One protocol, three drivers.

Whatever a cluster keeps (``cluster.py``: ledgers, cookies, registrations, its identity) is written once over this
protocol; a driver (``memory.py``, ``sqlite.py``, ``zookeeper.py``) knows nothing of it.

Guarantees of every driver:

- Paths are absolute: ``/a/b``, without ``.``, ``..`` or an empty part. A node may have data and children.
- ``change`` is atomic and linearizable: all of its changes are made, in order, or none. When it returns they are
  durable as far as the service's own changes are.
- A read sees what this store's calls had changed when it was asked for. What a read of ZooKeeper finds may lag behind
  other clients: ``sync`` catches up.
- A change whose response was lost is asked for again, and is a success if what it asked for is there.
- A node that is deleted and made again has another ``creation``; no two creations are the same, in all of the service.
  Those of nodes that last ascend; those of ephemeral ones only tell them apart.
- All calls raise MetadataUnavailable when the service cannot be reached, MetadataUncertain when a change was asked for
  and nobody knows whether it was made, and MetadataError after ``close``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tallystick.errors import UsageError

Version = int  # of a node's data: 0 when it is created, one more with each Update
Creation = int  # tells a thing from a later one of the same name: no two creations in one service have the same number
Owner = str  # a session

_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[^/\0]+)+")


class Znode(NamedTuple):
    """A node as a read has it. ``owner`` is the session with which it ends, None where only a deletion ends it."""

    data: bytes
    version: Version
    creation: Creation
    ctime_ms: int
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node, and the nodes above it that are missing. Fails with ZnodeExists.

    ``ephemeral``: it ends with the session of the store that makes it, and can have no children.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise UsageError("a path is absolute, without empty parts, '.' and '..'", path=self.path)


@dataclass(frozen=True, slots=True)
class Update:
    """Replace a node's data; its version is then one more. Fails with ZnodeChanged, NoSuchZnode."""

    path: str
    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children, of this version or (None) of any.

    Fails with ZnodeChanged, NoSuchZnode, ZnodeNotEmpty.
    """

    path: str
    version: Version | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The node must have this version. Fails with ZnodeChanged, NoSuchZnode."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class Absent:
    """There must be no node. Fails with ZnodeExists. A watcher of the path may be called although nothing changed."""

    path: str


Change = Create | Update | Delete | Check | Absent


@dataclass(frozen=True)
class Point:
    """``sync`` returns it: the connection, and the creation up to which it had seen everything."""

    generation: int
    newest: Creation = field(compare=False)


class Watch(Protocol):
    def cancel(self) -> None: ...


class MetadataStore(Protocol):
    """See the module. A watch's callback runs on the event loop, without argument, at least once after each change that
    comes after the response to any read that was asked for after the watch: read again."""

    where: str  # file or servers, for messages

    @property
    def expiry_s(self) -> float:
        """Returns the seconds after which a dead session has expired."""
        ...

    @property
    def owners(self) -> Sequence[Owner]:
        """Returns the sessions of this connection: its present one is the last, the others have expired."""
        ...

    @property
    def is_connected(self) -> bool:
        """Returns whether the service answers now. While it does not, the session may expire unnoticed."""
        ...

    @property
    def generation(self) -> int:
        """Returns a number that grows with each break of the connection: reads between equal ones are of one."""
        ...

    async def make(self) -> None:
        """Make the place where nodes are, if the service has none yet: the file of SQLite."""
        ...

    async def get(self, path: str) -> Znode | None:
        """Returns None if there is no node."""
        ...

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        """Returns those nodes that exist, in far less time than one by one. Name some thousands at once at most."""
        ...

    async def children(self, path: str) -> list[str] | None:
        """Returns the names of all children, sorted. Returns None if there is no node."""
        ...

    async def change(self, *changes: Change) -> None:
        """Make all changes or none. Raises what the first that fails says (see each). What many callers ask for at one
        moment costs SQLite one sync of the disk."""
        ...

    async def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], *, unless: str | None = None
    ) -> int | None:
        """Take the next number of a node's counter, from 0 on, and make what ``create`` says of it: all, or nothing.

        The counter's node is made if it is missing; the counter is deleted with it. A number is given once, whatever
        becomes of the node. In ZooKeeper it has 31 bits: after the last one come negative numbers. Returns None, and
        does nothing, if there is a node at ``unless``. Raises ZnodeExists.
        """
        ...

    async def sync(self) -> Point:
        """Catch up with the service: reads that follow while ``generation`` is that of the result see all that was
        stored before this call, and no lasting node that was stored by then was created after ``newest``.

        Raises MetadataError when another file took the place of the SQLite file that is open.
        """
        ...

    async def snapshot(self, paths: Sequence[str]) -> tuple[Point, Mapping[str, Znode]] | None:
        """``sync`` and ``get_many`` in one, and nothing was changed between the two or among the nodes. Returns None
        if the service has no such read. Raises as ``sync``."""
        ...

    async def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        """Those of the creations of lasting nodes that are not of this service's past: it was restored from an older
        copy. SQLite tells also when it made others since, up to a million of them. Name some thousands at most."""
        ...

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after the node was created, written or deleted, or has expired."""
        ...

    def watch_children(self, path: str, changed: Callable[[], None]) -> Watch:
        """Call ``changed`` after a child was created or deleted, or has expired; not after it was written."""
        ...

    async def another(self, *, session_timeout_s: float) -> MetadataStore:
        """Returns a store of the same service with a session of its own; ``close`` it. Raises as the opening did."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes vanish at once. Watches are silent from now on."""
        ...


def parent_of(path: str) -> str:
    """Returns the path of the node above, and "" above the topmost."""
    return path.rpartition("/")[0]
