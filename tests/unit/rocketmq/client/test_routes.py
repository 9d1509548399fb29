"""When a client asks name servers again where a topic is."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from support.fake_brokers import FakeCluster
from support.waiting import until
from tallystick.errors import Unavailable
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.outages import MAX_PAUSE_S
from tallystick.rocketmq.client.routes import SOON_S
from tallystick.rocketmq.client.topic import Topic
from tallystick.runtime.events import Event


class Asked:
    """The moments at which a client asked for routes; ``away``: no name server answers."""

    def __init__(self, mq: RocketMQ) -> None:
        self.at: list[float] = []
        self.away = False
        self._ask = mq._context.routes._route
        mq._context.routes._route = self._count  # type: ignore[method-assign]

    async def _count(self, name: str) -> Topic:
        self.at.append(asyncio.get_running_loop().time())
        if self.away:
            raise Unavailable("no name server answers")
        return await self._ask(name)

    @property
    def pauses(self) -> list[float]:
        return [round(late - early, 3) for early, late in pairwise(self.at)]


async def fail_for(mq: RocketMQ, seconds: float) -> None:
    """As many requests of a client do."""
    for _ in range(round(100 * seconds)):
        mq._context.routes.refresh_soon("T")
        await asyncio.sleep(0.01)


async def test_after_each_failure_it_is_asked_for_but_once_a_second(cluster: FakeCluster, mq: RocketMQ) -> None:
    await cluster.add(queues=1)
    await mq.topic("T")
    asked = Asked(mq)
    for brokers in (2, 3, 4):
        await cluster.add(f"b{brokers}", queues=1)
        await fail_for(mq, SOON_S + 0.1)
        known = mq._context.routes.cached("T")
        assert known is not None and len(known.readable) == brokers
    assert asked.pauses and min(asked.pauses) >= SOON_S - 0.001


async def test_a_name_server_that_is_away_is_asked_less_often_and_as_before_when_it_is_back(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event]
) -> None:
    await cluster.add(queues=1)
    await mq.topic("T")
    asked = Asked(mq)
    asked.away = True
    await fail_for(mq, 30.0)
    assert asked.pauses[-1] >= MAX_PAUSE_S > 2 * SOON_S
    assert [event.kind for event in told].count("route not found") == 1, "how often, in a minute"
    for away in (False, True):
        asked.away = away
        asked.at.clear()
        await fail_for(mq, MAX_PAUSE_S + SOON_S)
    assert asked.pauses[0] < 2 * SOON_S, "another outage begins anew"


async def test_who_is_closed_asks_no_more(cluster: FakeCluster) -> None:
    await cluster.add(queues=1)
    async with topics(cluster.address) as mq:
        await mq.topic("T")
        asked = Asked(mq)
        mq._context.routes.refresh_soon("T")
        await until(lambda: asked.at)
        await fail_for(mq, 0.1)
    asked.at.clear()
    mq._context.routes.refresh_soon("X")
    await fail_for(mq, 2 * SOON_S)
    assert asked.at == []


@pytest.mark.parametrize("missing", [False, True])
async def test_who_waits_for_an_answer_is_told_each_time(
    cluster: FakeCluster, mq: RocketMQ, told: list[Event], missing: bool
) -> None:
    asked = Asked(mq)
    asked.away = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await mq._context.routes.refresh("T", may_be_missing=missing)
    assert [event.kind for event in told].count("route not found") == 3
