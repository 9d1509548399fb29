"""Ordered members of a group, at a broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeBroker, FakeCluster
from support.live_brokers import live_cluster
from support.stores import SteppingClock
from support.waiting import until
from tallystick.errors import BrokerError
from tallystick.rocketmq.client import locking, sharing
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.consumer import Consumer
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode, ResponseCode
from tallystick.runtime.events import Event

SOON = BrokerClientSettings(rebalance_s=0.1)
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.mark.real_time
async def test_a_queue_is_never_with_two_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    async with (
        live_cluster(tmp_path, "broker-a") as cluster,
        topics(cluster.name_server, settings=SOON) as mine,
        topics(cluster.name_server, settings=SOON) as theirs,
    ):
        await mine.producer("p").send("T", b"0")
        going, gone = asyncio.Event(), asyncio.Event()

        async def revoked(queues: list[MessageQueue]) -> None:
            going.set()
            await gone.wait()

        first = mine.consumer("g", "T", ordered=True, on_revoked=revoked)
        await first.start()
        assert len(first.queues) == 4
        second = theirs.consumer("g", "T", ordered=True)
        await second.start()
        async with asyncio.timeout(20):
            await going.wait()
        await until(lambda: second._sharing.is_settled is False)
        assert second.queues == []
        gone.set()
        await until(lambda: len(second.queues) == 2)
        assert not set(first.queues) & set(second.queues)
        await first.close()
        await until(lambda: len(second.queues) == 4)


async def test_a_queue_goes_to_another_member_when_the_message_at_hand_is_done(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    async with mq.consumer("g", "T", start="first", ordered=True, auto_ack=False) as consumer:
        [message] = await take(consumer, 1)
        fake.members["g"]["~somebody"] = next(iter(fake.members["g"].values()))
        fake._notify("g")
        await until(lambda: consumer._assignment[message.queue].is_paused)
        locks = fake.count(LOCK)
        await until(lambda: fake.count(LOCK) > locks + 2)
        assert message.queue in consumer.queues and fake.count(UNLOCK) == 0
        asked = [command for command in fake.asked if command.code == LOCK][-1]
        assert message.queue in dialect.read_as(bytes(asked.body), LockRequest).queues
        consumer.ack(message)
        await until(lambda: fake.count(UNLOCK) == 1)
        assert fake.offsets["g", "T", 1] == 1 and len(consumer.queues) == 1


def unlocked(fake: FakeBroker) -> list[int]:
    """The numbers of the queues that were unlocked."""
    asked = [command for command in fake.asked if command.code == UNLOCK]
    return sorted(queue.queue_id for one in asked for queue in dialect.read_as(bytes(one.body), LockRequest).queues)


Stay = Callable[[], Awaitable[None]]


async def stay_at_a_message(loop: Callable[[Stay], Coroutine[None, None, None]]) -> Callable[[], Awaitable[None]]:
    """Returns when ``loop``, in a task of its own, waits at a message; what is returned runs it to its end."""
    at_it, go_on = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        at_it.set()
        await go_on.wait()

    async def finish() -> None:
        go_on.set()
        await reading

    reading = asyncio.create_task(loop(stay))
    await at_it.wait()
    return finish


async def to_the_end(consumer: Consumer, stay: Stay) -> None:
    async for _ in consumer:
        await stay()


async def test_a_consumer_that_is_closed_while_its_loop_is_at_a_message_keeps_the_lock(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """By a signal's handler, say: the next member would be at the same message."""
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    consumer = mq.consumer("g", "T", start="first", ordered=True)
    finish = await stay_at_a_message(partial(to_the_end, consumer))
    await consumer.close()
    assert unlocked(fake) == [0]
    await finish()
    assert unlocked(fake) == [0, 1]


async def by_itself(consumer: Consumer) -> ReceivedMessage:
    return await anext(consumer)


async def by_wait_for(consumer: Consumer) -> ReceivedMessage:
    return await asyncio.wait_for(anext(consumer), 20)


async def by_a_task(consumer: Consumer) -> ReceivedMessage:
    asking = asyncio.create_task(anext(consumer))
    await asyncio.wait([asking], timeout=20)
    return asking.result()


