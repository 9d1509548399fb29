"""The fixtures of ``tallystick.testing.plugin``."""

from __future__ import annotations

from tallystick.testing import Cluster
from tallystick.testing.plugin import (  # noqa: F401  # fixtures; users name the module in pytest_plugins
    OpenCluster,
    ledger_cluster,
    tally_cluster,
    topic_cluster,
)


async def test_the_clusters_of_fixtures(
    ledger_cluster: Cluster,  # noqa: F811
    topic_cluster: Cluster,  # noqa: F811
    tally_cluster: OpenCluster,  # noqa: F811
) -> None:
    assert list(ledger_cluster.nodes) == ["bookie-1", "bookie-2", "bookie-3"]
    assert list(topic_cluster.brokers) == ["broker-a", "broker-a-s1"]
    mine = await tally_cluster(bookies=1)
    async with mine.connect() as bk, bk.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
        assert await writer.append(b"x") == 0
