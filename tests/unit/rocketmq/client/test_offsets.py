"""Where a group begins, and what of that is committed when: a consumer of fakes."""

from __future__ import annotations

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.errors import BrokerUnavailable, NoSuchTopic
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

QUEUE = MessageQueue("T", "b", 0)
COMMITTED = ("g", "T", 0)
PULL, COMMIT, QUERY = RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET


async def slave_alone(cluster: FakeCluster) -> FakeBroker:
    """The slave of a master that is away; both had ten messages."""
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1)
    fill(slave, 10)
    await master.stop()
    return slave


async def test_that_no_process_of_a_broker_answers_is_told_apart(cluster: FakeCluster, mq: RocketMQ) -> None:
    """About its other queues it is not asked then, each for its time-out."""
    fake = await cluster.add(queues=1)
    fake.react[COMMIT] = lambda link, command: None
    with pytest.raises(BrokerUnavailable) as raised:
        await offsets.commit(mq._context, "g", QUEUE, 3)
    assert raised.type is BrokerUnavailable and raised.value.brokers == [fake.address]


@pytest.mark.rule("H13")
@pytest.mark.parametrize("start", ["last", 1_000_005])
async def test_a_group_that_a_slave_does_not_know_is_not_new(
    cluster: FakeCluster, mq: RocketMQ, start: str | int
) -> None:
    """It may not have copied the offset yet: who began behind it would pass over what is between."""
    slave = await slave_alone(cluster)
    with pytest.raises(BrokerUnavailable, match="wait for the master"):
        await mq.consumer("g", "T", start=start).start()
    assert COMMITTED not in slave.offsets


@pytest.mark.rule("H13")
async def test_it_begins_at_the_first_message_though_only_a_slave_answers(cluster: FakeCluster, mq: RocketMQ) -> None:
    """That is behind none which the group has yet to get."""
    slave = await slave_alone(cluster)
    slave.first["T", 0] = 4  # what it has
    async with mq.consumer("g", "T", start="first"):
        assert slave.offsets[COMMITTED] == 0


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST])
async def test_a_commit_that_a_slave_refuses_as_it_has_not_copied_the_topic_or_group_is_no_refusal(
    cluster: FakeCluster, mq: RocketMQ, code: ResponseCode
) -> None:
    slave = await slave_alone(cluster)
    slave.react[COMMIT] = lambda link, command: command.response(code, "not here")
    with pytest.raises(BrokerUnavailable, match="not copied"):
        await offsets.commit(mq._context, "g", QUEUE, 3)


async def test_a_commit_that_the_master_refuses_is_refused(cluster: FakeCluster, mq: RocketMQ) -> None:
    """It knows all topics: waiting does not cure that."""
    fake = await cluster.add(queues=1)
    fake.react[COMMIT] = lambda link, command: command.response(ResponseCode.TOPIC_NOT_EXIST, "not here")
    with pytest.raises(NoSuchTopic):
        await offsets.commit(mq._context, "g", QUEUE, 3)


@pytest.mark.parametrize("said", [None, 0])
async def test_where_a_group_begins_is_committed_before_it_gets_a_message(
    cluster: FakeCluster, mq: RocketMQ, said: int | None
) -> None:
    """Else one whose first message kills it begins somewhere else when it is back. 0 may be of a group without one."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    first = 10 if said is None else said
    if said is not None:
        fake.react[QUERY] = lambda link, command: command.response(0, None, {"offset": str(said)})
    pulled: list[int | None] = []

    def pull(link: Link, command: Command) -> Command | None:
        pulled.append(fake.offsets.get(COMMITTED))
        return fake._pull(link, command)

    fake.react[PULL] = pull
    async with mq.consumer("g", "T", start="last"):
        await until(lambda: pulled)
    assert pulled[0] == first


async def test_a_reset_that_the_first_commit_meets_is_where_the_group_begins(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)

    def reset(link: Link, command: Command) -> Command:
        if fake.count(COMMIT) == 1:
            return command.response(0, None, {"tallyResetTo": "4"})
        return fake._update_offset(link, command)

    fake.react |= {
        COMMIT: reset,
        QUERY: lambda link, command: command.response(0, None, {"offset": "0", "tallyMark": "a"}),
    }
    async with mq.consumer("g", "T", start="last") as consumer:
        assert fake.offsets[COMMITTED] == 4
        assert [message.offset for message in await take(consumer, 6)] == list(range(4, 10))
    marks = [command.fields.get("tallyMark") for command in fake.asked if command.code in (COMMIT, PULL)]
    assert marks[:3] == ["a", None, ""], "it is that of another place"


async def test_of_a_reset_that_another_one_meets_no_broker_is_known_to_have_heard(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """So the next commit tells it, though the group has done nothing since."""
    fake = await cluster.add(queues=1)
    fake.react[COMMIT] = lambda link, command: command.response(0, None, {"tallyResetTo": "4"})
    stand = await offsets.start_group_offset(mq._context, "g", QUEUE, "first")
    assert (stand.offset, stand.connection) == (4, None)


async def test_a_broker_that_was_away_is_told_again_where_the_group_stands(cluster: FakeCluster, mq: RocketMQ) -> None:
    """It may have forgotten what it had not saved; who begins anew there passes over what came meanwhile."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="last") as consumer:
        await until(lambda: fake._held)
        commits = fake.count(COMMIT)
        await consumer.commit()
        assert fake.count(COMMIT) == commits, "nothing has changed"
        for times in (1, 2):
            fake.offsets.clear()
            [(link, _)] = fake._held
            link.close()
            await until(lambda: not fake._held)
            await until(lambda: fake._held)
            await consumer.commit()
            assert fake.offsets[COMMITTED] == 10
            await consumer.commit()
            assert fake.count(COMMIT) == commits + times
