from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import NoSuchTopic, UsageError
from tallystick.rocketmq.client import topic as topic_module
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import Topic
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode
from tallystick.runtime.events import Event, Events


@pytest.mark.parametrize("wrong", ["", " ; ", "host", []])
def test_a_client_needs_addresses(wrong: str | list[str]) -> None:
    with pytest.raises(UsageError):
        topics(wrong)


async def test_a_client_can_be_awaited_and_closed_twice(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    mq = await topics(cluster.address)
    topic = await mq.topic("T")
    assert topic.addresses == {"b": {0: fake.address}}
    await mq.close()
    await mq.close()
    for use in (lambda: mq.producer("g"), lambda: mq.consumer("g", "T")):
        with pytest.raises(UsageError):
            use()


async def test_a_group_whose_producer_was_closed_gets_another_one(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    closed = mq.producer("g")
    await closed.close()
    producer = mq.producer("g")
    assert producer is not closed and mq.producer("g") is producer
    await producer.send("T", b"x")
    with pytest.raises(UsageError, match="closed"):
        await closed.send("T", b"y")


async def test_a_client_waits_for_what_a_producer_sent_that_was_closed_and_replaced(cluster: FakeCluster) -> None:
    fake = await cluster.add()
    held: list[tuple[Link, Command]] = []
    fake.react[RequestCode.SEND_MESSAGE_V2] = lambda link, command: held.append((link, command))
    mq = await topics(cluster.address)
    replaced = mq.producer("g")
    sent = replaced.send_nowait("T", b"x")
    await until(lambda: held)
    closing = asyncio.ensure_future(replaced.close())
    await asyncio.sleep(0)
    mq.producer("g")
    ending = asyncio.ensure_future(mq.close())
    await asyncio.wait([ending], timeout=0.1)
    ((link, command),) = held
    link.send(fake._send(link, command))
    await asyncio.gather(closing, ending)
    assert (await sent).queue_offset == 0


async def test_offsets_by_limit_and_time(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add()
    queue = MessageQueue("T", "b", 0)
    fake.queues["T", 0] = [(0, b"x", b"")] * 9
    fake.first["T", 0] = 4
    assert await mq.queue_limits(queue) == (4, 9)
    assert await mq.offset_at(queue, 1_000_042) == 42


async def test_routes_are_refreshed(cluster: FakeCluster) -> None:
    await cluster.add("b1")
    async with topics(cluster.address, settings=BrokerClientSettings(route_refresh_s=0.02)) as mq:
        assert len((await mq.topic("T")).writable) == 2
        await cluster.add("b2")
        await until(lambda: len(mq._context.routes.topics[0].writable) == 4)


async def test_sets_whose_queues_a_client_cannot_keep_are_named_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_module, "MAX_QUEUES", 3)
    told: list[Event] = []
    for name in ("b1", "b2"):
        await cluster.add(name)
    async with topics(cluster.address, events=Events(told.append)) as mq:
        for _ in range(2):
            assert {queue.broker for queue in (await mq.topic("T")).readable} == {"b1"}
        assert [event.fields for event in told if event.kind == "queues left out"] == [
            {"topic": "T", "sets": 1, "brokers": ["b2"]}
        ]
        monkeypatch.setattr(topic_module, "MAX_QUEUES", 4)
        assert {queue.broker for queue in (await mq.topic("T")).readable} == {"b1", "b2"}


async def test_a_topic_that_goes_keeps_its_old_route_until_asked_for(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add()
    await mq.topic("T")
    cluster.name_server.routes.delete_topic("T")
    with pytest.raises(NoSuchTopic):
        await mq.topic("T")


async def test_a_background_task_that_dies_fails_whatever_depends_on_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without heartbeats brokers give the consumer's queues to others, and it would wait for ever."""
    await cluster.add()
    told: list[Event] = []
    settings = BrokerClientSettings(heartbeat_s=0.02)
    async with topics(cluster.address, settings=settings, events=Events(told.append)) as mq:
        producer, consumer = mq.producer("p"), mq.consumer("g", "T")
        await consumer.start()
        await producer.send("T", b"x")
        await anext(consumer)

        async def bug() -> bool:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(mq._membership, "beat", bug)
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(10):
                await anext(consumer)
        assert [event.fields["reason"] for event in told if event.kind == "client failed"] == [
            "ZeroDivisionError('a bug')"
        ]
        uses: list[Callable[[], object]] = [
            lambda: producer.send_nowait("T", b"y"),
            lambda: mq.producer("q"),
            lambda: mq.consumer("h", "T"),
        ]
        for use in uses:
            with pytest.raises(ZeroDivisionError):
                use()


@pytest.mark.parametrize("task", ["_rebalancing.share_out", "_assignment.commit"])
async def test_a_task_of_a_consumer_that_dies_fails_it(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    await cluster.add()
    settings = BrokerClientSettings(rebalance_s=0.02, commit_interval_s=0.02)
    async with topics(cluster.address, settings=settings) as mq:
        consumer = mq.consumer("g", "T")
        await consumer.start()

        async def bug(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patch:
            owner, _, name = task.partition(".")
            patch.setattr(getattr(consumer, owner), name, bug)
            with pytest.raises(ZeroDivisionError):
                async with asyncio.timeout(10):
                    await anext(consumer)


async def test_messages_that_wait_for_a_route_hear_of_a_bug(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add()
    producer = mq.producer("p")

    async def bug(name: str) -> Topic:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(producer, "_find", bug)
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(10):
            await producer.send("T", b"x")
    await producer.drain()


@pytest.mark.parametrize("wrong", [{"pull_hold_s": 40.0}, {"send_retries": -1}, {"down_s": 0}])
def test_settings_that_cannot_work(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        BrokerClientSettings(**wrong)  # type: ignore[arg-type]


def test_a_send_waits_longer_than_a_broker_for_its_slave() -> None:
    """Else every send to a broker whose slave hangs would end in doubt."""
    assert BrokerClientSettings().send_timeout_s * 1000 > HaSettings().slave_timeout_ms
