"""A small cluster of fakes, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.fake_brokers import FakeCluster
from tallystick.rocketmq.client.client import RocketMQ, topics
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.runtime.events import Event, Events

SETTINGS = BrokerClientSettings(
    pull_hold_s=5.0,
    pull_timeout_s=10.0,
    commit_interval_s=30.0,
    down_s=0.2,
    send_timeout_s=1.0,
    request_timeout_s=1.0,
    topic_wait_s=0.2,
)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
async def mq(cluster: FakeCluster, told: list[Event]) -> AsyncIterator[RocketMQ]:
    async with topics(cluster.address, settings=SETTINGS, events=Events(told.append)) as client:
        yield client
