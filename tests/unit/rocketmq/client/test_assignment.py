"""Acknowledging, seeking, pausing, lag: a consumer of fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from support.consuming import fill, lose_connection, others_stand_at, take
from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import BrokerError, UsageError
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

QUEUE = MessageQueue("T", "b", 0)
COMMITTED = ("g", "T", 0)
PULL, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET


async def test_acknowledged_in_any_order_and_committed_up_to_the_lowest_that_is_not(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        messages = await take(consumer, 5)
        for message in (messages[4], messages[1], messages[0]):
            consumer.ack(message)
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 2
        consumer.ack(messages[2])
    assert fake.offsets[COMMITTED] == 3
    async with mq.consumer("g", "T") as consumer:
        assert [message.offset for message in await take(consumer, 7)] == list(range(3, 10))


async def test_what_is_at_hand_and_acknowledged_is_committed_though_the_loop_is_left(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    with pytest.raises(ZeroDivisionError):
        async with mq.consumer("g", "T", start="first") as consumer:
            async for message in consumer:
                consumer.ack(message)
                raise ZeroDivisionError
    assert fake.offsets[COMMITTED] == 1


async def test_a_commit_returns_when_the_broker_has_the_offset_and_a_later_one_waits_for_it(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    held: list[tuple[Link, Command]] = []
    async with mq.consumer("g", "T", start="first") as consumer:
        await take(consumer, 2)
        fake.react[COMMIT] = lambda link, command: held.append((link, command))
        first = asyncio.create_task(consumer.commit())
        await until(lambda: held)
        await take(consumer, 1)
        second = asyncio.create_task(consumer.commit())
        await mq.queue_limits(QUEUE)  # the broker has whatever was asked before
        assert not first.done()
        assert len(held) == 1
        del fake.react[COMMIT]
        [(link, command)] = held
        link.send(fake._update_offset(link, command))
        await asyncio.gather(first, second)
        assert fake.offsets[COMMITTED] == 2


async def test_a_seek_goes_on_there_at_once_and_is_committed(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first") as consumer:
        messages = await take(consumer, 10)
        await until(lambda: fake.count(PULL) == 2)  # the second one is held by the broker
        consumer.seek(QUEUE, 6)
        assert consumer.position(QUEUE) == 6
        consumer.ack(messages[7])  # of before
        assert [event.fields["offset"] for event in told if event.kind == "acknowledgement ignored"] == [7]
        assert [message.offset for message in await take(consumer, 2)] == [6, 7]
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 7
        fill(fake, 11)
        fake.wake()  # the pull of before the seek is answered, behind those of after it
        assert [message.offset for message in await take(consumer, 3)] == [8, 9, 10]
        readers = [task for task in asyncio.all_tasks() if "QueueReader.run" in repr(task)]
        assert len(readers) == 1  # the one that waited for the answer of before the seek is gone
        with pytest.raises(UsageError):
            consumer.seek(QUEUE, -1)


@pytest.mark.parametrize(("where", "offset"), [("first", 2), ("last", 10), (1_000_005, 5)])
async def test_seek_to_a_place(cluster: FakeCluster, mq: RocketMQ, where: str | int, offset: int) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 10, 0)
    fill(fake, 10, 1)
    fake.first["T", 0] = 2
    async with mq.consumer("g", "T", start=1_000_007) as consumer:
        await consumer.seek_to(where, queues=[QUEUE])
        assert consumer.position(QUEUE) == offset
        other = MessageQueue("T", "b", 1)
        assert consumer.position(other) == 7
        await consumer.seek_to(1_000_003)
        assert [consumer.position(queue) for queue in (QUEUE, other)] == [3, 3]
        with pytest.raises(UsageError, match="first, last"):
            await consumer.seek_to("middle")
        with pytest.raises(UsageError, match="does not read"):
            await consumer.seek_to("first", queues=[MessageQueue("X", "b", 0)])


async def test_a_queue_that_is_not_read_is_named(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(queues=1)
    nobody = MessageQueue("T", "b", 7)
    async with mq.consumer("g", "T") as consumer:
        with pytest.raises(UsageError, match="does not read"):
            consumer.position(nobody)
        with pytest.raises(UsageError, match="does not read"):
            consumer.seek(nobody, 0)
        with pytest.raises(UsageError, match="does not read"):
            consumer.pause([nobody])
        with pytest.raises(UsageError, match="does not read"):
            consumer.resume([nobody])


async def test_the_lag_is_what_is_not_acknowledged(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 10, 0)
    fill(fake, 4, 1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        lag = await consumer.lag()
        assert (lag.total, lag.by_queue) == (14, {QUEUE: 10, MessageQueue("T", "b", 1): 4})
        for message in await take(consumer, 14):
            if message.offset != 2:
                consumer.ack(message)
        assert (await consumer.lag()).by_queue == {QUEUE: 8, MessageQueue("T", "b", 1): 2}


async def test_a_paused_queue_is_not_pulled_and_goes_on_where_it_was(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 6, 0)
    async with mq.consumer("g", "T", start="first") as consumer:
        assert [message.offset for message in await take(consumer, 2)] == [0, 1]
        consumer.pause([QUEUE])
        await mq.producer("p").send("T", b"other", queue=MessageQueue("T", "b", 1))
        assert [message.body for message in await take(consumer, 1)] == [b"other"]
        assert consumer.position(QUEUE) == 2
        await until(lambda: len(fake._held) == 2)
        consumer.pause()
        waiting = asyncio.create_task(take(consumer, 1))
        fill(fake, 40, 0)
        pulls = fake.count(PULL)
        fake.wake()  # the pulls that were held when the pause came
        await until(lambda: consumer._core.queues[QUEUE].pull.next_offset == 38)
        await consumer.commit()
        assert not waiting.done()
        assert fake.count(PULL) == pulls
        consumer.resume()
        assert [message.offset for message in await waiting] == [2]
        assert [message.offset for message in await take(consumer, 37)] == list(range(3, 40))


async def test_no_more_is_pulled_than_may_be_unacknowledged(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 200)
    told: list[Event] = []
    settings = BrokerClientSettings(pull_count=10, queue_max_unacked=30)
    async with topics(cluster.address, settings=settings, events=Events(told.append)) as mq:
        async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
            messages = await take(consumer, 30)
            more = asyncio.create_task(take(consumer, 10))
            await until(lambda: [event for event in told if event.kind == "waits for acknowledgements"])
            assert fake.count(PULL) == 3
            assert not more.done()
            consumer.ack(messages[12])
            assert [message.offset for message in await more] == list(range(30, 40))
        assert not fake.offsets.get(COMMITTED)


async def test_a_message_acknowledged_long_after_the_others_bounds_how_far_they_go(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 200)
    async with topics(cluster.address, settings=BrokerClientSettings(pull_count=10, queue_max_span=50)) as mq:
        async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
            first, *rest = await take(consumer, 50)
            for message in rest:
                consumer.ack(message)
            more = asyncio.create_task(take(consumer, 150))
            await consumer.commit()
            assert fake.count(PULL) == 5
            consumer.ack(first)
            await until(lambda: fake.count(PULL) > 5)
            more.cancel()
        assert fake.offsets[COMMITTED] == 50


async def test_several_topics_each_with_its_tags(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 4, topic="T")
    fill(fake, 4, topic="X")
    async with mq.consumer("g", {"T": "A", "X": "B || C"}, start="first") as consumer:
        assert consumer.topics == ("T", "X")
        assert [queue.topic for queue in consumer.queues] == ["T", "X"]
        messages = await take(consumer, 4)
        assert {(message.topic, message.offset) for message in messages} == {("T", 0), ("T", 2), ("X", 1), ("X", 3)}
        consumer.ack(messages[-1])
        assert repr(consumer) == "<Consumer g of T, X: 2 queues>"
    assert fake.offsets == {("g", "T", 0): 4, ("g", "X", 0): 4}
    [group] = fake.heartbeats[-1].consumers
    assert [(one.topic, one.expression) for one in group.subscriptions] == [
        ("T", "A"),
        ("X", "B || C"),
        ("%RETRY%g", "*"),
    ]
    assert repr(consumer) == "<Consumer g of T, X: closed>"
    assert repr(mq.consumer("g", ["T", "X"])) == "<Consumer g of T, X: not started>"
    with pytest.raises(UsageError, match="mapping"):
        mq.consumer("g", {"T": "A"}, tags="B")
    with pytest.raises(UsageError, match="one topic"):
        mq.consumer("g", [])


async def test_a_group_goes_on_where_it_began_though_it_did_nothing_there(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Else what comes before its next member is passed over: ``last`` is another place then."""
    fake = await cluster.add(queues=1)
    fill(fake, 40)
    async with mq.consumer("g", "T", start="last") as consumer:
        await until(lambda: consumer.queues)
    assert fake.offsets[COMMITTED] == 40
    fill(fake, 45)
    async with mq.consumer("g", "T", start="last") as consumer:
        assert [message.offset for message in await take(consumer, 5)] == list(range(40, 45))


