"""To whom a cluster's nodes in ZooKeeper belong: shown, and changed while everything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tallystick.bookkeeper.metadata.uri import ZK_OPTIONS, SqliteUri, ZooKeeperUri, parse, shown
from tallystick.errors import UsageError
from tallystick.runtime.extras import require

if TYPE_CHECKING:
    from tallystick.bookkeeper.metadata.zk_acls import Walk

SESSION_S = 10.0
ORDERS = ("show", "set", "clear", "rotate")


async def zk_acl(uri: str, order: str, count: Callable[[int], None]) -> tuple[Walk, Walk | None]:
    """Walk over the nodes of a cluster; ``order`` is one of ORDERS.

    Returns what is so now, and what the walk that changed it found. Raises UsageError where there is no ZooKeeper, or
    no identity to give nodes to; MetadataRefused where it is not let in; MetadataUnavailable.
    """
    where = parse(uri)
    if isinstance(where, SqliteUri):
        raise UsageError(
            "sqlite:// has no ACL: who may read and change it is said by the mode of the file and its folder",
            uri=shown(uri),
        )
    if not isinstance(where, ZooKeeperUri):
        raise UsageError("ACLs are of a cluster in ZooKeeper: zk+hierarchical://host:port/ledgers", uri=shown(uri))
    if where.identity is None and order in ("set", "rotate"):
        raise UsageError(
            f"nobody is named to give the nodes to: {'=…&'.join(ZK_OPTIONS[:2])}=… behind the ? of the metadata URI",
            uri=shown(uri),
        )
    require("metadata in ZooKeeper", "kazoo")
    from tallystick.bookkeeper.metadata.zk_acls import AclWalk, Order, own_acls
    from tallystick.bookkeeper.metadata.zk_session import ZkSession

    ids = where.identity.ids(where.identity.secrets()) if where.identity is not None else ()
    session = ZkSession(where, SESSION_S)
    await session.start()
    try:
        walk = AclWalk(session, own_acls(ids), count)
        done = await walk.walk(Order(order), change=True) if order != "show" else None
        return await walk.walk(Order(order), change=False), done
    finally:
        await session.close()
