"""What a trigger of a query of many streams asks, when few of them or none have something new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.following_queries import FollowingQuery, entries, values
from support.listed_streams import ListedStream
from support.small_cluster import SmallCluster
from tallystick.pipeline import rounds
from tallystick.pipeline.stream import planner
from tallystick.pipeline.stream.bounds import StreamExtent

COUNT, FEW = 24, 4


@pytest.fixture
async def streams(cluster: SmallCluster) -> list[ListedStream]:
    """Each with an entry, in a ledger that stays open."""
    made = [ListedStream(cluster.client(10 + number), f"tenant/ns/persistent/t{number:02}") for number in range(COUNT)]
    for stream in made:
        await stream.create()
        await stream.append(*entries(0))
    await made[-1].tell_lac()
    return made


@pytest.fixture(autouse=True)
def long_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "FEW", FEW)
    monkeypatch.setattr(rounds, "ROUND_S", 1e9)


async def started(query: Any) -> FollowingQuery:
    following: FollowingQuery = query(subscribePattern="tenant/.*")
    assert await following.until_idle() == values(0) * COUNT
    return following


def asked_bookies(cluster: SmallCluster) -> int:
    return sum(len(bookie.requests) + len(bookie.requests_v3) for bookie in cluster.bookies.values())


async def test_a_trigger_asks_of_few_streams_while_none_has_anything(
    cluster: SmallCluster, streams: list[ListedStream], query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = await started(query)
    resumed: list[StreamExtent] = []
    monkeypatch.setattr(planner, "backlog", lambda extent, at: resumed.append(extent))
    before = asked_bookies(cluster)
    for _ in range(3):
        assert not await following.trigger()
    assert asked_bookies(cluster) - before <= 3 * FEW * len(cluster.bookies)
    assert not resumed, "streams were decided anew that had nothing new"


async def test_a_message_of_a_quiet_stream_is_read_within_a_round(streams: list[ListedStream], query: Any) -> None:
    following = await started(query)
    for stream in (streams[5], streams[-1]):
        await stream.append(*entries(1))
        await stream.tell_lac()
    for _ in range(COUNT // FEW):
        await following.trigger()
    assert following.rows == values(0) * COUNT + values(1, 1)
    assert not await following.trigger()


async def test_a_stream_with_a_new_ledger_is_looked_at_at_once(streams: list[ListedStream], query: Any) -> None:
    following = await started(query)
    for _ in range(2):  # so that the first ones are not next in turn
        await following.trigger()
    await streams[0].append(*entries(1))
    await streams[0].roll()
    changed = following.follower._followed[streams[0].name].stream_list
    async with asyncio.timeout(60):
        while len(changed.info.ledgers) < 2:
            await changed.wait(changed.changes)
    assert await following.trigger()
    assert following.rows[COUNT:] == values(1)


async def test_a_busy_stream_is_looked_at_by_each_trigger(streams: list[ListedStream], query: Any) -> None:
    following = await started(query)
    await streams[-1].append(*entries(1))
    await streams[-1].tell_lac()
    while following.rows == values(0) * COUNT:
        await following.trigger()
    for number in (2, 3):
        await streams[-1].append(*entries(number))
        await streams[-1].tell_lac()
        assert await following.trigger()
    assert following.rows[COUNT:] == values(1, 2, 3)


async def test_a_deleted_stream_is_missed_within_a_round(streams: list[ListedStream], query: Any) -> None:
    following = query(subscribePattern="tenant/.*", failOnDataLoss="false")
    await following.until_idle()
    await streams[7].delete()
    for _ in range(COUNT // FEW + 1):
        await following.trigger()
    assert streams[7].name not in following.at and len(following.at) == COUNT - 1


async def test_a_stream_that_is_read_further_than_it_was_seen_is_looked_at_at_once(
    streams: list[ListedStream], query: Any
) -> None:
    """Another planner of the query saw more: what this one saw is no end of the stream."""
    following = await started(query)
    for _ in range(2):  # so that the first ones are not next in turn
        await following.trigger()
    await streams[0].append(*entries(1))
    assert following.at is not None
    at = following.at[streams[0].name]
    following.at = {**following.at, streams[0].name: at._replace(entry=at.entry + 1)}
    assert not await following.trigger()


async def test_available_now_looks_at_all(streams: list[ListedStream], query: Any) -> None:
    following = await started(query)
    for number, stream in enumerate(streams):
        await stream.append(*entries(1 + number))
    await streams[-1].tell_lac()
    await following.decisions.freeze(following.follower)
    assert await following.trigger()
    assert following.rows[COUNT:] == values(*range(1, COUNT + 1))