@pytest.mark.parametrize("ask", [by_itself, by_wait_for, by_a_task])
@pytest.mark.parametrize("leave", ["asks", "closes", "closes all", "ends"])
async def test_a_queue_is_unlocked_when_the_loop_that_was_at_its_message_has_left(
    cluster: FakeCluster, mq: RocketMQ, ask: Callable[[Consumer], Awaitable[ReceivedMessage]], leave: str
) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    consumer = mq.consumer("g", "T", start="first", ordered=True)

    async def loop(stay: Stay) -> None:
        await ask(consumer)
        await stay()
        if leave == "asks":
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
        elif leave != "ends":
            await (consumer.close() if leave == "closes" else mq.close())

    finish = await stay_at_a_message(loop)
    await consumer.close()
    await consumer.close()
    assert unlocked(fake) == [0]
    await finish()
    await until(lambda: unlocked(fake) == [0, 1])


async def test_a_queue_that_a_closed_consumer_keeps_is_not_for_the_next_one_of_the_client(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master would give it the lock: it knows clients."""
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    first = mq.consumer("g", "T", start="first", ordered=True)
    finish = await stay_at_a_message(partial(to_the_end, first))
    await first.close()
    async with mq.consumer("g", "T", start="first", ordered=True) as second:
        locks = fake.count(LOCK)
        await until(lambda: fake.count(LOCK) > locks + 1)
        assert [queue.queue_id for queue in second.queues] == [0]
        await finish()
        await until(lambda: [queue.queue_id for queue in second.queues] == [0, 1])
        assert unlocked(fake) == [0, 1]


async def test_who_kept_a_lock_until_it_ended_unlocks_it_for_nobody(cluster: FakeCluster, mq: RocketMQ) -> None:
    """It is another consumer's of the same client by then."""
    fake = await cluster.add(queues=1)
    clock, queue = SteppingClock(), MessageQueue("T", "b", 0)
    context = replace(mq._context, clock=clock)
    first, second = locking.QueueLocks(context, "g"), locking.QueueLocks(context, "g")
    other = locking.QueueLocks(context, "another group")
    assert await first.lock([queue], set()) == [queue]
    assert await other.lock([queue], set()) == [queue]
    clock.ms += 59_999
    assert await second.lock([queue], set()) == []
    clock.ms += 1
    assert await second.lock([queue], set()) == [queue]
    await first.unlock_all()
    assert fake.count(UNLOCK) == 0
    await second.unlock_all()
    await other.unlock_all()
    assert fake.count(UNLOCK) == 2 and not context.lockers


@pytest.mark.parametrize("whole", [False, True])
async def test_a_loop_that_closes_its_consumer_itself_keeps_nothing(
    cluster: FakeCluster, mq: RocketMQ, whole: bool
) -> None:
    """It does not go on with the message at hand; nor does one that has ended."""
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    consumer = mq.consumer("g", "T", start="first", ordered=True)
    bodies = []
    async for message in consumer:
        bodies.append(message.body)
        await (mq.close() if whole else consumer.close())
        await until(lambda: unlocked(fake) == [0, 1])  # before the loop asks for more
    assert (bodies, unlocked(fake)) == ([b"0"], [0, 1])


async def test_a_loop_that_ends_while_its_consumer_closes_leaves_the_lock_until_all_is_committed(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Else the next member begins before the last commit; or nobody unlocks it any more."""
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    closing, closed = asyncio.Event(), asyncio.Event()

    async def revoked(queues: list[MessageQueue]) -> None:
        closing.set()
        await closed.wait()

    consumer = mq.consumer("g", "T", start="first", ordered=True, on_revoked=revoked)
    finish = await stay_at_a_message(partial(to_the_end, consumer))
    ending = asyncio.create_task(consumer.close())
    await closing.wait()
    await finish()
    before = unlocked(fake)
    closed.set()
    await ending
    assert (before, unlocked(fake)) == ([], [0])


async def test_a_loop_that_has_ended_keeps_nothing(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    consumer = mq.consumer("g", "T", start="first", ordered=True)

    async def loop() -> None:
        async for _ in consumer:
            break

    await asyncio.create_task(loop())
    await consumer.close()
    assert unlocked(fake) == [0]


async def test_a_lock_that_is_lost_takes_the_queue_and_a_master_that_is_silent_does_not(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fake = await cluster.add(queues=2)
    fill(fake, 3, 0)
    async with mq.consumer("g", "T", start="first", ordered=True) as consumer:
        assert len(consumer.queues) == 2
        [message] = await take(consumer, 1)
        consumer.ack(message)
        fake.react[LOCK] = lambda link, command: command.response(ResponseCode.SYSTEM_BUSY, "busy")
        consumer._rebalancing.changed.set()
        await until(lambda: [event for event in told if event.kind == "queues not locked"])
        assert len(consumer.queues) == 2
        del fake.react[LOCK]
        fake.not_locked.add(consumer.queues[0])
        consumer._rebalancing.changed.set()
        await until(lambda: [queue.queue_id for queue in consumer.queues] == [1])
        assert fake.offsets["g", "T", 0] == 1
        fake.not_locked.clear()
        consumer._rebalancing.changed.set()
        await until(lambda: len(consumer.queues) == 2)
        assert (await take(consumer, 1))[0].offset == 1
    assert fake.count(UNLOCK) == 2


async def test_a_master_that_gives_no_locks_is_told_of_once_a_minute_and_each_by_itself(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    fakes = [await cluster.add(name) for name in ("a", "b")]
    clock = SteppingClock()
    locks = locking.QueueLocks(replace(mq._context, clock=clock), "g")
    queues = [MessageQueue("T", name, 0) for name in ("a", "b")]

    async def lock() -> list[tuple[object, object]]:
        told.clear()
        await locks.lock(queues, set())
        return [(event.fields["broker"], event.fields["failures"]) for event in told]

    for fake in fakes:
        fake.react[LOCK] = lambda link, command: command.response(ResponseCode.SYSTEM_BUSY, "busy")
    assert sorted(await lock()) == [("a", 1), ("b", 1)]
    assert await lock() == []
    del fakes[0].react[LOCK]
    assert await lock() == []
    fakes[0].react[LOCK] = fakes[1].react[LOCK]
    clock.ms += 60_000
    assert sorted(await lock()) == [("a", 1), ("b", 3)]


@pytest.mark.parametrize("silent", [(LOCK,), (LOCK, RequestCode.GET_CONSUMER_LIST_BY_GROUP)])
async def test_a_lock_that_cannot_be_renewed_ends_here_before_it_ends_there(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch, silent: tuple[RequestCode, ...]
) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    async with mq.consumer("g", "T", start="first", ordered=True) as consumer:
        await take(consumer, 1)
        for code in silent:
            fake.react[code] = lambda link, command: None
        monkeypatch.setattr(locking, "LIVE_S", 0.0)
        consumer._rebalancing.changed.set()
        await until(lambda: not consumer.queues)
        fake.react.clear()
        monkeypatch.undo()
        assert (await take(consumer, 1))[0].offset == 0


async def test_a_lock_is_given_back_behind_the_last_commit(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Whoever gets the queue reads from where the group stands then."""
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    held: list[tuple[Link, Command]] = []
    consumer = mq.consumer("g", "T", start="first", ordered=True)
    consumer.ack((await take(consumer, 2))[-1])  # nothing is at hand
    fake.react[COMMIT] = lambda link, command: held.append((link, command))
    closing = asyncio.create_task(consumer.close())
    await until(lambda: held)
    await mq.queue_limits(MessageQueue("T", "b", 0))  # the broker has whatever was asked before
    assert fake.count(UNLOCK) == 0
    [(link, command)] = held
    link.send(fake._update_offset(link, command))
    await closing
    assert fake.count(UNLOCK) == 1


async def test_a_queue_that_another_member_still_has_is_asked_for_again_soon(
    cluster: FakeCluster, mq: RocketMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "UNSHARED_S", 0.02)
    fake = await cluster.add(queues=2, topics=("T", "%RETRY%g"))
    fake.not_locked.add(MessageQueue("T", "b", 1))
    async with mq.consumer("g", "T", ordered=True) as consumer:
        assert [queue.queue_id for queue in consumer.queues] == [0]
        await until(lambda: fake.count(LOCK) > 2)  # nothing says that anything changed
        fake.not_locked.clear()
        await until(lambda: len(consumer.queues) == 2)


async def test_a_lock_counts_from_when_it_was_asked_for(cluster: FakeCluster, mq: RocketMQ) -> None:
    """So it ends here before it ends at its master, however long the answer was on its way."""
    fake = await cluster.add(queues=1)
    clock = SteppingClock()
    locks = locking.QueueLocks(replace(mq._context, clock=clock), "g")

    def late(link: Link, command: Command) -> Command:
        clock.ms += 20_000
        return fake._lock(link, command)

    fake.react[LOCK] = late
    queue = MessageQueue("T", "b", 0)
    assert await locks.lock([queue], set()) == [queue]
    clock.ms += 9_999
    assert locks.live([queue]) == [queue]
    clock.ms += 1
    assert locks.live([queue]) == []


async def test_a_lock_that_was_given_back_is_not_there_while_its_master_is_away(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Another member may have it, however short a time it is since this one asked for it."""
    fake = await cluster.add(queues=1)
    locks, queue = locking.QueueLocks(mq._context, "g"), MessageQueue("T", "b", 0)
    assert await locks.lock([queue], set()) == [queue]
    await locks.unlock([queue])
    assert locks.live([queue]) == []
    fake.react[LOCK] = lambda link, command: command.response(ResponseCode.SYSTEM_BUSY, "busy")
    assert await locks.lock([queue], {queue}) == []


async def test_a_queue_that_stays_after_all_is_pulled_again(cluster: FakeCluster, mq: RocketMQ) -> None:
    """Its reader waited, and nobody acknowledges anything that would wake it."""
    fake = await cluster.add(queues=2)
    fill(fake, 1, 1)
    async with mq.consumer("g", "T", start="first", ordered=True, auto_ack=False) as consumer:
        [message] = await take(consumer, 1)
        core = consumer._assignment[message.queue]
        fake.members["g"]["~somebody"] = next(iter(fake.members["g"].values()))
        fake._notify("g")
        await until(lambda: core.is_paused and len(fake._held) == 2)
        [(link, command)] = [each for each in fake._held if each[1].fields["queueId"] == "1"]
        fake._held.remove((link, command))
        link.send(fake._pulled(command, ResponseCode.PULL_NOT_FOUND, 1, 0, 1))
        await until(lambda: core.is_stalled)
        consumer.ack(message)
        assert message.queue in consumer.queues
        del fake.members["g"]["~somebody"]
        fake._notify("g")
        await until(lambda: not core.is_paused)
        await until(lambda: {each.fields["queueId"] for _, each in fake._held} == {"0", "1"})


async def test_a_loop_that_waits_gets_the_next_message_of_a_queue_that_stays_after_all(
    cluster: FakeCluster, mq: RocketMQ
) -> None:
    """Nothing else comes that would wake it."""
    fake = await cluster.add(queues=2)
    fill(fake, 3, 1)
    async with mq.consumer("g", "T", start="first", ordered=True, auto_ack=False) as consumer:
        [message] = await take(consumer, 1)
        core = consumer._assignment[message.queue]
        fake.members["g"]["~somebody"] = next(iter(fake.members["g"].values()))
        fake._notify("g")
        await until(lambda: core.is_paused and len(fake._held) == 2)
        waiting = asyncio.create_task(take(consumer, 1))
        locks = fake.count(LOCK)
        await until(lambda: fake.count(LOCK) > locks)  # until it asks again who is in the group nothing goes
        consumer.ack(message)
        del fake.members["g"]["~somebody"]
        fake._notify("g")
        assert [message.offset for message in await waiting] == [1]


async def test_a_consumer_that_cannot_take_on_what_it_locked_unlocks_it(cluster: FakeCluster, mq: RocketMQ) -> None:
    fake = await cluster.add(queues=1)
    fake.react[RequestCode.QUERY_CONSUMER_OFFSET] = lambda link, command: command.response(
        ResponseCode.SYSTEM_BUSY, "no"
    )
    with pytest.raises(BrokerError):
        await mq.consumer("g", "T", ordered=True).start()
    assert fake.count(UNLOCK) == 1
