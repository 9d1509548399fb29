"""What a streaming query reads, batch by batch, while its topics grow, shrink, gain queues and lose brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from support.fake_brokers import FakeCluster
from support.following_topics import FollowingTopics, fill, rows_of
from tallystick.errors import BrokerUnavailable, NoSuchMessage, NoSuchTopic, Unavailable, UsageError
from tallystick.pipeline.lag import SAMPLES, Lag
from tallystick.pipeline.topic import follow, planner
from tallystick.pipeline.topic.offsets import Positions
from tallystick.pipeline.trigger import TriggerLimits
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode

Follow = Callable[..., Awaitable[FollowingTopics]]
PULL, STATS = RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ROUTE_S", 0.0)


@pytest.fixture
async def query(cluster: FakeCluster) -> AsyncIterator[Follow]:
    started: list[FollowingTopics] = []

    async def start(**options: str) -> FollowingTopics:
        started.append(await FollowingTopics(cluster.address, **options).start())
        return started[-1]

    yield start
    for each in started:
        await each.close()


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def queue(number: int, topic: str = "T", broker: str = "b") -> MessageQueue:
    return MessageQueue(topic, broker, number)


async def test_rows_come_once_over_batches_and_planners(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0, 1, 2)
    following = await query()
    assert await following.until_idle() == values(0, 1, 2)
    await following.restart()
    assert not await following.trigger()
    fill(broker, 1, 3, 4)
    fill(broker, 0, 5)
    assert sorted(await following.until_idle()) == values(0, 1, 2, 3, 4, 5)
    assert following.at == {queue(0): 4, queue(1): 2}


async def test_a_query_begins_where_its_options_say(cluster: FakeCluster, query: Follow) -> None:
    fill(await cluster.add(), 0, *range(10))
    assert await (await query(startingOffsets="latest")).until_idle() == []
    assert await (await query(startingTimestamp="7")).until_idle() == values(7, 8, 9)  # the fake's: the offset itself
    assert await (await query(startingOffsets='{"T": {"b": {"0": 8}}}')).until_idle() == values(8, 9)
    with pytest.raises(NoSuchMessage, match="startingOffsets: the queue does not reach"):
        await (await query(startingOffsets='{"T": {"b": {"0": 11}}}')).trigger()
    with pytest.raises(UsageError, match="startingOffsets names a queue that the query does not read"):
        await (await query(startingOffsets='{"T": {"b": {"7": 1}}}')).trigger()
    with pytest.raises(NoSuchTopic):
        await (await query(subscribe="absent")).trigger()


async def test_a_batch_is_the_same_when_it_is_planned_again(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    for number in range(9):
        fill(broker, number % 2, number, body=b"%d" + b"x" * 300 * number)
    following = await query(maxBytesPerPartition="3k")
    start = await following.decisions.initial(following.follower)
    end = await following.decisions.latest(following.follower, start, TriggerLimits())
    planned = await following.partitions(start, end)
    assert len(planned) > 3
    fill(broker, 0, 100, body=b"%d" + b"x" * 100_000)
    broker.pull_count = 3
    await following.restart()
    assert [each.ranges for each in await following.partitions(start, end)] == [each.ranges for each in planned]
    assert len(await rows_of(planned)) == 9


async def test_limits_are_kept_batch_by_batch(cluster: FakeCluster, query: Follow) -> None:
    fill(await cluster.add(), 0, *range(9))
    following = await query(maxOffsetsPerTrigger="2")
    sizes = []
    while await following.trigger():
        sizes.append(len(following.rows))
    assert following.rows == values(*range(9)) and sizes == [2, 4, 6, 8, 9]
    by_bytes = await query(maxBytesPerTrigger="300")
    assert await by_bytes.trigger() and by_bytes.rows == values(0, 1, 2)
    assert await by_bytes.trigger(TriggerLimits()) and by_bytes.rows == values(*range(9))


async def test_a_batch_waits_for_enough_messages(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    following = await query(minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    assert not await following.trigger()
    fill(broker, 1, 1, 2)
    assert await following.trigger() and following.rows == values(0, 1, 2)
    fill(broker, 1, 3)
    assert not await following.trigger()
    await following.decisions.freeze(following.follower)  # AvailableNow reads what there is
    assert await following.trigger() and following.rows[-1] == b"3"


async def test_available_now_ends_where_the_queues_were(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, *range(5))
    following = await query(maxOffsetsPerTrigger="2")
    await following.decisions.freeze(following.follower)
    fill(broker, 0, 5)
    assert await following.until_idle() == values(*range(5))
    assert following.decisions.reached() == {queue(0): 5, queue(1): 0}
    await following.restart()
    assert await following.until_idle() == values(*range(6))


async def test_topics_of_a_pattern_and_queues_that_come_in_the_middle(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    following = await query(subscribePattern="T.*", startingOffsets="latest")
    assert await following.until_idle() == []
    cluster.register(broker, queues=3, topics=("T", "X", "Two"))
    fill(broker, 2, 1)
    fill(broker, 0, 2, topic="Two")
    fill(broker, 0, 3, topic="X")
    assert await following.until_idle() == values(1, 2)
    assert following.at is not None and len(following.at) == 6


async def test_a_queue_that_is_new_and_whose_beginning_is_deleted_is_no_loss(
    cluster: FakeCluster, query: Follow
) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    following = await query()
    assert await following.until_idle() == values(0)
    cluster.register(broker, queues=3)
    fill(broker, 2, *range(1, 6))
    broker.first[("T", 2)] = 3
    assert await following.until_idle() == values(0, 4, 5)


async def test_a_topic_may_come_after_its_pattern(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add(topics=("X", "Y"))
    following = await query(subscribePattern="T.*")
    assert not await following.trigger() and following.at == {}
    cluster.register(broker, topics=("X", "T"))
    fill(broker, 0, 0)
    assert await following.until_idle() == values(0)


async def test_single_queues(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    fill(broker, 1, 1)
    following = await query(assign='{"T": {"b": [1]}}')
    assert await following.until_idle() == values(1) and following.at == {queue(1): 1}
    with pytest.raises(NoSuchTopic, match="assign names a queue that is not there"):
        await (await query(assign='{"T": {"b": [1, 9]}}')).trigger()


async def test_what_a_query_reads_no_more_is_left_alone(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    both = await query(subscribe="T,X")
    await both.until_idle()
    one = await query(subscribe="X")
    one.at = both.at
    fill(broker, 0, 1)
    fill(broker, 0, 2, topic="X")
    assert await one.until_idle() == values(2)
    assert one.at is not None and {each.topic for each in one.at} == {"X"}


async def test_what_expired_before_it_was_read(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, *range(6))
    following = await query()
    following.at = {queue(0): 1, queue(1): 0}
    broker.first[("T", 0)] = 4
    with pytest.raises(NoSuchMessage, match="what was at this offset is deleted: rows may be lost; failOn"):
        await following.trigger()
    going_on = await query(failOnDataLoss="false")
    going_on.at = following.at
    assert await going_on.until_idle() == values(4, 5)


async def test_a_queue_that_is_shorter_than_what_was_read(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, *range(3))
    at: Positions = {queue(0): 5, queue(1): 0}
    following = await query()
    following.at = at
    with pytest.raises(NoSuchMessage, match="does not reach to this offset any more: rows may be lost"):
        await following.trigger()
    await following.decisions.freeze(following.follower)  # AvailableNow
    with pytest.raises(NoSuchMessage, match="does not reach to this offset any more: rows may be lost"):
        await following.trigger()
    going_on = await query(failOnDataLoss="false")
    going_on.at = at
    assert await going_on.until_idle() == []
    fill(broker, 0, 3)
    assert await going_on.until_idle() == values(3)


async def test_messages_that_go_between_the_plan_and_the_task(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, *range(50))
    following = await query(failOnDataLoss="false")
    start = await following.decisions.initial(following.follower)
    end = await following.decisions.latest(following.follower, start, TriggerLimits())
    planned = await following.partitions(start, end)
    broker.first[("T", 0)] = 47
    assert await rows_of(planned) == values(47, 48, 49)
    del broker.queues[("T", 0)][49:]  # as a slave's are that lacked the end, and took its master's place
    assert await rows_of(planned) == values(47, 48)
    broker.unknown_topics.add("T")
    broker.queues.clear()
    assert await rows_of(planned) == []


@pytest.mark.rule("H3", "H13")
async def test_h13_a_dead_master_is_stood_in_for_by_its_slave(cluster: FakeCluster, query: Follow) -> None:
    """A slave may lack what its master had: that is no loss while the master may come back."""
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    fill(master, 0, *range(5))
    fill(slave, 0, *range(3))
    slave.first[("T", 0)] = 2
    following = await query(maxOffsetsPerTrigger="4")
    assert await following.trigger() and following.rows == values(0, 1, 2, 3)
    await master.stop()
    assert not await following.trigger()
    at = following.at
    await following.restart()
    await following.decisions.freeze(following.follower)  # AvailableNow
    assert not await following.trigger() and following.at == at
    await following.restart()
    fill(slave, 0, 3, 4, 5)
    assert await following.until_idle() == values(*range(6))


@pytest.mark.rule("H13")
@pytest.mark.parametrize("limits", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
async def test_h13_another_master_takes_the_place_of_one_that_is_lost_and_available_now_goes_on(
    cluster: FakeCluster, query: Follow, limits: str
) -> None:
    master = await cluster.add()
    fill(master, 0, *range(9))
    following = await query(**{limits: "4" if limits == "maxOffsetsPerTrigger" else "400"})
    await following.decisions.freeze(following.follower)
    assert await following.trigger()
    await master.stop()
    fill(await cluster.add(), 0, *range(12))  # at another address
    assert await following.until_idle() == values(*range(9))


@pytest.mark.rule("H3", "H13")
async def test_h13_what_a_slave_lacks_of_the_beginning_is_no_loss_while_the_master_may_come_back(
    cluster: FakeCluster, query: Follow
) -> None:
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    fill(master, 0, *range(5))
    fill(slave, 0, *range(5))
    slave.first[("T", 0)] = 2
    following = await query()
    following.at = {queue(0): 1, queue(1): 0}
    await master.stop()
    with pytest.raises(Unavailable, match="a broker does not answer, and the others do not have it"):
        await following.trigger()


@pytest.mark.rule("H13")
async def test_h13_a_queue_that_is_new_begins_where_its_master_says_and_not_where_a_slave_does(
    cluster: FakeCluster, query: Follow
) -> None:
    fill(await cluster.add("a"), 0, 0)
    following = await query()
    assert await following.until_idle() == values(0)
    master, slave = await cluster.add("b", 0), await cluster.add("b", 1)
    for each in (master, slave):
        fill(each, 0, 1, 2, 3)
    slave.first[("T", 0)] = 2
    await master.stop()
    assert await following.until_idle() == values(0) and queue(0) not in (following.at or {})
    master = await cluster.add("b", 0)
    fill(master, 0, 1, 2, 3)
    assert await following.until_idle() == values(0, 1, 2, 3)


async def test_a_name_server_that_is_away_ends_no_query(cluster: FakeCluster, query: Follow) -> None:
    """Neither that of topics by their names, which asks for their routes alone, nor one that has asked for none."""
    broker = await cluster.add()
    fill(broker, 0, 0)
    following = await query()
    assert await following.until_idle() == values(0)
    await cluster.name_server.close()
    fill(broker, 0, 1)
    assert await following.until_idle() == values(0, 1)
    await following.restart()
    with pytest.raises(Unavailable):
        await following.trigger()


@pytest.mark.rule("H3")
async def test_h3_a_slave_takes_its_master_s_place(cluster: FakeCluster, query: Follow) -> None:
    master = await cluster.add("b", 0)
    fill(master, 0, *range(3))
    following = await query()
    assert await following.until_idle() == values(0, 1, 2)
    await master.stop()
    successor = await cluster.add("b", 0)  # the name server knows it under the master's id
    fill(successor, 0, *range(5))
    assert await following.until_idle() == values(*range(5))


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_others_go_on_while_a_broker_is_away(
    cluster: FakeCluster,
    query: Follow,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_forgotten: bool,
) -> None:
    one, two = await cluster.add("a"), await cluster.add("b")
    fill(one, 0, 0)
    fill(two, 0, 1)
    following = await query()
    assert await following.until_idle() == values(0, 1)
    at = following.at
    await two.stop()
    if is_forgotten:  # by the name server
        cluster.name_server.routes.unregister("c", "b", two.address)
    fill(one, 0, 2)
    assert await following.until_idle() == values(0, 1, 2)
    assert at is not None and following.at == {**at, queue(0, broker="a"): 2}  # it goes on there later
    monkeypatch.setattr(planner, "PATIENCE_S", 0.0)
    with pytest.raises(BrokerUnavailable, match=r"no broker has this queue that the query reads.*rows may be lost"):
        await following.trigger()
    going_on = await query(failOnDataLoss="false")
    going_on.at = following.at
    assert not await going_on.trigger() and going_on.at == following.at
    monkeypatch.setattr(planner, "PATIENCE_S", 0.5)
    capsys.readouterr()
    begun, notes, triggers = asyncio.get_running_loop().time(), 0, 0
    while asyncio.get_running_loop().time() < begun + 1.2:
        await going_on.trigger()
        notes, triggers = notes + capsys.readouterr().err.count("no broker has this queue"), triggers + 1
    assert 0 < notes < triggers / 2, "once in a while, not with each trigger"


async def test_a_topic_that_is_deleted(cluster: FakeCluster, query: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0)
    following = await query()
    assert await following.until_idle() == values(0)
    cluster.name_server.routes.delete_topic("T")
    assert not await following.trigger()  # its brokers may be away
    monkeypatch.setattr(planner, "PATIENCE_S", 0.0)
    with pytest.raises(NoSuchTopic, match="is deleted, or all its brokers are away: rows may be lost"):
        await following.trigger()


async def test_a_topic_that_is_made_anew_with_fewer_queues(
    cluster: FakeCluster, query: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await cluster.add()
    fill(broker, 0, 0, 1)
    fill(broker, 1, 2)
    following = await query()
    assert await following.until_idle() == values(0, 1, 2)
    broker.queues.clear()
    cluster.register(broker, queues=1)
    fill(broker, 0, 10)
    with pytest.raises(NoSuchMessage, match="does not reach to this offset any more: rows may be lost"):
        await following.trigger()
    fill(broker, 0, 11)  # as many as it had: those of its old offsets pass for read
    monkeypatch.setattr(planner, "PATIENCE_S", 0.0)
    with pytest.raises(BrokerUnavailable, match=r"no broker has this queue that the query reads.*rows may be lost"):
        await following.trigger()
    going_on = await query(failOnDataLoss="false")
    going_on.at = following.at
    fill(broker, 0, 12)
    assert await going_on.until_idle() == values(12)
    assert await (await query()).until_idle() == values(10, 11, 12), "a checkpoint of its own has all"


async def test_a_trigger_asks_each_broker_set_once(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add(queues=1000)
    following = await query()
    await following.trigger()
    asked = len(broker.asked)
    assert not await following.trigger()
    assert len(broker.asked) == asked + 1 and broker.asked[-1].code == STATS
    for number in range(1000):
        fill(broker, number, number)
    assert await following.trigger() and len(following.rows) == 1000
    sampled = broker.count(PULL) - 1000  # one a queue reads it
    assert sampled <= 32 and broker.count(STATS) == 4


async def test_queues_of_which_no_message_is_looked_at_count_with_the_usual_size(
    cluster: FakeCluster, query: Follow
) -> None:
    broker = await cluster.add(queues=SAMPLES + 8)
    for number in range(SAMPLES + 8):
        fill(broker, number, 10, 11)
    following = await query(maxOffsetsPerTrigger=str(SAMPLES + 8))
    assert await following.trigger()
    before = broker.count(PULL)
    lag = await following.decisions.lag(following.follower)
    assert broker.count(PULL) - before == SAMPLES
    assert lag.rows == SAMPLES + 8 and lag.bytes % lag.rows == 0 and lag.bytes // lag.rows > 50


async def test_the_lag_is_what_a_batch_leaves(cluster: FakeCluster, query: Follow) -> None:
    broker = await cluster.add()
    fill(broker, 0, *range(8))
    fill(broker, 1, 8, 9)
    following = await query(maxOffsetsPerTrigger="5")
    assert await following.trigger()
    lag = await following.decisions.lag(following.follower)
    assert lag.rows == 5 and lag.bytes > 5 * 50 and lag.seconds is not None and lag.seconds >= 0
    await following.until_idle()
    assert await following.decisions.lag(following.follower) == Lag()
    fill(broker, 1, 10)
    waiting = await query(minOffsetsPerTrigger="20")
    assert not await waiting.trigger()
    assert (await waiting.decisions.lag(waiting.follower)).rows == 11
