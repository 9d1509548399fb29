"""Streaming queries of ledgers without Spark: a planner, and its partitions read one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.arrow import SCHEMA
from tallystick.pipeline.ledger.follow import LedgerFollower
from tallystick.pipeline.ledger.offsets import LedgerPositions, from_offset, to_offset
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition
from tallystick.pipeline.ledger.planner import LedgerDecisions
from tallystick.pipeline.ledger.read import read_partition
from tallystick.pipeline.trigger import TriggerLimits


async def rows_of(partitions: Sequence[LedgerPartition], options: LedgerOptions) -> list[tuple[int, int, bytes]]:
    """Ledger, entry and payload."""

    def read() -> list[tuple[int, int, bytes]]:
        batches = [batch for each in partitions for batch in read_partition(each, SCHEMA, options)]
        return [(row["ledger"], row["entry"], row["payload"]) for batch in batches for row in batch.to_pylist()]

    return await asyncio.to_thread(read)  # the bookies are on this loop


class FollowingLedgers:
    """A query without Spark: its position, and the rows that it has read."""

    def __init__(self, cluster: SmallCluster, **options: str) -> None:
        texts = {"uri": "sqlite:///unused", "startingOffsets": "earliest", **options}
        self._cluster, self.options = cluster, LedgerOptions.parse(texts, {}, follows=True)
        self.rows: list[tuple[int, int, bytes]] = []
        self.at: LedgerPositions | None = None
        self._client = 100
        self.follower = self.restart()

    def restart(self) -> LedgerFollower:
        """Another planner process, which knows nothing."""
        self._client += 1
        self.decisions = LedgerDecisions(self.options)
        self.follower = LedgerFollower(self._cluster.client(self._client), self.options)
        return self.follower

    async def trigger(self, limits: TriggerLimits | None = None) -> bool:
        """Returns whether there was a batch."""
        if self.at is None:
            self.at = await self.decisions.initial(self.follower)
        end = await self.decisions.latest(self.follower, self.at, limits or self.options.trigger)
        if end == self.at:
            return False
        end = from_offset(to_offset(end))
        self.rows += await rows_of(await self.partitions(self.at, end), self.options)
        self.at = end
        return True

    async def partitions(self, start: LedgerPositions, end: LedgerPositions) -> list[LedgerPartition]:
        return await self.decisions.partitions(self.follower, start, end)

    async def until_idle(self) -> list[bytes]:
        while await self.trigger():
            pass
        return self.payloads

    async def until_read(self, count: int) -> list[bytes]:
        """Go on until so many rows are read: an idle writer tells its LAC after a moment."""
        while len(self.rows) < count:
            if not await self.trigger():
                await asyncio.sleep(0.01)
        return self.payloads

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.rows]
