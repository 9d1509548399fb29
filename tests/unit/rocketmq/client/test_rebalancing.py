"""What listeners hear, and what becomes of messages, when queues come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.errors import BrokerError, Unavailable, UsageError
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

QUEUES = [MessageQueue("T", "b", number) for number in range(2)]


def joins(fake: FakeBroker, name: str = "~somebody") -> None:
    fake.members["g"][name] = next(iter(fake.members["g"].values()))
    fake._notify("g")


def leaves(fake: FakeBroker, name: str = "~somebody") -> None:
    del fake.members["g"][name]
    fake._notify("g")


async def test_a_listener_hears_of_queues_when_they_are_there_and_before_they_go(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=2)
    heard: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []

    def assigned(queues: list[MessageQueue]) -> None:
        heard.append(("assigned", queues, consumer.queues))

    async def revoked(queues: list[MessageQueue]) -> None:
        await consumer.commit()
        heard.append(("revoked", queues, consumer.queues))

    consumer = mq.consumer("g", "T", start="first", on_assigned=assigned, on_revoked=revoked)
    await consumer.start()
    joins(fake)
    await until(lambda: len(heard) == 2)
    leaves(fake)
    await until(lambda: len(heard) == 3)
    await consumer.close()
    assert heard == [
        ("assigned", QUEUES, QUEUES),
        ("revoked", QUEUES[1:], QUEUES),
        ("assigned", QUEUES[1:], QUEUES),
        ("revoked", QUEUES, QUEUES),
    ]


async def test_a_listener_hears_of_queues_that_came_though_another_one_was_refused(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=2)
    heard: list[list[MessageQueue]] = []
    refused: list[Command] = []

    def refuse_once(link: Link, command: Command) -> Command:
        if command.fields["queueId"] == "1" and not refused:
            refused.append(command)
            return command.response(ResponseCode.SYSTEM_ERROR, "not now")
        return fake._query_offset(link, command)

    consumer = mq.consumer("g", "T", start="first", on_assigned=heard.append)
    await consumer.start()
    for name in ("!a", "!b"):
        joins(fake, name)
    await until(lambda: not consumer.queues)
    heard.clear()
    fake.react[RequestCode.QUERY_CONSUMER_OFFSET] = refuse_once
    for name in ("!a", "!b"):
        del fake.members["g"][name]
    fake._notify("g")
    await until(lambda: refused)
    consumer._rebalancing.changed.set()
    await until(lambda: len(heard) == 2)
    assert heard == [QUEUES[:1], QUEUES[1:]]
    await consumer.close()


async def test_nothing_of_a_queue_comes_before_its_listener_has_returned(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def assigned(queues: list[MessageQueue]) -> None:
        begun.set()
        await may_end.wait()
        consumer.seek(queues[0], 8)
        assert fake.count(RequestCode.PULL_MESSAGE) == 0

    consumer = mq.consumer("g", "T", start="first", on_assigned=assigned)
    messages = asyncio.create_task(take(consumer, 2))
    async with asyncio.timeout(20):
        await begun.wait()
    await mq.queue_limits(QUEUES[0])  # as long as a pull takes
    may_end.set()
    assert [message.offset for message in await messages] == [8, 9]
    await consumer.close()


async def test_what_is_acknowledged_while_a_queue_goes_is_committed_and_later_it_is_ignored(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    gone = asyncio.Event()

    def revoked(queues: list[MessageQueue]) -> None:
        if not gone.is_set():
            consumer.ack(messages[0])
            gone.set()

    consumer = mq.consumer("g", "T", start="first", auto_ack=False, on_revoked=revoked)
    messages = await take(consumer, 2)
    joins(fake)
    await until(lambda: len(consumer.queues) == 1)
    assert gone.is_set()
    assert fake.offsets["g", "T", 1] == 1
    consumer.ack(messages[1])
    [event] = [event for event in told if event.kind == "acknowledgement ignored"]
    assert event.fields == {"group": "g", "queue": QUEUES[1], "offset": 1}
    leaves(fake)
    assert [message.offset for message in await take(consumer, 2)] == [1, 2]
    await consumer.close()
    assert fake.offsets["g", "T", 1] == 1


async def test_what_the_body_finishes_after_its_queue_went_is_not_committed(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    consumer = mq.consumer("g", "T", start="first")
    await take(consumer, 2)
    joins(fake)
    await until(lambda: len(consumer.queues) == 1)
    fill(fake, 1, 0)
    fake.wake()
    await take(consumer, 1)
    await consumer.commit()
    assert fake.offsets["g", "T", 1] == 1
    await consumer.close()


async def test_a_commit_that_waited_while_its_queue_went_passes_over_nothing(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 5, 1)
    held: list[tuple[Link, Command]] = []
    going = asyncio.Event()
    consumer = mq.consumer("g", "T", start="first", auto_ack=False, on_revoked=lambda queues: going.set())
    messages = await take(consumer, 3)
    await consumer.commit()  # where the group begins
    consumer.ack(messages[0])
    fake.react[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda link, command: held.append((link, command))
    first = asyncio.create_task(consumer.commit())
    await until(lambda: held)
    joins(fake)
    async with asyncio.timeout(20):
        await going.wait()
    await mq.queue_limits(QUEUES[1])  # the queue's going has come to its own commit
    others = [asyncio.create_task(consumer.commit()) for _ in range(10)]
    await mq.queue_limits(QUEUES[1])
    del fake.react[RequestCode.UPDATE_CONSUMER_OFFSET]
    [(link, command)] = held
    link.send(fake._update_offset(link, command))
    await asyncio.gather(first, *others)
    await until(lambda: len(consumer.queues) == 1)
    assert fake.offsets["g", "T", 1] == 1
    await consumer.close()
    assert fake.offsets["g", "T", 1] == 1


@pytest.mark.parametrize("error", [ZeroDivisionError(), Unavailable("what it asked is away"), UsageError("it erred")])
@pytest.mark.parametrize("which", ["on_assigned", "on_revoked"])
async def test_what_a_listener_raises_the_consumer_raises(
    cluster: FakeCluster, mq: RocketMQ, which: str, error: Exception
) -> None:
    """Taken for a broker's, it left queues that were taken on and never read."""
    fake = await cluster.add(queues=2)
    calls = 0

    def listener(queues: list[MessageQueue]) -> None:
        nonlocal calls
        calls += 1
        if calls == (2 if which == "on_assigned" else 1):
            raise error

    consumer = mq.consumer("g", "T", start="first", **{which: listener})  # type: ignore[arg-type]
    await consumer.start()
    waiting = asyncio.create_task(_next(consumer))
    joins(fake)
    if which == "on_assigned":
        await until(lambda: len(consumer.queues) == 1)
        leaves(fake)
    with pytest.raises(type(error)) as raised:
        await waiting
    assert raised.value is error
    await consumer.close()
    assert [member for member in fake.members["g"] if member != "~somebody"] == []


