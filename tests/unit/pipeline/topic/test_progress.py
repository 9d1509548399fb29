"""The offsets of a group that a streaming query moves behind itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from support.following_topics import FollowingTopics, fill
from support.waiting import until
from tallystick.pipeline.topic import progress
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
async def broker(cluster: FakeCluster) -> FakeBroker:
    broker = await cluster.add()
    fill(broker, 0, *range(5))
    return broker


@pytest.fixture
async def query(cluster: FakeCluster, broker: FakeBroker) -> AsyncIterator[FollowingTopics]:
    started = await FollowingTopics(cluster.address, groupId="etl", maxOffsetsPerTrigger="2").start()
    yield started
    await started.close()


async def test_a_group_is_made_and_moved_behind_the_query(broker: FakeBroker, query: FollowingTopics) -> None:
    await query.trigger()
    assert broker.offsets == {("etl", "T", 0): 0, ("etl", "T", 1): 0}
    assert [group.name for beat in broker.heartbeats for group in beat.consumers] == ["etl"]
    assert broker.members == {"etl": {}}  # nobody stays: a consumer's share is not the query's
    await query.until_idle()
    assert broker.offsets == {("etl", "T", 0): 5, ("etl", "T", 1): 0}
    assert broker.count(COMMIT) == 2 + 3 and len(broker.heartbeats) == 1


async def test_a_group_is_where_the_query_begins_and_where_the_next_batch_begins(
    broker: FakeBroker, query: FollowingTopics
) -> None:
    """Spark does not tell of the last batch of a query that ends; the next start does."""
    start = await query.decisions.initial(query.follower)
    assert broker.offsets == {("etl", "T", 0): 0, ("etl", "T", 1): 0}
    end = await query.decisions.latest(query.follower, start, TriggerLimits())
    assert broker.offsets["etl", "T", 0] == 0
    await query.decisions.latest(query.follower, end, TriggerLimits())
    assert broker.offsets["etl", "T", 0] == 5


async def test_the_next_start_moves_what_the_last_batch_left(broker: FakeBroker, query: FollowingTopics) -> None:
    await query.trigger()
    assert broker.offsets[("etl", "T", 0)] == 0
    await query.restart()
    await query.trigger()
    assert broker.offsets[("etl", "T", 0)] == 2


async def test_a_commit_that_fails_fails_no_batch(broker: FakeBroker, query: FollowingTopics) -> None:
    broker.react[COMMIT] = lambda link, command: command.response(ResponseCode.SYSTEM_ERROR, "busy")
    await query.trigger()
    assert await query.trigger() and not broker.offsets
    del broker.react[COMMIT]
    assert len(await query.until_idle()) == 5
    assert broker.offsets == {("etl", "T", 0): 5, ("etl", "T", 1): 0}


async def test_what_is_read_while_a_broker_takes_its_time_is_committed_behind_that(
    broker: FakeBroker, query: FollowingTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no next batch for hours."""
    monkeypatch.setattr(progress, "MOMENT_S", 0.01)
    held: list[tuple[Link, Command]] = []
    broker.react[COMMIT] = lambda link, command: held.append((link, command))
    assert len(await query.until_idle()) == 5
    del broker.react[COMMIT]
    for link, command in held:
        link.send(command.response(0))
    await until(lambda: broker.offsets.get(("etl", "T", 0)) == 5)
