"""The source on local[2], against a real master and a slave for whom it waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.spark_failures import failure_of
from support.topics import BROKER, QUEUES, make_topic, send, slave_serves
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.rocketmq.wire.record import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
Send = Callable[..., str]
BODIES = [b"row %d " % number * (1 + number % 5) for number in range(600)]


@pytest.fixture(scope="module")
def mq(name_server: str) -> Iterator[sync.RocketMQ]:
    with sync.topics(name_server) as client:
        yield client


@pytest.fixture(scope="module")
def topic(mq: sync.RocketMQ, name_server: str) -> str:
    make_topic(name_server, "rows")
    send(mq, "rows", [Message("rows", body, tags=f"t{n % 2}", keys=[f"k{n}"]) for n, body in enumerate(BODIES)])
    return "rows"


def bodies_by_queue(frame: DataFrame) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for row in frame.select("queueId", "body").collect():
        found.setdefault(row.queueId, []).append(bytes(row.body))
    return found


def sent_by_queue(bodies: list[bytes]) -> dict[int, list[bytes]]:
    return {queue: bodies[queue::QUEUES] for queue in range(QUEUES)}


def test_rows_are_the_messages_in_the_order_of_their_queues(read_topic: Read, topic: str) -> None:
    rows = read_topic(topic, minPartitions=4, includeHeaders="true").collect()
    assert [(row.queueId, row.queueOffset) for row in rows] == [(q, n) for q in range(QUEUES) for n in range(200)]
    for row in rows:
        number = row.queueOffset * QUEUES + row.queueId
        assert (bytes(row.body), row.keys, row.tags) == (BODIES[number], f"k{number}", f"t{number % 2}")
        assert (row.topic, row.brokerName) == (topic, BROKER)
        assert row.properties["KEYS"] == row.keys and row.properties["UNIQ_KEY"] == row.msgId
        assert {header.key: header.value.decode() for header in row.headers} == row.properties
        assert row.transactionId is None and row.reconsumeTimes == 0
        assert row.bornTimestamp <= row.storeTimestamp
        assert row.bornHost.startswith("127.0.0.1:") and row.storeHost.startswith("127.0.0.1:")
    assert len({row.physicalOffset for row in rows}) == len(BODIES)


def test_counting_and_projections(spark: SparkSession, read_topic: Read, name_server: str, topic: str) -> None:
    assert read_topic(topic).count() == len(BODIES)
    assert read_topic(topic, columns="BODY,queueid").columns == ["body", "queueId"]
    asked = spark.read.format("tally-topic").schema("body BINARY, queueId INT, tags STRING")
    frame = asked.options(nameServer=name_server, subscribe=topic).load()
    assert frame.columns == ["body", "queueId", "tags"] and bodies_by_queue(frame) == sent_by_queue(BODIES)


def test_offsets(read_topic: Read, topic: str) -> None:
    start = json.dumps({topic: {BROKER: {"0": 190, "1": -1}}})
    end = json.dumps({topic: {BROKER: {"2": 3}}})
    rows = read_topic(topic, startingOffsets=start, endingOffsets=end, columns="queueId,queueOffset").collect()
    assert [tuple(row) for row in rows] == [(0, n) for n in range(190, 200)] + [(2, 0), (2, 1), (2, 2)]
    assert read_topic(topic, startingOffsets="latest").count() == 0


def test_times(mq: sync.RocketMQ, name_server: str, read_topic: Read) -> None:
    make_topic(name_server, "timed")
    stored = []
    for part in (b"early", b"late"):
        send(mq, "timed", [Message("timed", part)] * QUEUES)
        stored.append(time.time_ns() // 1_000_000 + 2)
        time.sleep(0.005)
    middle = stored[0]
    assert bodies_by_queue(read_topic("timed", startingTimestamp=middle)) == {q: [b"late"] for q in range(QUEUES)}
    assert bodies_by_queue(read_topic("timed", endingTimestamp=middle)) == {q: [b"early"] for q in range(QUEUES)}


def test_parquet_has_what_the_topic_has(spark: SparkSession, read_topic: Read, topic: str, tmp_path: Path) -> None:
    read_topic(topic).write.parquet(str(tmp_path / "table"))
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("queueId", "queueOffset")
    assert bodies_by_queue(table) == sent_by_queue(BODIES)


def test_ledgers_and_topics_in_one_query(
    read: Callable[..., DataFrame], write: Callable[..., int], read_topic: Read, topic: str
) -> None:
    entries = read(ledgers=write(BODIES), columns="entry,payload")
    messages = read_topic(topic, columns="queueId,queueOffset,body")
    row = messages.queueOffset * QUEUES + messages.queueId
    same = entries.join(messages, (entries.entry == row) & (entries.payload == messages.body))
    assert same.count() == len(BODIES)


@pytest.mark.rule("H3", "H13")
def test_h13_a_dead_master_s_messages_come_from_its_slave(
    brokers: DevCluster, mq: sync.RocketMQ, name_server: str, read_topic: Read
) -> None:
    make_topic(name_server, "survivors")
    results = send(mq, "survivors", [Message("survivors", body) for body in BODIES])
    assert {result.status.name for result in results} == {"SEND_OK"}
    assert bodies_by_queue(read_topic("survivors", readFrom="slave")) == sent_by_queue(BODIES)
    asyncio.run(slave_serves(brokers, "survivors"))
    brokers.kill([BROKER])
    try:
        assert bodies_by_queue(read_topic("survivors")) == sent_by_queue(BODIES)
    finally:
        brokers.restart([BROKER])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"subscribe": "rows", "subscribes": "rows"},
            "[TALLY-USAGE-ERROR] unknown option: subscribes (did you mean subscribe?); known: path, nameS",
        ),
        ({"subscribe": "rows", "columns": "payload"}, "[TALLY-USAGE-ERROR] columns are some of topic, brokerName"),
        ({"subscribe": "rows", "startingOffsets": '{"rows": {"broker-a": {"0": 999}}}'}, "[TALLY-NO-SUCH-MESSAGE]"),
        ({"subscribe": "absent"}, "[TALLY-NO-SUCH-TOPIC]"),
        ({"subscribe": "rows", "nameServer": "127.0.0.1:1"}, "[TALLY-UNAVAILABLE] no name server answers"),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, name_server: str, topic: str, options: dict[str, str], text: str
) -> None:
    frame = spark.read.format("tally-topic").options(**{"nameServer": name_server, **options})
    assert text in failure_of(lambda: frame.load().collect())
