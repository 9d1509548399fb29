"""The sender promises no more than its broker did, and whoever comes after it finds where to go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from examples.flights import topic_story
from examples.flights.acks import AckLog, read_log
from examples.flights.leash import Leash
from examples.flights.sender import LOST_BROKER, send
from support.fake_brokers import FakeBroker, FakeCluster
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

ROWS, RATE = 50, 200.0  # batches of 10 rows
TOPIC = topic_story.TOPIC


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    started = FakeCluster()
    await started.start()
    yield started
    await started.stop()


def rows_of(broker: FakeBroker) -> list[list[int]]:
    return [[msgspec.json.decode(body)["row"] for _, body, _ in broker.queues[TOPIC, queue]] for queue in (0, 1)]


async def send_rows(cluster: FakeCluster, first: int, log: Path, told: Callable[[], str] = str) -> int:
    with AckLog(str(log)) as opened:
        return await send(cluster.address, TOPIC, first, ROWS, RATE, opened, Leash(told))


async def test_batches_go_to_the_queues_in_turn_and_each_is_promised(cluster: FakeCluster, tmp_path: Path) -> None:
    broker, log = await cluster.add(topics=(TOPIC, "X")), tmp_path / "log"
    assert await send_rows(cluster, 20, log) == 0
    assert rows_of(broker) == [[*range(20, 30), *range(40, 50)], [*range(30, 40)]]
    runs = read_log(log).runs
    assert [(run.part, run.position, run.row, run.count) for run in runs] == [
        (0, 0, 20, 10),
        (1, 0, 30, 10),
        (0, 10, 40, 10),
    ]
    assert await topic_story.stored(cluster.address) == (30, 49)


async def test_what_the_slave_may_not_have_is_not_promised_and_ends_the_sender(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    broker, log = await cluster.add(topics=(TOPIC, "X")), tmp_path / "log"

    def late(link: Link, command: Command) -> Command:
        answer = broker._send(link, command)
        if broker.count(RequestCode.SEND_BATCH_MESSAGE) == 3:
            answer.code = ResponseCode.FLUSH_SLAVE_TIMEOUT
        return answer

    broker.react[RequestCode.SEND_BATCH_MESSAGE] = late
    assert await send_rows(cluster, 0, log) == LOST_BROKER
    assert read_log(log).rows == 20
    assert await topic_story.stored(cluster.address) == (30, 29)  # it is stored all the same: go on after it


async def test_a_dead_broker_ends_the_sender_and_nothing_is_sent_twice(cluster: FakeCluster, tmp_path: Path) -> None:
    broker, log = await cluster.add(topics=(TOPIC, "X")), tmp_path / "log"

    def die(link: Link, command: Command) -> Command | None:
        answer = broker._send(link, command)
        if broker.count(RequestCode.SEND_BATCH_MESSAGE) < 3:
            return answer
        link.close()
        return None

    broker.react[RequestCode.SEND_BATCH_MESSAGE] = die
    assert await send_rows(cluster, 0, log) == LOST_BROKER
    assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 3 and read_log(log).rows == 20


async def test_a_program_goes_as_far_as_it_is_told_and_waits_for_more(cluster: FakeCluster, tmp_path: Path) -> None:
    await cluster.add(topics=(TOPIC, "X"))
    log = tmp_path / "log"
    asked_at: list[int] = []

    lines = ["20\n", "40\n", ""]

    def told() -> str:
        asked_at.append(read_log(log).rows)
        return lines.pop(0)

    assert await send_rows(cluster, 0, log, told) == 0
    assert asked_at == [0, 20, 40] and read_log(log).rows == ROWS, "whom nobody holds any more goes on to the end"


async def test_an_empty_topic_has_no_last_row(cluster: FakeCluster) -> None:
    await cluster.add(topics=(TOPIC, "X"))
    assert await topic_story.stored(cluster.address) == (0, -1)
