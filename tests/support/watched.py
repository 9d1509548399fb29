"""Metadata whose looks a test sees and holds up, and the answers to adds that waited for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from support.bookies import Peer, codes
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Record
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import MetadataUnavailable

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))


class Watched(ClusterMetadata):
    """Tells what was looked up; ``gate`` holds looks up."""

    def __init__(self, cluster: str) -> None:
        super().__init__(MemoryStore(cluster))
        self.looked_up: list[tuple[int, ...]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def look_up(self, ledgers: Sequence[int]) -> Mapping[int, Record | None]:
        self.looked_up.append(tuple(ledgers))
        await self.gate.wait()
        if self.fails:
            raise MetadataUnavailable("the service went away")
        return await super().look_up(ledgers)


async def answers(peer: Peer, count: int) -> list[tuple[int, int, int]]:
    """(code, ledger, entry) of so many answers, sorted."""
    found = [await peer.frame() for _ in range(count)]
    return sorted(answer[1:] for frame in found for answer in codes(frame or b""))
