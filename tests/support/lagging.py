"""A metadata server that lags until it is told to catch up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Point, Znode


class Lagging(MemoryStore):
    """It has not heard of anything yet but the cluster's LAYOUT and a former identity of it."""

    lags = True

    async def sync(self) -> Point:
        self.lags = False
        return await super().sync()

    async def get(self, path: str) -> Znode | None:
        return (await self.get_many([path])).get(path)

    async def get_many(self, paths: Sequence[str]) -> Mapping[str, Znode]:
        nodes = await super().get_many(paths)
        if not self.lags:
            return nodes
        old = {path: node._replace(data=b"former") for path, node in nodes.items() if path.endswith("/INSTANCEID")}
        return {path: node for path, node in nodes.items() if path.endswith("/LAYOUT")} | old

    async def children(self, path: str) -> list[str] | None:
        return [] if self.lags else await super().children(path)
