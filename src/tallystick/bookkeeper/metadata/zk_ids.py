"""New ledger ids from ZooKeeper (``ZkLedgerIdGenerator``, ``LongZkLedgerIdGenerator``).

ZooKeeper numbers the sequential nodes of a folder; a node under ``idgen`` gives a short id and is deleted again. The
number has 31 bits: when they are used up, or ``idgen-long`` is there (another client saw it first), ids are long: upper
half the number of a folder ``idgen-long/HOB-…``, lower half the sequence in it.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Protocol

from kazoo.exceptions import NodeExistsError, NoNodeError

from tallystick.bookkeeper.metadata.layout import SHORT_IDS_END
from tallystick.bookkeeper.wire.values import LedgerId

KEPT_HIGH_FOLDERS = 3


class Requests(Protocol):
    """What ids ask of a session; see ZkSession."""

    async def call(self, name: str, *arguments: Any, repeatable: bool = True, **options: Any) -> Any: ...

    def post(self, name: str, *arguments: Any) -> None: ...


class LedgerIds:
    """The next id; unique among those given out, though a ledger with a chosen id may be there already."""

    def __init__(self, session: Requests, root: str) -> None:
        self._session, self._short, self._long = session, f"{root}/idgen", f"{root}/idgen-long"
        self._is_long = False

    async def next(self) -> LedgerId:
        if not self._is_long and not await self._session.call("exists", self._long):
            number = await self._sequence(self._short)
            if 0 <= number < SHORT_IDS_END:
                return number
        self._is_long = True
        return await self._next_long()

    async def _next_long(self) -> LedgerId:
        high = max(await self._highs(), default=1)
        while True:
            low = await self._sequence(f"{self._long}/HOB-{high:010d}")
            if 0 <= low < SHORT_IDS_END:
                return high << 32 | low
            high += 1
            await self._open_high(high)

    async def _highs(self) -> list[int]:
        try:
            names = await self._session.call("get_children", self._long)
        except NoNodeError:
            return []
        return sorted(int(name[4:]) for name in names if re.fullmatch(r"HOB-\d+", name))

    async def _open_high(self, high: int) -> None:
        """The next folder; the ones before the last three are of no use to any client."""
        path = f"{self._long}/HOB-{high:010d}"
        with contextlib.suppress(NodeExistsError):
            await self._session.call("create", path, makepath=True)
        for old in (await self._highs())[:-KEPT_HIGH_FOLDERS]:
            self._session.post("delete", f"{self._long}/HOB-{old:010d}")

    async def _sequence(self, folder: str) -> int:
        """The number of a new sequential node; negative when ZooKeeper's counter ran over."""
        made = await self._session.call("create", f"{folder}/ID-", ephemeral=True, sequence=True, makepath=True)
        self._session.post("delete", made)  # were it lost: the node is ephemeral
        return int(made.rpartition("/ID-")[2])
