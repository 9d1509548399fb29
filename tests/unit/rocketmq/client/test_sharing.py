"""Brokers that refuse a consumer's group: when it waits, and when it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import BrokerError
from tallystick.rocketmq.client import sharing
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ConsumerIds
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.events import Event


async def _next(consumer: Consumer) -> ReceivedMessage:
    async with asyncio.timeout(10):
        return await anext(consumer)


def _no_group(link: Any, command: Any) -> Any:
    return command.response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")


async def test_a_consumer_that_no_broker_lets_in_is_told_why(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "REFUSED_S", 0.1)
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fakes = [await cluster.add("b", queues=1), await cluster.add("c", queues=1)]
    for fake in fakes:
        fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = _no_group
    async with asyncio.timeout(10):
        with pytest.raises(BrokerError, match="no consumer for this group"):
            await anext(mq.consumer("g", "T"))
    assert fakes[0].count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > 1


async def test_one_broker_that_knows_the_group_is_enough(cluster: FakeCluster, mq: RocketMQ) -> None:
    refusing, knowing = await cluster.add("b", queues=1), await cluster.add("c", queues=1)
    refusing.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = _no_group
    knowing.queues["T", 0] = [(0, b"0", b"")]
    async with mq.consumer("g", "T", start="first") as consumer:
        assert (await _next(consumer)).body == b"0"


async def test_a_member_that_one_of_the_brokers_has_not_heard_of_asks_again_soon(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    late = await cluster.add("b", queues=1, topics=("T", "Y"))
    await cluster.add("c", queues=1, topics=("X", "Z"))
    others = dialect.write(ConsumerIds(["other"]))
    late.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda link, command: command.response(0, body=others)
    async with mq.consumer("g", ["T", "X"]) as consumer:
        assert [queue.topic for queue in consumer.queues] == ["X"]
        assert not consumer._sharing.is_settled
        assert consumer._sharing.pause_s == sharing.UNSHARED_S


async def test_a_broker_that_restarts_does_not_fail_a_consumer(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "REFUSED_S", 0.0)  # at its second refusal
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first") as consumer:
        fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = _no_group  # it has not heard the heartbeats
        asked = fake.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        consumer._rebalancing.changed.set()
        await until(lambda: fake.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > asked + 6)
        del fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
        fake.queues["T", 0] = [(0, b"0", b"")]
        fake.wake()
        assert (await _next(consumer)).body == b"0"


async def test_refusals_before_and_after_a_silence_are_not_one_series(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=1)
    fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = _no_group
    async with mq.consumer("g", "T", start="first") as consumer:
        await until(lambda: consumer._sharing.refused_since is not None)
        await fake.stop()
        await until(lambda: consumer._sharing.refused_since is None)
        assert consumer._ready._failure is None