async def test_a_commit_that_goes_back_says_so(cluster: FakeCluster, mq: RocketMQ) -> None:
    """The broker that gets it may not know how far the group was: that was another one."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for offset in (8, 2, 5):
            consumer.seek(QUEUE, offset)
            await consumer.commit()
    said = [
        (each.fields["commitOffset"], each.fields.get("tallyWentBack")) for each in fake.asked if each.code == COMMIT
    ]
    assert said == [("0", None), ("8", None), ("2", "true"), ("5", None)]


@pytest.mark.parametrize(("others", "resets"), [(7, 0), (2, 1), (7, 1)])
async def test_who_was_away_goes_on_where_others_left_the_group(
    cluster: FakeCluster, mq: RocketMQ, others: int, resets: int
) -> None:
    """They had its queues meanwhile: what they have done would come again, what they went back to never."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        await consumer.commit()
        late = await take(consumer, 1)
        await lose_connection(fake)
        others_stand_at(fake, others, resets)
        consumer.ack(late[0])
        commits = fake.count(COMMIT)
        await consumer.commit()
        assert fake.offsets[COMMITTED] == others
        await consumer.commit()
        assert fake.count(COMMIT) == commits, "what they left is not told to them: they may have gone on"
        assert [message.offset for message in await take(consumer, 10 - others)] == list(range(others, 10))
    assert fake.offsets[COMMITTED] == others


