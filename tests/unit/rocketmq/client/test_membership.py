"""Members of a group whose heartbeats or connections are lost."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick import testing
from tallystick.errors import TallyError
from tallystick.rocketmq.client import sharing
from tallystick.rocketmq.client.absences import PART
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.membership import MAX_PAUSE_S
from tallystick.rocketmq.client.producer import Producer
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerIds
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode

QUEUE = ("T", 0)


async def first(joining: Consumer) -> bytes:
    async with asyncio.timeout(10):
        return bytes((await anext(joining)).body)


async def test_a_member_whose_heartbeat_was_lost_joins_a_moment_later(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it got nothing for 20 s, until the next turn of sharing out."""
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.05)
    fake = await cluster.add(queues=1)
    fake.queues[QUEUE] = [(0, b"0", b"")]
    beats = 0

    def beat(link: Link, command: Command) -> Command:
        nonlocal beats
        beats += 1
        busy = command.response(ResponseCode.SYSTEM_BUSY, "busy")
        return busy if beats == 1 else fake._heartbeat(link, command)

    fake.react[RequestCode.HEART_BEAT] = beat
    async with mq.consumer("g", "T", start="first") as joining:
        assert joining.queues == []
        assert await first(joining) == b"0"


async def test_a_member_that_is_not_told_who_is_in_the_group_asks_again_soon(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.05)
    fake = await cluster.add(queues=1)
    fake.queues[QUEUE] = [(0, b"0", b"")]
    asked = 0

    def ids(link: Link, command: Command) -> Command:
        nonlocal asked
        asked += 1
        others = command.response(0, body=dialect.write(ConsumerIds(["other"])))
        return others if asked < 4 else fake._ids(link, command)

    fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = ids
    async with mq.consumer("g", "T", start="first") as joining:
        assert await first(joining) == b"0"


async def test_after_a_lost_connection_the_broker_hears_of_the_member_at_once(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """A broker knows members by their connections: for up to 30 s others had the queues of one that reconnected."""
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T"):
        beats = fake.count(RequestCode.HEART_BEAT)
        [link] = fake.members["g"].values()
        link.abort("lost")
        await until(lambda: fake.count(RequestCode.HEART_BEAT) > beats)
    assert {tuple(group.name for group in heartbeat.consumers) for heartbeat in fake.heartbeats} == {("g",)}


@pytest.mark.parametrize("silent", [True, False])
async def test_a_broker_that_takes_no_heartbeat_for_as_long_as_one_waits_is_not_asked_first(
    cluster: FakeCluster, mq: RocketMQ, silent: bool
) -> None:
    """Each question of a new member would wait for it once more; one that refuses is there."""
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1, queues=1)
    master.react[RequestCode.HEART_BEAT] = lambda link, command: (
        None if silent else command.response(ResponseCode.SYSTEM_ERROR, "not now")
    )
    async with mq.consumer("g", "T", start="first"):
        asked_first = slave if silent else master
        assert asked_first.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        assert bool(master.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) is not silent


async def test_a_broker_that_comes_into_a_route_hears_of_the_member_at_once(cluster: FakeCluster, mq: RocketMQ) -> None:
    """It tells whoever asks it who is in the group, from its first second on."""
    await cluster.add(queues=1)
    async with mq.consumer("g", "T"):
        await asyncio.sleep(5)
        for name, broker_id in (("b", 1), ("c", 0)):
            added = await cluster.add(name, broker_id, queues=1)
            assert not added.members
            await mq.topic("T")
            async with asyncio.timeout(1):
                await until(lambda added=added: added.members.get("g"))  # type: ignore[misc]
            assert [group.name for group in added.heartbeats[-1].consumers] == ["g"]


@pytest.mark.parametrize("broker_id", [0, 1])
async def test_a_member_that_leaves_is_in_the_group_at_no_broker_any_more(
    cluster: FakeCluster, mq: RocketMQ, broker_id: int
) -> None:
    """A slave is asked who is in a group when the master is gone."""
    fakes = [await cluster.add(queues=1), await cluster.add(broker_id=1, queues=1)]
    async with mq.consumer("g", "T"):
        await until(lambda: fakes[broker_id].members.get("g"))
    assert fakes[broker_id].members["g"] == {}