async def _next(consumer: Consumer) -> object:
    async with asyncio.timeout(20):
        return await anext(consumer)


async def test_a_listener_that_raises_at_the_end_leaves_nothing_behind(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 2)

    def revoked(queues: list[MessageQueue]) -> None:
        raise ZeroDivisionError

    consumer = mq.consumer("g", "T", start="first", on_revoked=revoked)
    await take(consumer, 2)
    with pytest.raises(ZeroDivisionError):
        await consumer.close()
    assert fake.offsets["g", "T", 0] == 1
    assert not mq._membership.has_consumer("g")
    assert consumer.queues == []


async def test_members_of_a_group_share_the_queues(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=4)
    for queue in range(4):
        fill(fake, 5, queue)
    first = mq.consumer("g", "T", start="first")
    await first.start()
    assert len(first.queues) == 4
    async with topics(cluster.address) as other:
        second = other.consumer("g", "T", start="first")
        await second.start()
        await until(lambda: len(first.queues) == 2)
        assert sorted([*first.queues, *second.queues]) == [MessageQueue("T", "b", n) for n in range(4)]
        await take(second, 10)
        await second.close()
        await until(lambda: len(first.queues) == 4)
    taken = await take(first, 10)
    assert {message.queue for message in taken}.isdisjoint(second.queues)
    assert len({(message.queue, message.offset) for message in taken}) == 10


async def test_a_broker_that_is_down_does_not_keep_the_others_from_being_read(
    cluster: FakeCluster, told: list[Any]
) -> None:
    dead, alive = await cluster.add("b1", queues=1), await cluster.add("b2", queues=1)
    fill(alive, 3)
    fill(dead, 3)
    await dead.stop()
    settings = BrokerClientSettings(rebalance_s=0.05, down_s=0.05)
    async with topics(cluster.address, settings=settings, events=Events(told.append)) as mq:
        consumer = mq.consumer("g", "T", start="first")
        assert {message.queue.broker for message in await take(consumer, 3)} == {"b2"}
        assert "queue not reached" in [event.kind for event in told]
        back = FakeBroker("b1")
        back.queues = dead.queues
        await back.start()
        cluster.brokers.append(back)
        cluster.register(back, queues=1)
        await mq.topic("T")
        assert {message.queue.broker for message in await take(consumer, 3)} == {"b1"}


