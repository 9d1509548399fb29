"""Streaming queries of streams that owners and sinks write."""

from __future__ import annotations

import asyncio

import pytest

from support.following_queries import FollowingQuery, values
from support.listed_streams import NAME
from support.small_cluster import SmallCluster
from support.stream_partitions import wanted
from support.waiting import until
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import EARLIEST
from tallystick.errors import PositionTrimmed


@pytest.fixture
async def following(cluster: SmallCluster) -> FollowingQuery:
    return FollowingQuery(cluster, wanted(follows=True, startingOffsets="earliest", maxOffsetsPerTrigger="3"))


@pytest.mark.rule("Q6", "Q19")
async def test_q19_rows_come_once_though_another_owner_takes_the_stream(
    cluster: SmallCluster, following: FollowingQuery
) -> None:
    """What the first owner had not told to be confirmed comes when the second one has recovered it."""
    first = cluster.client(3)
    stream = await first.open_stream(NAME)
    for number in range(4):
        await stream.append(b"%d" % number)
    await following.until_idle()
    assert following.rows == values(*range(len(following.rows)))
    async with cluster.client(4).open_stream(NAME, takeover=True) as successor:
        assert await following.until_idle() == values(*range(4))
        await successor.append(b"4")
        await asyncio.sleep(0.3)
        assert await following.until_idle() == values(*range(5))
    stream.abort()


async def _died(cluster: SmallCluster, retention_bytes: int = -1) -> None:
    """An owner comes, trims, and dies without an append."""
    settings = StreamSettings(retention_bytes=retention_bytes)
    stream = await cluster.client(6).open_stream(NAME, takeover=True, settings=settings)
    await stream.trim()
    stream.abort()


async def _committed(cluster: SmallCluster, data: bytes) -> None:
    bk = cluster.client(4)
    sink = await bk.open_sink(NAME, application="etl", query="q", switch=True)
    async with bk.sink_attempt(sink.ticket, 0, 0) as attempt:
        await attempt.append(data)
        written = await attempt.close()
    await sink.commit(0, [written])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_sink", [False, True])
@pytest.mark.parametrize(("count", "is_trimmed"), [(0, False), (2, False), (2, True)])
async def test_a_ledger_that_was_dropped_as_nothing_was_in_it_is_no_loss(
    cluster: SmallCluster, following: FollowingQuery, count: int, is_trimmed: bool, is_sink: bool, restarts: bool
) -> None:
    """The query is at its beginning: what was before it is read, and may be trimmed."""
    stream = await cluster.client(3).open_stream(NAME)
    for number in range(count):
        await stream.append(b"%d" % number)
    if count:
        await stream.roll_over()
    await until_read(following, count)
    await stream.close()
    await _died(cluster, 0 if is_trimmed else -1)
    if restarts:
        following.restart()
    async with cluster.client(5).open_stream(NAME, takeover=True):
        pass
    if is_sink:
        await _committed(cluster, b"%d" % count)
    else:
        async with cluster.client(5).open_stream(NAME) as successor:
            await successor.append(b"%d" % count)
    await until_read(following, count + 1)


async def test_an_entry_that_was_not_read_and_is_gone_with_those_behind_it(
    cluster: SmallCluster, following: FollowingQuery
) -> None:
    async with cluster.client(3).open_stream(NAME) as stream:
        await stream.append(b"0")
        await stream.roll_over()
        await until_read(following, 1)
        await stream.append(b"1")
    await _died(cluster, 0)
    following.restart()
    with pytest.raises(PositionTrimmed, match="rows may be lost"):
        await following.until_idle()


@pytest.mark.rule("Q18")
async def test_q18_batches_that_a_sink_commits_are_rows_once(cluster: SmallCluster, following: FollowingQuery) -> None:
    """Such a stream has no open ledger: each commit lists closed ones."""
    bk = cluster.client(3)
    sink = await bk.open_sink(NAME, application="etl", query="q")
    assert not await following.trigger() and following.at == {NAME: EARLIEST}
    for batch in range(3):
        written = []
        for partition in range(2):
            async with bk.sink_attempt(sink.ticket, batch, partition) as attempt:
                await attempt.append(b"%d" % (2 * batch + partition))
                written.append(await attempt.close())
        assert await following.until_idle() == values(*range(2 * batch))  # nothing before the commit
        await sink.commit(batch, [ledger for ledger in written if ledger is not None])
        await until_read(following, 2 * batch + 2)
    following.restart()
    assert await following.until_idle() == values(*range(6))


async def until_read(following: FollowingQuery, count: int) -> None:
    await until(lambda: following.has_read(count))
