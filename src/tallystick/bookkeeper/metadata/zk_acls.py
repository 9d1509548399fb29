"""To whom the nodes of a cluster in ZooKeeper belong: a walk over all of them, which tells or changes it.

A walk changes what differs, node by node, and keeps no record of where it is: one that ended half way is begun again,
and finds only what is left. What programs make meanwhile is as their own settings say.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, Permissions, make_acl

from tallystick.bookkeeper.metadata.layout import tops
from tallystick.bookkeeper.metadata.zk_identity import DIGEST
from tallystick.bookkeeper.metadata.zk_session import ZkSession
from tallystick.errors import MetadataRefused

AT_ONCE = 64  # nodes that are asked for
MOST_SHOWN = 10
_LETTERS = {
    Permissions.READ: "r",
    Permissions.WRITE: "w",
    Permissions.CREATE: "c",
    Permissions.DELETE: "d",
    Permissions.ADMIN: "a",
}
_OPEN = frozenset(OPEN_ACL_UNSAFE)
Acls = frozenset[Any]  # of kazoo's


class Order(enum.Enum):
    """What a walk makes of each node."""

    SHOW = "show"  # nothing: it compares with this identity's, or with everybody's where there is none
    SET = "set"  # it belongs to this identity alone
    CLEAR = "clear"  # it is everybody's
    ROTATE = "rotate"  # it belongs to this identity as well, unless it is everybody's


@dataclass
class Walk:
    """What was found: nodes by to whom they belong, those that are not as ordered, and those of somebody else."""

    nodes: int = 0
    by_acl: Counter[str] = field(default_factory=Counter)
    differing: int = 0
    changed: int = 0
    closed: int = 0  # this identity may not look at them, or not change them
    first: list[str] = field(default_factory=list)  # of those that differ or are closed

    def note(self, path: str, acls: str) -> None:
        """Name a node, unless enough are named."""
        if len(self.first) < MOST_SHOWN:
            self.first.append(f"{path}: {acls}")


def own_acls(ids: Iterable[tuple[str, str]]) -> Acls:
    """Returns what gives a node to these ids."""
    return frozenset(make_acl(scheme, one, all=True) for scheme, one in ids)


def shown(acls: Acls) -> str:
    """Returns ACLs as people read them; of a digest only as much as tells it apart."""
    return ", ".join(sorted(f"{_id(one.id.scheme, one.id.id)} {_letters(one.perms)}" for one in acls)) or "nobody"


def _id(scheme: str, name: str) -> str:
    if scheme != DIGEST:
        return f"{scheme}:{name}"
    user, _, digest = name.partition(":")
    return f"{scheme}:{user}:{digest[:6]}…"


def _letters(permissions: int) -> str:
    return "".join(letter for bit, letter in _LETTERS.items() if permissions & bit)


class AclWalk:
    """Walks of one session over one cluster; ``count`` hears how many more nodes were looked at."""

    def __init__(self, session: ZkSession, own: Acls, count: Callable[[int], None]) -> None:
        self._session, self._own, self._count = session, own, count

    def _acls_after(self, order: Order, acls: Acls) -> Acls:
        if order is Order.CLEAR or (order is Order.SHOW and not self._own):
            return _OPEN
        if order is Order.ROTATE:
            return acls if acls == _OPEN else acls | self._own
        return self._own

    async def walk(self, order: Order, *, change: bool) -> Walk:
        """Look at all nodes, and ``change`` those that are not as ordered. Raises MetadataUnavailable."""
        walk, waiting, running = Walk(), list(tops(self._session.uri.root)), set[asyncio.Task[list[str]]]()
        seen_tops = set(waiting)
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    running.add(asyncio.ensure_future(self._visit(waiting.pop(), order, change, walk)))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    waiting += [path for path in task.result() if path not in seen_tops]
        finally:
            for task in running:
                task.cancel()
        return walk

    async def _visit(self, path: str, order: Order, change: bool, walk: Walk) -> list[str]:
        """Look at one node. Returns its children."""
        try:
            if not await self._look(path, order, change, walk):
                return []
            names = await self._session.call("get_children", path)
        except MetadataRefused:  # of somebody else, and so is what is below
            walk.closed += 1
            walk.note(path, "closed to this identity")
            return []
        except NoNodeError:
            return []
        return [f"{path}/{name}" for name in names]

    async def _look(self, path: str, order: Order, change: bool, walk: Walk) -> bool:
        """Returns False if there is no such node."""
        while True:
            try:
                listed, stat = await self._session.call("get_acls", path)
                acls = frozenset(listed)
                after = self._acls_after(order, acls)
                if change and acls != after:
                    await self._session.call("set_acls", path, [*after], version=stat.aversion)
                    walk.changed += 1
                    acls = after
            except NoNodeError:  # deleted meanwhile
                return False
            except BadVersionError:  # somebody else changed it meanwhile: look again
                continue
            break
        self._count(1)
        walk.nodes += 1
        walk.by_acl[shown(acls)] += 1
        if acls != after:
            walk.differing += 1
            walk.note(path, shown(acls))
        return True