async def test_what_was_taken_on_is_read_while_another_broker_is_silent(cluster: FakeCluster, mq: RocketMQ) -> None:
    silent, alive = await cluster.add("b1", queues=2), await cluster.add("b2", queues=2)
    asked: list[tuple[Link, Command]] = []
    silent.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: asked.append((link, command))
    heard: list[list[MessageQueue]] = []
    consumer = mq.consumer("g", "T", start="first", on_assigned=heard.append)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: len(alive._held) == 2 and len(asked) == 2)
    assert not starting.done()
    assert heard == [[MessageQueue("T", "b2", 0), MessageQueue("T", "b2", 1)]]
    for link, command in asked:
        link.send(silent._query_offset(link, command))
    await starting
    assert heard[1:] == [[MessageQueue("T", "b1", 0), MessageQueue("T", "b1", 1)]]
    await consumer.close()


async def test_who_is_cancelled_while_a_broker_is_silent_takes_nothing_on_later(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    silent, alive = await cluster.add("b1", queues=1), await cluster.add("b2", queues=1)
    asked: list[tuple[Link, Command]] = []
    silent.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: asked.append((link, command))
    consumer = mq.consumer("g", "T", start="first")
    starting = asyncio.create_task(consumer.start())
    await until(lambda: alive._held and asked)
    await consumer.close()
    [(link, command)] = asked
    link.send(silent._query_offset(link, command))
    for _ in range(3):  # as many questions as it would ask
        await mq.queue_limits(MessageQueue("T", "b1", 0))
    assert consumer.queues == []
    await starting


async def test_members_are_asked_for_where_a_broker_answers(cluster: FakeCluster, mq: RocketMQ) -> None:
    alive, down = await cluster.add("b1", queues=1), await cluster.add("b2", queues=1)
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    async with mq.consumer("g", "T", start="first") as consumer:
        assert down.count(code) and not alive.count(code)
        mq._context.brokers.failed(down.address, mq._context.clock.now() + 1000)
        assert await consumer._sharing._members(await mq.topic("T"))
        assert alive.count(code)
        slave = await cluster.add("b2", 1, queues=1)
        await consumer._sharing._members(await mq._context.routes.refresh("T"))
        assert slave.count(code), "a set is not silent when one process of it is"


async def test_a_refusal_is_raised_before_what_waiting_may_cure(cluster: FakeCluster, mq: RocketMQ) -> None:
    refusing, gone = await cluster.add("b1", queues=1), await cluster.add("b2", queues=1)
    asked: list[tuple[Link, Command]] = []
    refusing.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: asked.append((link, command))
    gone.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: link.close()
    starting = asyncio.create_task(mq.consumer("g", "T", start="first").start())
    await until(lambda: asked and mq._context.brokers.is_down(gone.address, mq._context.clock.now()))
    [(link, command)] = asked
    link.send(command.response(ResponseCode.SYSTEM_ERROR, "not now"))
    with pytest.raises(BrokerError, match="not now"):
        await starting


async def test_a_queue_given_up_is_forgotten(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 5, 0)
    fill(fake, 5, 1)
    consumer = mq.consumer("g", "T", start="first")
    await take(consumer, 1)
    await until(lambda: len(consumer._core.ready) == 9)
    fake.members["g"]["~somebody"] = next(iter(fake.members["g"].values()))
    fake._notify("g")
    await until(lambda: len(consumer.queues) == 1)
    (kept,) = consumer.queues
    assert {message.queue for message in await take(consumer, len(consumer._core.ready))} <= {kept}


async def test_alone_and_given_queues_need_no_group(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=3)
    fake.react[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda link, command: command.response(1, "never asked")
    async with mq.consumer("g", "T", alone=True) as consumer:
        assert len(consumer.queues) == 3
    queue = MessageQueue("T", "b", 1)
    async with mq.consumer("h", "T", queues=[queue]) as consumer:
        assert consumer.queues == [queue]


class Compared(MessageQueue, frozen=True, order=True):
    """Counts how often it is compared with others."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return super().__eq__(other)

    __hash__ = MessageQueue.__hash__


async def test_a_sharing_out_in_which_nothing_changes_compares_no_queue_with_all_others(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    await cluster.add(queues=200)
    queues = [Compared("T", "b", number) for number in range(200)]
    consumer = mq.consumer("g", "T", queues=queues)
    await consumer.start()
    Compared.count = 0
    await consumer._rebalancing.share_out()
    assert Compared.count <= 1000, "five comparisons of each queue"
    assert consumer.queues == queues
    await consumer.close()
