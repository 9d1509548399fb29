"""DistributedLog, unchanged, keeps its logs on bookies of either kind: its readers need version 3 of the protocol."""

from __future__ import annotations

import pytest

from support.clusters import Cluster
from support.content import expected
from support.java import DISTRIBUTEDLOG, Java, prepare
from support.peers import LogPeer


@pytest.fixture(scope="session")
def logs(java: Java) -> Java:
    """Its own class path; ``java`` says whether originals can run here at all."""
    return prepare(DISTRIBUTEDLOG)


@pytest.mark.rule("Q1", "Q6", "Q10", "Q17")
async def test_q17_a_log_is_written_read_and_recovered(cluster: Cluster, logs: Java) -> None:
    writer = await LogPeer.open(logs, cluster.uri, cluster.folder, first=True)
    reader = await LogPeer.open(logs, cluster.uri, cluster.folder)
    try:
        await writer.ask("write", log="log", first=1, count=200, size=300, seed=41)
        assert await reader.ask("read", log="log", count=200) == expected(41, 1, 200, 300), "while it is open"
        writer.kill()  # its last segment is open: the next writer recovers it
        await reader.ask("write", log="log", first=201, count=50, size=300, seed=41)
        await reader.ask("close", log="log")
        assert await reader.ask("read", log="log", count=250) == expected(41, 1, 250, 300)
    finally:
        for peer in (writer, reader):
            peer.kill()
