"""Whose offset a group has when its members, an operator and the brokers differ: a consumer of fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from support.consuming import fill, lose_connection, others_stand_at, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.rocketmq.client import pulling
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event

QUEUE = MessageQueue("T", "b", 0)
COMMITTED = ("g", "T", 0)
COMMIT, QUERY = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET


class HeldResponse:
    """The broker keeps its next response to requests of one code until ``release``."""

    def __init__(self, fake: FakeBroker, code: int) -> None:
        self._fake, self._code, self._requests = fake, code, list[tuple[Link, Command]]()
        fake.react[code] = lambda link, command: self._requests.append((link, command))

    async def arrived(self) -> None:
        await until(lambda: self._requests)

    def release(self, fields: dict[str, str]) -> None:
        del self._fake.react[self._code]
        for link, command in self._requests:
            link.send(command.response(0, None, fields))


async def commit_five(fake: FakeBroker, consumer: Consumer) -> None:
    """Of ten messages five are done, and that is committed."""
    fill(fake, 10)
    for message in await take(consumer, 5):
        consumer.ack(message)
    await consumer.commit()
    assert fake.offsets[COMMITTED] == 5


async def commit_asks(fake: FakeBroker, consumer: Consumer) -> tuple[HeldResponse, asyncio.Task[None]]:
    """A connection was lost, and a commit is under way that asks first where others are."""
    await lose_connection(fake)
    held = HeldResponse(fake, QUERY)
    committing = asyncio.create_task(consumer.commit())
    await held.arrived()
    return held, committing


async def test_a_seek_while_a_commit_is_under_way_is_not_confirmed_by_its_response(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Brokers have still to hear of it, wherever others go meanwhile."""
    fake = await cluster.add(queues=1)
    fill(fake, 10)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        for message in await take(consumer, 5):
            consumer.ack(message)
        held = HeldResponse(fake, COMMIT)
        committing = asyncio.create_task(consumer.commit())
        await held.arrived()
        consumer.seek(QUEUE, 8)
        held.release({})
        await committing
        await lose_connection(fake)
        others_stand_at(fake, 9, 0)
        await consumer.commit()
        assert (fake.offsets[COMMITTED], consumer.position(QUEUE)) == (8, 8)


async def test_a_seek_while_it_is_asked_where_others_are_counts_more_than_they(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        held, committing = await commit_asks(fake, consumer)
        consumer.seek(QUEUE, 6)
        held.release({"offset": "7"})
        await committing
        assert (fake.offsets[COMMITTED], consumer.position(QUEUE)) == (6, 6)


async def test_what_is_acknowledged_while_it_is_asked_where_others_are_counts(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """They are behind it by then: it would get the same messages again."""
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        messages = await take(consumer, 3)
        held, committing = await commit_asks(fake, consumer)
        for message in messages:
            consumer.ack(message)
        held.release({"offset": "6"})
        await committing
        assert fake.offsets[COMMITTED] == 8
        assert [message.offset for message in await take(consumer, 2)] == [8, 9]


async def test_nothing_is_committed_where_the_group_is_as_far_as_its_member_that_was_away(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Others may go on from there before a commit comes, and it would take them back."""
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        await lose_connection(fake)

        def go_on(link: Link, command: Command) -> Command:
            fake.offsets[COMMITTED] = 7
            return command.response(0, None, {"offset": "5"})

        fake.react[QUERY] = go_on
        await consumer.commit()
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 7


async def test_where_a_broker_that_lost_its_log_sent_a_consumer_is_committed_when_its_queue_goes(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    """The group's offset is beyond the end there, and would pass over what comes next: nobody else has put it there."""
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        await take(consumer, 5)
        await until(lambda: fake._held)
        fill(fake, 3)
        fake.wake()
        await until(lambda: "offset moved" in [event.kind for event in told])
    assert fake.offsets[COMMITTED] == 3


async def test_a_counter_of_resets_that_a_lagging_broker_tells_takes_nobody_back(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """A reset that the consumer followed long ago is no news when the master tells of it again."""
    fake = await cluster.add(queues=1)
    counters = ["1", "0"]

    def commit(link: Link, command: Command) -> Command:
        fake._update_offset(link, command)
        return command.response(0, None, {"tallyResets": counters.pop(0)})

    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        fake.react[COMMIT] = commit
        for message in await take(consumer, 2):
            consumer.ack(message)
            await consumer.commit()
        assert not counters
        del fake.react[COMMIT]
        await lose_connection(fake)
        others_stand_at(fake, 2, 1)  # what that broker had saved
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 7
        assert [message.offset for message in await take(consumer, 3)] == [7, 8, 9]


async def test_a_member_that_heard_of_a_reset_while_its_queue_goes_says_no_more_that_it_went_back(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """At a slave that would count as a later reset, and undo the operator's."""
    fake = await cluster.add(queues=1)
    went_back: list[str | None] = []

    def reset(link: Link, command: Command) -> Command:
        went_back.append(command.fields.get("tallyWentBack"))
        return command.response(0, None, {"tallyResetTo": "4"})

    async def revoked(queues: Collection[MessageQueue]) -> None:
        await consumer.commit()

    consumer = mq.consumer("g", "T", start="first", auto_ack=False, on_revoked=revoked)
    async with consumer:
        await commit_five(fake, consumer)
        consumer.seek(QUEUE, 2)
        fake.react[COMMIT] = reset
    assert went_back == ["true", None]


async def test_who_seeks_in_a_topic_that_was_gone_goes_on_there(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset is one of the topic that is there now, and is committed."""
    monkeypatch.setattr(pulling, "REFUSED_PAUSE_S", 60.0)
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first", auto_ack=False) as consumer:
        await commit_five(fake, consumer)
        await take(consumer, 5)
        await until(lambda: fake._held)
        [(link, command)] = fake._held
        fake.offsets.clear()
        link.send(command.response(ResponseCode.TOPIC_NOT_EXIST, "deleted"))
        await until(lambda: consumer._assignment._assigned_queues[QUEUE].is_lost)
        consumer.seek(QUEUE, 7)
        await consumer.commit()
        assert fake.offsets[COMMITTED] == 7
        assert [message.offset for message in await take(consumer, 3)] == [7, 8, 9]
