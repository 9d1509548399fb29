"""Streaming queries of topics on local[2], against a real master and its slave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.spark_failures import failure_of
from support.topics import BROKER, QUEUES, make_topic, send, slave_serves
from tallystick import sync
from tallystick.admin.brokers import operator
from tallystick.admin.dev import DevCluster
from tallystick.admin.groups import group_lag
from tallystick.admin.topics import create_topic, delete_topic
from tallystick.pipeline.topic.schema import COLUMNS
from tallystick.rocketmq.wire.record import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

PATIENCE_S = 180.0
DRIVER = """
import sys
import tallystick.spark

name_server, topic, folder, trigger = sys.argv[1:]
spark = tallystick.spark.session("local[2]", **{"spark.driver.memory": "1g", "spark.local.dir": folder})
spark.sparkContext.setLogLevel("OFF")
options = {"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60",
           "minPartitions": "2", "groupId": "killed"}
rows = spark.readStream.format("tally-topic").options(**options).load()


def write(batch, number):
    batch.write.mode("overwrite").parquet(f"{folder}/table/batch={number}")  # a batch that comes again is the same


query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
query = query.trigger(availableNow=True) if trigger == "now" else query.trigger(processingTime="20 milliseconds")
query.start().awaitTermination()
"""


@pytest.fixture(scope="module")
def mq(name_server: str) -> Iterator[sync.RocketMQ]:
    with sync.topics(name_server) as client:
        yield client


class Query:
    """Starts a query of one checkpoint and one table of Parquet, again and again."""

    def __init__(self, spark: SparkSession, name_server: str, folder: Path) -> None:
        self._spark, self._name_server, self._folder = spark, name_server, folder

    def start(self, *, available_now: bool = False, **options: object) -> StreamingQuery:
        texts = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
        reader = self._spark.readStream.format("tally-topic").options(nameServer=self._name_server, **texts)
        writer = reader.load().writeStream.format("parquet").option("path", str(self._folder / "table"))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "50 milliseconds"}
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(**trigger).start()

    def run(self, **options: object) -> StreamingQuery:
        """All that there is now."""
        query = self.start(available_now=True, **options)
        query.awaitTermination()
        return query

    def bodies(self) -> list[bytes]:
        if not (self._folder / "table" / "_spark_metadata").exists():
            return []
        table = self._spark.read.schema(COLUMNS.struct(COLUMNS.names)).parquet(str(self._folder / "table"))
        return sorted(bytes(row.body) for row in table.select("body").collect())

    def offsets(self) -> list[dict[str, Any]]:
        """What the checkpoint has of each batch that was begun."""
        logs = sorted((self._folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logs]


@pytest.fixture
def query(spark: SparkSession, name_server: str, tmp_path: Path) -> Query:
    return Query(spark, name_server, tmp_path)


def wait_until(condition: Callable[[], object], running: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if running is not None and (error := running.exception()) is not None:
            raise error
        assert time.monotonic() < deadline
        time.sleep(0.1)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(first, end)]


def publish(mq: sync.RocketMQ, topic: str, bodies: Sequence[bytes]) -> None:
    """Stored by the master, and by its slave if that is there."""
    statuses = {result.status.name for result in send(mq, topic, [Message(topic, body) for body in bodies])}
    assert statuses <= {"SEND_OK", "SLAVE_NOT_AVAILABLE"}


def test_rows_come_once_over_restarts_and_queues_that_are_added(
    mq: sync.RocketMQ, name_server: str, query: Query
) -> None:
    make_topic(name_server, "followed")
    publish(mq, "followed", numbers(0, 60))
    running = query.start(subscribePattern="follow.*", maxOffsetsPerTrigger=25)
    wait_until(lambda: len(query.bodies()) > 20, running)
    running.stop()  # in whatever it is at

    async def grow() -> None:
        async with operator(name_server) as who:
            await create_topic(who, "followed", queues=QUEUES + 2)

    asyncio.run(grow())
    running = query.start(subscribePattern="follow.*", maxOffsetsPerTrigger=25)
    try:
        producer = mq.producer("more")
        wait_until(lambda: query.offsets()[-1]["q"]["followed"][BROKER]["0"][QUEUES:] == [0, 0], running)
        for body in numbers(60, 100):
            producer.send("followed", body)
        make_topic(name_server, "follow-up")
        publish(mq, "follow-up", numbers(100, 130))
        wait_until(lambda: len(query.bodies()) >= 130, running)
    finally:
        running.stop()
    query.run(subscribePattern="follow.*")
    assert query.bodies() == numbers(0, 130)
    assert list(query.offsets()[-1]["q"]) == ["follow-up", "followed"]


def test_single_queues_with_limits_of_a_batch(mq: sync.RocketMQ, name_server: str, query: Query) -> None:
    make_topic(name_server, "assigned")
    publish(mq, "assigned", [body * 200 for body in numbers(0, 60)])  # 1,000 bytes; message i in queue i mod QUEUES
    assign = json.dumps({"assigned": {BROKER: [0, 2]}})
    query.run(assign=assign, maxBytesPerTrigger="6k", maxOffsetsPerTrigger=30)
    expected = [body * 200 for body in numbers(0, 60) if int(body) % QUEUES != 1]
    assert query.bodies() == expected and len(query.offsets()) >= 6
    running = query.start(assign=assign, minOffsetsPerTrigger=10, maxTriggerDelay="4s")
    publish(mq, "assigned", numbers(60, 66))
    few = expected + [body for body in numbers(60, 66) if int(body) % QUEUES != 1]
    wait_until(lambda: query.bodies() == sorted(few), running)
    running.stop()


def test_a_topic_that_is_made_anew_beside_its_query(mq: sync.RocketMQ, name_server: str, query: Query) -> None:
    make_topic(name_server, "anew")
    publish(mq, "anew", numbers(0, 30))
    running = query.start(subscribe="anew")
    wait_until(lambda: query.bodies() == numbers(0, 30), running)

    async def delete() -> None:
        async with operator(name_server) as who:
            await delete_topic(who, "anew")

    asyncio.run(delete())
    make_topic(name_server, "anew")
    publish(mq, "anew", numbers(30, 33))
    text = failure_of(lambda: wait_until(lambda: False, running))
    assert "rows may be lost" in text or "TALLY-NO-SUCH-TOPIC" in text, text
    assert query.bodies() == numbers(0, 30)


@pytest.mark.rule("H3", "H13")
def test_h13_a_master_that_dies_in_the_middle_of_a_query(
    brokers: DevCluster, mq: sync.RocketMQ, name_server: str, query: Query
) -> None:
    make_topic(name_server, "bereaved")
    publish(mq, "bereaved", numbers(0, 300))
    running = query.start(subscribe="bereaved", maxOffsetsPerTrigger=15)
    try:
        wait_until(lambda: len(query.bodies()) >= 30, running)
        asyncio.run(slave_serves(brokers, "bereaved"))
        brokers.kill([BROKER])
        try:
            wait_until(lambda: len(query.bodies()) >= 300, running)
        finally:
            brokers.restart([BROKER])
        publish(mq, "bereaved", numbers(300, 330))
        wait_until(lambda: len(query.bodies()) >= 330, running)
    finally:
        running.stop()
    assert query.bodies() == numbers(0, 330)


def test_a_group_shows_how_far_the_query_is(mq: sync.RocketMQ, name_server: str, query: Query) -> None:
    make_topic(name_server, "shown")
    publish(mq, "shown", numbers(0, 30))
    running = query.run(subscribe="shown", groupId="etl", maxOffsetsPerTrigger=9)

    async def lags() -> list[tuple[int, int]]:
        async with operator(name_server) as who:
            return [(each.offset, each.lag) for each in await group_lag(who, "etl") if each.topic == "shown"]

    assert asyncio.run(lags()) == [(10, 0)] * QUEUES
    source = running.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"]) == {"v": 1, "q": {"shown": {BROKER: {"0": [3] * QUEUES}}}}
    latest = json.loads(source["latestOffset"])
    lag = latest.pop("lag")
    assert latest == {"v": 1, "q": {"shown": {BROKER: {"0": [10] * QUEUES}}}}
    assert lag["rows"] == 21 and lag["bytes"] > 21 * 50 and 0 <= lag["seconds"] < 600
    assert json.loads(running.recentProgress[-1]["sources"][0]["latestOffset"])["lag"]["rows"] == 0


def test_mistakes_are_named(mq: sync.RocketMQ, name_server: str, query: Query, tmp_path: Path) -> None:
    make_topic(name_server, "mistaken")
    publish(mq, "mistaken", numbers(0, 3))
    assert "did you mean maxOffsetsPerTrigger" in failure_of(
        lambda: query.run(subscribe="mistaken", maxOffsetPerTrigger=1)
    )
    assert "[TALLY-NO-SUCH-TOPIC]" in failure_of(lambda: query.run(subscribe="absent"))
    query.run(subscribe="mistaken")
    log = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    (log.parent / f".{log.name}.crc").unlink(missing_ok=True)
    text = log.read_text()
    log.write_text(text.replace("[1, 1, 1]", "[1, 99, 1]"))
    beyond = failure_of(lambda: query.run(subscribe="mistaken"))
    assert "[TALLY-NO-SUCH-MESSAGE]" in beyond and "failOnDataLoss=false goes on with what is left" in beyond
    assert "offset=99" in beyond
    log.write_text(text.replace('{"v": 1,', '{"v": 2,'))
    assert "the checkpoint has offsets of a newer tallystick" in failure_of(lambda: query.run(subscribe="mistaken"))
    log.write_text("\n".join([*text.splitlines()[:-1], "rubbish"]))
    undecoded = failure_of(lambda: query.run(subscribe="mistaken"))
    assert "[TALLY-USAGE-ERROR] the checkpoint has an offset of tally-topic that is no JSON: restore" in undecoded
    assert "offset=rubbish" in undecoded


def begun(folder: Path) -> int:
    """How many batches the checkpoint has."""
    return len(list((folder / "checkpoint" / "offsets").glob("[0-9]*")))


def test_rows_come_once_though_the_driver_is_killed(mq: sync.RocketMQ, name_server: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    make_topic(name_server, "killed")
    written = 0
    for trigger in ("always", "now"):
        publish(mq, "killed", numbers(written, written + 240))
        written += 240
        arguments = [sys.executable, "-c", DRIVER, name_server, "killed", str(tmp_path), trigger]
        before = begun(tmp_path)
        process = subprocess.Popen(arguments, start_new_session=True)
        try:
            if trigger == "now":
                assert process.wait(PATIENCE_S) == 0
            deadline = time.monotonic() + PATIENCE_S
            while trigger == "always" and begun(tmp_path) < before + 3:  # and it is at one now
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its JVM and Python workers, too
            process.wait()
    rows = [row for path in (tmp_path / "table").glob("batch=*") for row in pq.read_table(path).to_pylist()]
    assert Counter(row["body"] for row in rows) == Counter(numbers(0, written))
