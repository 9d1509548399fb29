"""What is away is asked less and less often, and told of once a minute."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from support.consuming import fill, take
from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick import testing
from tallystick.rocketmq.client import outages
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.outages import FIRST_PAUSE_S, MAX_PAUSE_S, TELL_AGAIN_S, Outages
from tallystick.rocketmq.client.pulling import REFUSED_PAUSE_S
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import Topic
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.events import Event, Events

PULL, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET


def test_all_who_ask_wait_for_the_same_moment_and_longer_each_time() -> None:
    away, now, pauses = Outages(), 100.0, list[float]()
    assert away.pause_s("b", now) == 0.0
    while len(pauses) < 8:
        for _ in range(1000):  # queues
            away.failed("b", now)
        pauses.append(away.pause_s("b", now))
        away.failed("b", now + pauses[-1] / 2)  # an answer that did not come in time
        now += pauses[-1]
    assert [round(pause, 6) for pause in pauses[:4]] == [FIRST_PAUSE_S * 2**n for n in range(4)]
    assert round(pauses[-1], 6) == MAX_PAUSE_S
    assert away.pause_s("other", now) == 0.0


def test_it_is_told_once_a_minute_how_often_it_failed_also_of_what_comes_and_goes() -> None:
    away = Outages()
    assert away.failed("b", 0.0) == 1
    assert [away.failed("b", second) for second in range(1, 60)] == [0] * 59
    assert away.failed("b", TELL_AGAIN_S) == 60
    assert away.ended("b") and not away.ended("b")
    assert away.failed("b", TELL_AGAIN_S + 1.0) == 0, "it flaps"
    assert away.pause_s("b", TELL_AGAIN_S + 1.0) <= FIRST_PAUSE_S + 1e-6
    assert not away.ended("b"), "nobody heard that it had failed again"
    assert away.failed("other", 1.0) == 1


def test_what_failed_once_and_was_told_is_over_for_those_who_heard_of_it() -> None:
    away = Outages()
    assert away.failed("b", 0.0) == 1
    assert away.ended("b") and not away.ended("b")


def test_names_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "MAX_KEYS", 10)
    away = Outages()
    for name in range(1000):
        assert away.failed(name, 0.0) == 1
    assert len(away._reported_at) <= 10 and len(away._outages) <= 10


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_queue_is_pulled_less_and_less_often_while_its_broker_fails(
    cluster: FakeCluster, mq: RocketMQ, refuses: bool
) -> None:
    fake = await cluster.add(queues=1)
    times: list[float] = []

    def fail(link: Link, command: Command) -> Command | None:
        times.append(asyncio.get_running_loop().time())
        if refuses:
            return command.response(ResponseCode.SYSTEM_ERROR, "not now")
        link.close()
        return None

    fake.react[PULL] = fail
    async with mq.consumer("g", "T", start="first"):
        await until(lambda: len(times) == 8)
    pauses = [min(FIRST_PAUSE_S * 2**number, MAX_PAUSE_S) for number in range(7)]
    least = [max(pause, REFUSED_PAUSE_S) for pause in pauses] if refuses else pauses
    assert all(late - early >= pause for (early, late), pause in zip(pairwise(times), least, strict=True))


async def test_a_queue_that_is_refused_beside_busy_ones_is_asked_less_often_and_told_of_once_a_minute(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    """Each answer to the others ended its outage, and said so."""
    fake = await cluster.add(queues=2)
    times: list[float] = []

    def pull(link: Link, command: Command) -> Command | None:
        if command.fields["topic"] != "T" or command.fields["queueId"] != "1":
            return fake._pull(link, command)
        times.append(asyncio.get_running_loop().time())
        return command.response(ResponseCode.SYSTEM_ERROR, "not now")

    fake.react[PULL] = pull
    async with mq.consumer("g", "T", start="first") as consumer:
        for number in range(180):
            fill(fake, number + 1, 0)
            fake.wake()
            await anext(consumer)
            await asyncio.sleep(1)
    kinds = Counter(event.kind for event in told)
    assert 1 <= kinds["pull refused"] <= 4 and kinds["pulls answered again"] <= kinds["pull refused"], kinds
    assert max(late - early for early, late in pairwise(times)) >= MAX_PAUSE_S


async def test_a_queue_that_is_answered_again_is_told_of_once_whatever_was_wrong(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    """Its broker was away, and then refused it: both are over with the first answer."""
    fake = await cluster.add(queues=1)
    fill(fake, 1)

    def fail(link: Link, command: Command) -> Command | None:
        if fake.count(PULL) > 1:
            fake.react.pop(PULL)
            return command.response(ResponseCode.SYSTEM_ERROR, "not now")
        link.close()
        return None

    fake.react[PULL] = fail
    async with mq.consumer("g", "T", start="first") as consumer:
        for number in range(2, 5):
            await take(consumer, 1)
            await until(lambda: fake._held)
            fill(fake, number)
            fake.wake()
    kinds = [event.kind for event in told if event.kind.startswith("pull")]
    assert kinds == ["pull failed", "pull refused", "pulls answered again"]


@pytest.mark.parametrize("is_sought", [False, True])
async def test_a_queue_whose_outage_is_over_is_asked_again_soon_when_it_is_refused_once_more(
    cluster: FakeCluster, mq: RocketMQ, is_sought: bool
) -> None:
    """It was answered in between; or its reader is another one, and what that is refused is the first refusal."""
    fake = await cluster.add(queues=1)
    fill(fake, 1)
    times: list[float] = []

    def refuse(link: Link, command: Command) -> Command:
        times.append(asyncio.get_running_loop().time())
        return command.response(ResponseCode.SYSTEM_ERROR, "not now")

    fake.react[PULL] = refuse
    async with mq.consumer("g", "T", start="first") as consumer:
        await until(lambda: len(times) == 7, 100.0)
        if is_sought:
            consumer.seek(consumer.queues[0], 0)
        else:
            del fake.react[PULL]
            await take(consumer, 1)
            await until(lambda: fake._held)
            fake.react[PULL] = refuse
            [(link, command)] = fake._held
            link.send(refuse(link, command))
        await until(lambda: len(times) == 9, 100.0)
    *_, before, refused, again = times
    assert refused - before < MAX_PAUSE_S or not is_sought
    assert REFUSED_PAUSE_S <= again - refused < MAX_PAUSE_S / 2


@testing.virtual_time
async def test_a_consumer_whose_brokers_are_away_floods_neither_its_log_nor_the_name_server() -> None:
    """Of each queue there were ten warnings a second, for as long as it lasted; and 60 questions for routes."""
    kinds = Counter[str]()
    asked = 0

    def count(_: str, event: Event) -> None:
        kinds[event.kind] += 1

    async with testing.cluster(bookies=1, brokers="1+1", listener=count) as c, c.topics() as mq:
        await mq.producer("p").send("T", b"x")
        ask = mq._context.routes._route

        async def counted(name: str) -> Topic:
            nonlocal asked
            asked += 1
            return await ask(name)

        async with mq.consumer("g", "T", start="first") as consumer:
            assert (await anext(consumer)).body == b"x"
            mq._context.routes._route = counted  # type: ignore[method-assign]
            kinds.clear()
            for broker in c.brokers.values():
                broker.kill()
            await asyncio.sleep(100)
            assert kinds["pull failed"] == 2 * 2, "of two topics, the group's own among them, twice"
            assert kinds["not committed"] == 2, "it is tried each 5 s"
            assert all(number <= 20 for number in kinds.values()), kinds
            assert asked < 2 * 100, "of two topics and, as they are unknown by now, of the template"
            for broker in c.brokers.values():
                await broker.start()
            await mq.producer("p").send("T", b"y")
            assert (await anext(consumer)).body == b"y"
            assert kinds["pulls answered again"] >= 1


async def test_commits_that_no_broker_takes_are_told_once_a_minute(cluster: FakeCluster, told: list[Event]) -> None:
    """A consumer of batches tries after each: there were as many warnings as batches."""

    def refuse(link: Link, command: Command) -> Command:
        refused.append(command)
        return command.response(ResponseCode.SYSTEM_BUSY, "busy")

    def failures() -> list[object]:
        return [event.fields["failures"] for event in told if event.kind == "not committed"]

    refused: list[Command] = []
    fake = await cluster.add(queues=1)
    fill(fake, 3)
    settings, events = BrokerClientSettings(commit_interval_s=5.0), Events(told.append)
    async with (
        topics(cluster.address, settings=settings, events=events) as mq,
        mq.consumer("g", "T", start="first") as consumer,
    ):
        fake.react[COMMIT] = refuse
        await take(consumer, 2)
        await until(lambda: len(refused) == 12, 100.0)
        assert failures() == [1]
        await until(lambda: len(refused) == 14, 100.0)
        assert failures() == [1, 12]
        del fake.react[COMMIT]
        await until(lambda: fake.offsets.get(("g", "T", 0)) == 1)
        fake.react[COMMIT] = refuse
        await take(consumer, 1)
        await until(lambda: len(failures()) == 3, 100.0)
        assert failures()[2] == len(refused) - 14 > 1, "another outage in the same minute"