@pytest.mark.parametrize(("others", "resets"), [(7, 0), (2, 1)])
async def test_who_was_away_and_lost_its_queues_commits_nothing_of_them(
    cluster: FakeCluster, mq: RocketMQ, others: int, resets: int
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)

    async def revoked(queues: Collection[MessageQueue]) -> None:
        await consumer.commit()

    consumer = mq.consumer("g", "T", start="first", auto_ack=False, on_revoked=revoked)
    async with consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        await consumer.commit()
        late = await take(consumer, 1)
        consumer.ack(late[0])
        others_stand_at(fake, others, resets)
    assert fake.offsets[COMMITTED] == others


@pytest.mark.parametrize("forgot", [None, 3])
async def test_what_a_broker_forgot_is_told_again(cluster: FakeCluster, mq: RocketMQ, forgot: int | None) -> None:
    """A restart costs it what it had not saved. Nobody went back since."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        await consumer.commit()
        await lose_connection(fake)
        del fake.offsets[COMMITTED]
        if forgot is not None:
            fake.offsets[COMMITTED] = forgot
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 5


async def test_who_seeks_after_it_was_away_means_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await take(consumer, 5)
        await lose_connection(fake)
        others_stand_at(fake, 7, 0)
        consumer.seek(QUEUE, 4)
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 4


async def test_a_reset_is_heard_with_a_commit_where_no_pull_tells_of_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    """A pull from a slave, or one that the broker holds, tells nothing."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 10):
            consumer.ack(message)
        fake.react[COMMIT] = lambda link, command: command.response(0, None, {"tallyResetTo": "4"})
        await consumer.commit()
        del fake.react[COMMIT]
        again = await take(consumer, 6)
        assert [message.offset for message in again] == list(range(4, 10))
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 4


async def test_a_reset_that_is_heard_while_a_queue_goes_is_left_to_who_gets_it(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        [message] = await take(consumer, 1)
        consumer.ack(message)
        fake.react[COMMIT] = lambda link, command: command.response(0, None, {"tallyResetTo": "4"})
        before = fake.count(COMMIT)
    assert fake.count(COMMIT) == before + 1, "it does not say that it heard"
    assert "offset moved" not in [event.kind for event in told]


async def test_where_an_operator_set_a_group_its_consumer_does_not_go_back_by_itself(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Such a commit counts as a later reset at a master that was away."""
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    responses = [{"tallyResetTo": "2"}, None]

    def commit(link: Link, command: Command) -> Command:
        if not responses:
            return fake._update_offset(link, command)
        if (fields := responses.pop(0)) is None:
            return command.response(ResponseCode.SYSTEM_ERROR, "not now")
        return command.response(0, None, fields)

    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        consumer.seek(QUEUE, 4)
        await consumer.commit()
        consumer.seek(QUEUE, 5)
        fake.react[COMMIT] = commit
        with pytest.raises(BrokerError, match="not now"):
            await consumer.commit()
        await consumer.commit()
    last = [command for command in fake.asked if command.code == COMMIT][-1]
    assert (last.fields["commitOffset"], last.fields.get("tallyWentBack")) == ("2", None)


async def test_a_queue_that_is_sought_while_it_goes_gets_no_reader(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 5)

    def revoked(queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            consumer.seek(queue, 2)

    consumer = mq.consumer("g", "T", start="first", on_revoked=revoked)
    async with consumer:
        await take(consumer, 1)
    assert fake.offsets[COMMITTED] == 2
    await mq.queue_limits(QUEUE)
    assert not [task for task in asyncio.all_tasks() if "QueueReader" in repr(task.get_coro())]


async def test_what_a_broker_says_of_the_last_message_goes_with_pulls_and_commits(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 5)
    fake.offsets[COMMITTED] = 2
    told: list[tuple[int, str | None]] = []

    def pulled(link: Link, command: Command) -> Command | None:
        told.append((PULL, command.fields.get("tallyMark")))
        response = fake._pull(link, command)
        return response and command.response(response.code, None, response.fields | {"tallyMark": "4.e"}, response.body)

    def committed(link: Link, command: Command) -> Command:
        told.append((COMMIT, command.fields.get("tallyMark")))
        return fake._update_offset(link, command)

    fake.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: command.response(
        0, None, {"offset": "2", "tallyMark": "1.b"}
    )
    fake.react |= {PULL: pulled, COMMIT: committed}
    async with mq.consumer("g", "T", auto_ack=False) as consumer:
        messages = await take(consumer, 3)
        await until(lambda: len(told) == 2)
        consumer.ack(messages[0])
        await consumer.commit()
        consumer.seek(QUEUE, 1)
        await consumer.commit()
    assert [mark for code, mark in told if code == COMMIT] == ["4.e", None], "where it was sent it knows nothing"
    assert [mark for code, mark in told if code == PULL][:2] == ["1.b", "4.e"]
