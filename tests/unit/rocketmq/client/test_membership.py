"""Members of a group whose heartbeats or connections are lost."""

from __future__ import annotations

import asyncio

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.rocketmq.client import sharing
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerIds
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

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
