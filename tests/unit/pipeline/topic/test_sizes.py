from __future__ import annotations

import pytest

from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.errors import NoSuchMessage
from tallystick.pipeline.topic.brokers import Brokers
from tallystick.pipeline.topic.plan import BrokerSets, QueueRange
from tallystick.pipeline.topic.sizes import MOST_OF_A_RANGE, SAMPLES, extents_of, sample
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode


def ranges(*limits: tuple[int, int]) -> list[QueueRange]:
    return [QueueRange(MessageQueue("T", "b", number), first, end) for number, (first, end) in enumerate(limits)]


def test_the_longest_are_asked_for_some_messages_each() -> None:
    assert sample(ranges((0, 3))) == [(0, 0), (0, 1), (0, 2)]
    assert sample(ranges((100, 180))) == [(0, 100 + 10 * step) for step in range(MOST_OF_A_RANGE)]
    many = sample(ranges(*((0, 1000 + number) for number in range(1000))))
    assert many == [(999 - number, 0) for number in range(SAMPLES)]
    assert sample([]) == []


async def sizes(broker: FakeBroker, wanted: list[QueueRange], *, strict: bool = True) -> list[int]:
    client = await Brokers(BrokerSets({"b": {0: broker.address}}, "G")).connect()
    try:
        return [each.message_bytes for each in await extents_of(client, wanted, fail_on_data_loss=strict)]
    finally:
        await client.close()


async def test_sizes_are_those_of_some_messages(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    broker.queues[("T", 0)] = [(0, b"x" * 1000, b"")] * 50 + [(0, b"x" * 3000, b"")] * 50
    broker.queues[("T", 1)] = [(0, b"x" * 100, b"")] * 10
    mixed, small = await sizes(broker, ranges((0, 100), (0, 10)))
    assert 2091 < mixed < 2200 and 191 < small < 300
    assert broker.count(RequestCode.PULL_MESSAGE) == 2 * MOST_OF_A_RANGE


async def test_what_is_gone_has_no_size(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    broker.queues[("T", 0)] = [(0, b"x" * 1000, b"")] * 4
    broker.first[("T", 0)] = 3
    with pytest.raises(NoSuchMessage):
        await sizes(broker, ranges((0, 4)))
    [size] = await sizes(broker, ranges((0, 4)), strict=False)
    assert 1091 < size < 1200
    assert await sizes(broker, ranges((0, 2)), strict=False) == [1]


async def test_a_range_of_which_no_message_is_there_has_the_usual_size(cluster: FakeCluster) -> None:
    broker = await cluster.add()
    broker.queues[("T", 0)] = [(0, b"x" * 1000, b"")] * 4
    usual, gone = await sizes(broker, ranges((0, 4), (0, 2)), strict=False)
    assert usual == gone > 1000
