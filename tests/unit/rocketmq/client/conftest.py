"""A small cluster of fakes, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from support.fake_brokers import FakeCluster
from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory, machine
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


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Clients and fake brokers run in virtual time; real brokers, with threads and disks, do not."""
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture(autouse=True)
def machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """``topics`` makes clients on machines of the loop that runs."""
    monkeypatch.setattr("tallystick.rocketmq.client.client.this_machine", machine)


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
