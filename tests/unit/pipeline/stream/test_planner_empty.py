"""What a streaming query reads of a stream that had nothing when the query began."""

from __future__ import annotations

from typing import Any

import pytest

from support.listed_streams import NAME
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import EARLIEST
from tallystick.errors import PositionTrimmed
from tallystick.pipeline.stream.sink import _existing

RAW = StreamSettings(entry_format="raw", ensemble=3, retention_bytes=1)


async def commit(cluster: SmallCluster, *batches: int) -> None:
    """Store batches, of which retention keeps the last one."""
    sink = await cluster.client(9).open_sink(NAME, "app", "query", settings=RAW)
    for batch in batches:
        async with sink.attempt(batch) as attempt:
            await attempt.append(b"%d" % batch)
            await sink.commit(batch, [await attempt.close()])
        await sink.trim()


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_what_came_and_went_before_the_first_batch_is_a_loss(
    cluster: SmallCluster, query: Any, *, is_restarted: bool
) -> None:
    await _existing(cluster.client(8), NAME)
    following = query(entryFormat="raw")
    assert not await following.trigger() and following.at == {NAME: EARLIEST}
    await commit(cluster, 0, 1, 2)
    if is_restarted:
        following.restart()
    with pytest.raises(PositionTrimmed, match="rows may be lost"):
        await following.until_idle()
    going_on = query(entryFormat="raw", failOnDataLoss="false")
    going_on.at = following.at
    assert await going_on.until_idle() == [b"2"]