async def test_after_a_lost_connection_a_slave_hears_of_the_member_at_once(cluster: FakeCluster, mq: RocketMQ) -> None:
    _, slave = await cluster.add(queues=1), await cluster.add(broker_id=1, queues=1)
    async with mq.consumer("g", "T"):
        await until(lambda: slave.members.get("g"))
        beats = slave.count(RequestCode.HEART_BEAT)
        [link] = slave.members["g"].values()
        link.abort("lost")
        async with asyncio.timeout(1):
            await until(lambda: slave.count(RequestCode.HEART_BEAT) > beats)


async def test_a_producer_is_known_to_masters_alone(cluster: FakeCluster, mq: RocketMQ) -> None:
    master, slave = await cluster.add(queues=1), await cluster.add(broker_id=1, queues=1)
    await mq.producer("p").send("T", b"0")
    await asyncio.sleep(65)
    assert len(master.heartbeats) >= 2 and slave.heartbeats == []


async def test_a_broker_that_takes_no_heartbeats_is_asked_less_and_less_often(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fake.react[RequestCode.HEART_BEAT] = lambda link, command: command.response(ResponseCode.SYSTEM_BUSY, "busy")
    async with mq.consumer("g", "T"):
        await asyncio.sleep(60)
        refused = fake.count(RequestCode.HEART_BEAT)
        assert 60 / MAX_PAUSE_S <= refused < 2 * 60 / MAX_PAUSE_S
        del fake.react[RequestCode.HEART_BEAT]
        async with asyncio.timeout(MAX_PAUSE_S + 1):
            await until(lambda: fake.members.get("g"))


async def test_a_route_that_changes_nothing_for_a_member_costs_no_heartbeat(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T"):
        await asyncio.sleep(1)
        beats = fake.count(RequestCode.HEART_BEAT)
        await mq.topic("X")
        cluster.register(fake, queues=3)
        await mq.topic("T")
        await asyncio.sleep(1)
        assert fake.count(RequestCode.HEART_BEAT) == beats


async def shared_through_a_restart(away_s: float, *, joins_after_s: float | None, seed: int) -> tuple[float, float]:
    """Two members of a group, while their master is killed and comes back. For how long, from then on, do both read one
    queue, and for how long has a queue no reader or one of them no queue? One that joins does so after the restart."""
    read: dict[str, set[MessageQueue]] = {"old": set(), "young": set()}
    doubled_s = idle_s = 0.0

    def member(name: str, mq: RocketMQ) -> Consumer:
        its = read[name]
        return mq.consumer("g", "T", on_assigned=its.update, on_revoked=its.difference_update)

    async def read_on(consumer: Consumer) -> None:
        async for _ in consumer:
            pass

    async def write_on(producer: Producer) -> None:
        while True:
            with contextlib.suppress(TallyError):
                await producer.send("T", b"0")
            await asyncio.sleep(0.2)

    async with (
        testing.cluster(bookies=0, brokers="1+1", seed=seed) as c,
        c.topics() as old,
        c.topics() as young,
        c.topics() as writing,
    ):
        await writing.producer("p").send("T", b"0")
        second = member("young", young)
        tasks = [asyncio.create_task(read_on(member("old", old)))]
        try:
            await asyncio.sleep(15)
            if joins_after_s is None:
                tasks.append(asyncio.create_task(read_on(second)))
                await asyncio.sleep(95)
            tasks.append(asyncio.create_task(write_on(writing.producer("p"))))
            c.brokers["broker-a"].kill()
            await asyncio.sleep(away_s)
            await c.brokers["broker-a"].start()
            if joins_after_s is not None:
                await asyncio.sleep(joins_after_s)
                tasks.append(asyncio.create_task(read_on(second)))
            for _ in range(600):
                await asyncio.sleep(0.1)
                doubled_s += 0.1 * bool(read["old"] & read["young"])
                idle_s += 0.1 * (not all(read.values()) or len(read["old"] | read["young"]) < 4)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return doubled_s, idle_s


@pytest.mark.parametrize("seed", [0, 1])  # either member may be the first of the group
@pytest.mark.parametrize("away_s", [1.0, 40.0])
@pytest.mark.parametrize("joins_after_s", [None, 2.0])
def test_members_share_the_queues_once_their_master_is_back_beside_its_slave(
    away_s: float, joins_after_s: float | None, seed: int
) -> None:
    """They had beaten at the slave alone meanwhile, and the master knew only who came new: two read one queue, or one
    had none, for half a minute."""
    slack_s = 1.5 + away_s / PART
    doubled_s, idle_s = testing.run(shared_through_a_restart(away_s, joins_after_s=joins_after_s, seed=seed))
    assert doubled_s <= slack_s and idle_s <= slack_s, f"{doubled_s:.1f} s doubled, {idle_s:.1f} s idle"
