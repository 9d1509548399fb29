"""From a URI to its driver; each store's library is imported only when it is used."""

from __future__ import annotations

from typing import Protocol

from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.uri import MemoryUri, SqliteUri, parse
from tallystick.runtime.extras import require


class Connect(Protocol):
    """Opens the metadata at a URI, as ``open_driver`` does."""

    async def __call__(self, uri: str, *, session_timeout_s: float) -> MetadataDriver: ...


async def open_driver(uri: str, *, session_timeout_s: float = 10.0) -> MetadataDriver:
    """Connect to a cluster's metadata; ``close()`` it when done. The cluster itself need not exist yet.

    ``session_timeout_s`` is how long a registration outlives its process, and how long a call waits for a service that
    does not answer. Raises UsageError for a bad URI or a library that is not installed, MetadataUnavailable when
    the service cannot be reached.
    """
    where = parse(uri)
    if isinstance(where, MemoryUri):
        from tallystick.bookkeeper.metadata.memory import MemoryStore

        return ClusterMetadata(MemoryStore(where.name, session_timeout_s=session_timeout_s))
    if isinstance(where, SqliteUri):
        from tallystick.bookkeeper.metadata.sqlite import SqliteStore

        return ClusterMetadata(SqliteStore(where.path, session_timeout_s=session_timeout_s))
    require("metadata in ZooKeeper", "kazoo")
    from tallystick.bookkeeper.metadata.zookeeper import ZooKeeperStore

    store = await ZooKeeperStore.connect(where, session_timeout_s=session_timeout_s)
    return ClusterMetadata(store, where.root, where.manager)
