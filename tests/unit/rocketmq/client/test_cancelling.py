"""What a cancelled call leaves: messages that may be stored, and handles that go on. As docs/api.md tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode
from tallystick.runtime.events import Events

SEND, COMMIT = RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
async def mq(cluster: FakeCluster) -> AsyncIterator[RocketMQ]:
    """With the time-outs of every day: what a test holds back is never late."""
    async with topics(cluster.address, events=Events()) as client:
        yield client


class Held:
    """Requests of one kind that a broker does not answer before ``release``."""

    def __init__(self, fake: FakeBroker, code: int) -> None:
        self._fake, self._code = fake, code
        self.requests: list[tuple[Link, Command]] = []
        fake.react[code] = self._hold

    def _hold(self, link: Link, command: Command) -> None:
        self.requests.append((link, command))

    def release(self) -> None:
        del self._fake.react[self._code]
        for link, command in self.requests:
            response = self._fake._answers[self._code](link, command)
            assert response is not None
            link.send(response)


def begun(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(call)


async def give_up(call: asyncio.Future[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_cancelled_send_may_be_stored_and_is_not_tried_again(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    held, producer = Held(fake, SEND), mq.producer("g")
    sends = [begun(producer.send("T", b"given up")), begun(producer.send_batch("T", [b"x", b"y"]))]
    await until(lambda: fake.count(SEND) + fake.count(RequestCode.SEND_BATCH_MESSAGE) == 2)
    for send in sends:
        if not send.done():
            await give_up(send)
    held.release()
    assert (await producer.send("T", b"the next one")).queue_offset == 3
    assert producer._inflight_bytes == 0


async def test_a_cancelled_send_is_not_retried(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    held, producer = Held(fake, SEND), mq.producer("g")
    send = begun(producer.send("T", b"given up"))
    await until(lambda: held.requests)
    await give_up(send)
    for link, _ in held.requests:
        link.close()  # its answer is lost: another attempt would follow
    await until(lambda: not producer._sendings)
    assert fake.count(SEND) == 1


async def test_a_send_that_is_cancelled_before_its_route_is_known_is_never_sent(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake, producer = await cluster.add(queues=1), mq.producer("g")
    send = begun(producer.send("T", b"never"))
    await asyncio.sleep(0)
    await give_up(send)
    assert (await producer.send("T", b"the first one")).queue_offset == 0
    assert [content[1] for content in fake.queues["T", 0]] == [b"the first one"]


async def test_a_cancelled_drain_cancels_no_send(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake, producer = await cluster.add(queues=1), mq.producer("g")
    held = Held(fake, SEND)
    send = begun(producer.send("T", b"x"))
    await until(lambda: held.requests)
    drain = begun(producer.drain())
    await asyncio.sleep(0)
    await give_up(drain)
    held.release()
    assert (await send).queue_offset == 0


async def test_who_gives_up_waiting_for_a_message_loses_none(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    async with mq.consumer("g", "T", start="first") as consumer:
        waiting = begun(anext(consumer))
        await asyncio.sleep(0)
        await give_up(waiting)
        fill(fake, 3)
        fake.wake()
        assert [message.offset for message in await take(consumer, 3)] == [0, 1, 2]
    assert fake.offsets["g", "T", 0] == 2, "the last one was not finished"


async def test_who_gives_up_waiting_for_the_first_message_leaves_a_consumer_that_starts(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 2)
    held = Held(fake, RequestCode.QUERY_CONSUMER_OFFSET)
    consumer = mq.consumer("g", "T", start="first")
    waiting = begun(anext(consumer))
    await until(lambda: held.requests)
    await give_up(waiting)
    held.release()
    assert [message.offset for message in await take(consumer, 2)] == [0, 1]
    assert fake.count(RequestCode.QUERY_CONSUMER_OFFSET) == 1


async def test_a_consumer_that_is_cancelled_while_it_is_entered_leaves_its_group(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    fake = await cluster.add(queues=1)
    held = Held(fake, RequestCode.QUERY_CONSUMER_OFFSET)
    tasks = len(asyncio.all_tasks())

    async def enter() -> None:
        async with mq.consumer("g", "T"):
            raise AssertionError

    entering = begun(enter())
    await until(lambda: held.requests)
    assert fake.members["g"]
    await give_up(entering)
    assert not fake.members["g"]
    await until(lambda: len(asyncio.all_tasks()) == tasks)


async def test_a_cancelled_close_of_a_consumer_commits_all_the_same(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    consumer = mq.consumer("g", "T", start="first")
    await take(consumer, 3)
    held = Held(fake, COMMIT)
    close = begun(consumer.close())
    await until(lambda: held.requests)
    await give_up(close)
    again = begun(consumer.close())
    await asyncio.sleep(0)
    assert not again.done()
    held.release()
    await again
    assert fake.offsets["g", "T", 0] == 2 and not fake.members["g"]


async def test_a_cancelled_close_of_a_client_goes_on(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    tasks = asyncio.all_tasks()
    mq = await topics(cluster.address, events=Events())
    await take(mq.consumer("g", "T", start="first"), 3)
    held = Held(fake, COMMIT)
    close = begun(mq.close())
    await until(lambda: held.requests)
    await give_up(close)
    with pytest.raises(UsageError, match="closed"):
        mq.producer("g")
    held.release()
    await mq.close()
    assert fake.offsets["g", "T", 0] == 2 and not fake.members["g"]
    await until(lambda: asyncio.all_tasks() <= tasks | {asyncio.current_task()})


async def test_a_cancelled_commit_is_made_good_by_the_next(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    async with mq.consumer("g", "T", start="first") as consumer:
        await take(consumer, 3)
        held = Held(fake, COMMIT)
        commit = begun(consumer.commit())
        await until(lambda: held.requests)
        await give_up(commit)
        del fake.react[COMMIT]
        await consumer.commit()
        assert fake.offsets["g", "T", 0] == 2


async def test_a_batch_whose_body_is_cancelled_comes_again(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    inside = asyncio.Event()
    async with mq.consumer("g", "T", start="first") as consumer:

        async def work() -> None:
            async for _ in consumer.batches(3):
                inside.set()
                await asyncio.Event().wait()

        working = begun(work())
        await inside.wait()
        await give_up(working)
        async for batch in consumer.batches(3):
            assert [message.offset for message in batch] == [0, 1, 2]
            break
    assert fake.offsets.get(("g", "T", 0), 0) == 0


async def test_a_listener_may_close_its_consumer(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    left: list[MessageQueue] = []

    async def assigned(queues: list[MessageQueue]) -> None:
        await consumer.close()

    consumer = mq.consumer("g", "T", start="first", on_assigned=assigned, on_revoked=left.extend)
    async with asyncio.timeout(10):
        assert [message async for message in consumer] == []
        await consumer.close()
    assert left == [MessageQueue("T", "b", 0)] and not fake.members["g"]


@pytest.mark.parametrize("whole", [False, True], ids=["the consumer", "the client"])
async def test_a_listener_may_close_what_is_being_closed(cluster: FakeCluster, whole: bool) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    mq = await topics(cluster.address, events=Events())

    async def revoked(queues: list[MessageQueue]) -> None:
        await (mq.close() if whole else consumer.close())
        assert fake.members["g"], "the end comes after the listener's"

    consumer = mq.consumer("g", "T", start="first", on_revoked=revoked)
    await take(consumer, 3)
    async with asyncio.timeout(10):
        await consumer.close()
        await mq.close()
    assert fake.offsets["g", "T", 0] == 2 and not fake.members["g"]


async def test_a_listener_that_fails_at_the_end_leaves_nothing_open(cluster: FakeCluster) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    tasks = asyncio.all_tasks()
    mq = await topics(cluster.address, events=Events())

    def fail(queues: list[MessageQueue]) -> None:
        raise ZeroDivisionError

    await take(mq.consumer("g", "T", start="first", on_revoked=fail), 2)
    with pytest.raises(ZeroDivisionError):
        await mq.close()
    assert fake.offsets["g", "T", 0] == 1 and not fake.members["g"]
    await until(lambda: asyncio.all_tasks() <= tasks | {asyncio.current_task()})
