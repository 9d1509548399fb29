"""Streaming queries of streams that owners and sinks write."""

from __future__ import annotations

import asyncio

import pytest

from support.following_queries import FollowingQuery, entries, values
from support.listed_streams import NAME, ListedStream
from support.small_cluster import SmallCluster
from support.stream_partitions import wanted
from support.waiting import until
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import EARLIEST, StreamInfo
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
    assert following.rows[-1:] == values(count)


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


async def _handed_over(cluster: SmallCluster, following: FollowingQuery, count: int) -> BookKeeper:
    """The query has read so many messages, and is at a ledger without entries when a broker may have the stream."""
    bk = cluster.client(3)
    await cluster.store.change(Create("/admin/clusters/east", b"{}"))
    await bk.create_for_pulsar(NAME)
    stream = await bk.open_stream(NAME)
    for number in range(count):
        await stream.append(b"%d" % number)
    if count:
        await stream.roll_over()
    await until_read(following, count)
    await bk.hand_over(NAME)
    return bk


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("count", [0, 2])
async def test_a_hand_over_that_drops_the_empty_ledger_at_which_the_query_is_is_no_loss(
    cluster: SmallCluster, following: FollowingQuery, count: int, restarts: bool
) -> None:
    """A broker may load the topic much later, or never, and may write nothing before it gives the stream back."""
    bk = await _handed_over(cluster, following, count)
    for handed_back in (False, True):
        if restarts:
            following.restart()
        assert await following.has_read(count)
        if handed_back:
            broker = ListedStream(cluster.client(8))
            broker.info, broker.version = await _read(bk)
            await broker.roll()
        assert await following.has_read(count)
    async with bk.take_back(NAME, takeover=True) as stream:
        if restarts:
            following.restart()
        assert await following.has_read(count)
        await stream.append(b"%d" % count)
        await until_read(following, count + 1)


async def test_rows_of_a_broker_that_nobody_read_and_it_has_deleted_are_lost(
    cluster: SmallCluster, following: FollowingQuery
) -> None:
    bk = await _handed_over(cluster, following, 0)
    broker = ListedStream(cluster.client(8))
    broker.info, broker.version = await _read(bk)
    await broker.roll()
    await broker.append(*entries(0))
    await broker.roll()
    at, following.rows = following.at, []
    following.restart()
    assert await following.has_read(1)
    await broker.trim(1)
    following.restart()
    assert not await following.trigger()
    following.at = at
    following.restart()
    with pytest.raises(PositionTrimmed, match="rows may be lost"):
        await following.trigger()


async def test_owners_that_came_and_went_unseen_without_an_append_are_no_loss(
    cluster: SmallCluster, following: FollowingQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planner that had not heard of the first of two took their ledgers for deleted ones."""
    monkeypatch.setattr(StreamList, "_read_later", lambda stream_list: None)
    async with cluster.client(3).open_stream(NAME) as stream:
        await until_read(following, 0)
        assert following.at == {NAME: stream._owner.flow.ledger_end.of_entry._replace(entry=0)}
    await _died(cluster)
    await _died(cluster)
    followed = following.follower._followed[NAME].stream_list
    await followed.sync()
    async with cluster.client(5).open_stream(NAME, takeover=True) as successor:
        await successor.append(b"0")
        await followed.sync()
        await asyncio.sleep(0.3)
        assert await following.has_read(1)


async def _read(bk: BookKeeper) -> tuple[StreamInfo, int]:
    stored = await bk.stream_context.catalog.read(NAME, synced=True)
    return stored.value, stored.version
