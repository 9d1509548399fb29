"""Streaming queries of streams without Spark: a planner, and its partitions read one after another."""

from __future__ import annotations

from support.listed_streams import pulsar_entry
from support.small_cluster import SmallCluster
from support.stream_partitions import rows_of
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.pipeline.stream.follow import StreamFollower
from tallystick.pipeline.stream.offsets import Positions
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.planner import StreamDecisions
from tallystick.pipeline.trigger import TriggerLimits


def entries(*numbers: int) -> list[bytes]:
    return [pulsar_entry(b"%d" % number, time_ms=1_000_000 + 1000 * number) for number in numbers]


class FollowingQuery:
    """A query without Spark: its position, and the rows that it has read."""

    def __init__(self, cluster: SmallCluster, options: StreamSourceOptions) -> None:
        self._cluster, self.options = cluster, options
        self.rows: list[bytes] = []
        self.at: Positions | None = None
        self._client = 100
        self.follower = self.restart()

    def restart(self) -> StreamFollower:
        """Another planner process, which knows nothing."""
        self._client += 1
        self.decisions = StreamDecisions(self.options)
        self.follower = StreamFollower(self.client(), self.options)
        return self.follower

    def client(self) -> BookKeeper:
        return self._cluster.client(self._client)

    async def trigger(self, limits: TriggerLimits | None = None) -> bool:
        """Returns whether there was a batch."""
        if self.at is None:
            self.at = await self.decisions.initial(self.follower)
        end = await self.decisions.latest(self.follower, self.at, limits or self.options.trigger)
        if end == self.at:
            return False
        partitions = await self.partitions(self.at, end)
        self.rows += [row["value"] for row in await rows_of(partitions)]
        self.at = end
        return True

    async def partitions(self, start: Positions, end: Positions) -> list[StreamPartition]:
        return await self.decisions.partitions(self.follower, start, end)

    async def has_read(self, count: int) -> bool:
        return await self.until_idle() == values(*range(count))

    async def until_idle(self) -> list[bytes]:
        while await self.trigger():
            pass
        return self.rows


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]
