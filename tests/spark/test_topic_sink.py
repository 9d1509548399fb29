"""Writing topics on local[2], against a real master and its slave: each message once."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.spark_failures import failure_of
from support.topics import make_topic, send
from tallystick import sync
from tallystick.rocketmq.wire.record import Message
from tallystick.rocketmq.wire.sink_identity import SINK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()
PATIENCE_S = 300.0
DRIVER = """
import sys
import tallystick.spark
from pyspark import TaskContext

name_server, source, target, folder, trigger = sys.argv[1:]
spark = tallystick.spark.session("local[2,4]", **{"spark.driver.memory": "1g", "spark.local.dir": folder})
spark.sparkContext.setLogLevel("OFF")
options = {"nameServer": name_server, "subscribe": source, "startingOffsets": "earliest",
           "maxOffsetsPerTrigger": "60", "minPartitions": "3"}
rows = spark.readStream.format("tally-topic").options(**options).load()


def fails_once(batches):
    for number, batch in enumerate(batches):
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 1:
            raise ValueError("this attempt dies when it has sent what it had")


rows = rows.select("body").mapInArrow(fails_once, "body BINARY")
query = rows.writeStream.format("tally-topic").options(nameServer=name_server, topic=target, order="arrival")
query = query.option("checkpointLocation", f"{folder}/checkpoint")
query = query.trigger(availableNow=True) if trigger == "now" else query.trigger(processingTime="20 milliseconds")
query.start().awaitTermination()
"""


@pytest.fixture(scope="module")
def mq(name_server: str) -> Iterator[sync.RocketMQ]:
    with sync.topics(name_server) as client:
        yield client


@pytest.fixture
def topic(name_server: str) -> str:
    """A topic of its own for each test, and one beside it to read from."""
    name = f"Sink{next(_NUMBERS)}"
    for each in (name, f"{name}-in"):
        make_topic(name_server, each)
    return name


def save(frame: DataFrame, name_server: str, topic: str, version: int, **options: object) -> None:
    texts = {key: str(value) for key, value in options.items()}
    named = {"nameServer": name_server, "txnAppId": "app", "txnVersion": str(version)} | texts
    frame.write.format("tally-topic").options(**named).mode("append").save(topic)


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS value")


def rows(spark: SparkSession, name_server: str, topic: str) -> DataFrame:
    return spark.read.format("tally-topic").options(nameServer=name_server, subscribe=topic).load()


def values(spark: SparkSession, name_server: str, topic: str) -> list[int]:
    return sorted(int(row.body) for row in rows(spark, name_server, topic).select("body").collect())


def test_a_batch_is_sent_once_however_often_it_is_written(spark: SparkSession, name_server: str, topic: str) -> None:
    for version in (0, 0, 1, 0):
        save(numbers(spark, 3000), name_server, topic, version)
    assert values(spark, name_server, topic) == sorted([*range(3000)] * 2)
    assert re.search(
        r"TALLY-NON-DETERMINISTIC-REPLAY.*begun in 2 partitions, and has 3",
        failure_of(lambda: save(numbers(spark, 3000, 3), name_server, topic, 1)),
    )
    assert re.search(
        r"TALLY-NON-DETERMINISTIC-REPLAY.*another message is stored",
        failure_of(lambda: save(numbers(spark, 3000).selectExpr("reverse(value) AS value"), name_server, topic, 1)),
    )
    assert len(values(spark, name_server, topic)) == 6000


def test_a_frame_that_was_read_is_written_again_and_rows_of_a_shuffle_are_the_same_batch(
    spark: SparkSession, mq: sync.RocketMQ, name_server: str, topic: str
) -> None:
    source = [Message(f"{topic}-in", b"%d" % number, "t", ["k1", "k2"], {"a": "b"}, 7) for number in range(30)]
    send(mq, f"{topic}-in", source)
    read = rows(spark, name_server, f"{topic}-in")
    for partitions in (3, 3):
        save(read.repartition(partitions, "queueOffset").orderBy("body"), name_server, topic, 0)
    written = rows(spark, name_server, topic).collect()
    assert sorted(int(row.body) for row in written) == list(range(30))
    assert {(row["keys"], row["tags"], row["flag"], row["properties"]["a"]) for row in written} == {
        ("k1 k2", "t", 7, "b")
    }
    assert all(SINK in row["properties"] for row in written)


Start = Callable[..., "StreamingQuery"]


@pytest.fixture
def copy(spark: SparkSession, name_server: str, topic: str, tmp_path: Path) -> Start:
    """A query that writes what one topic has into another one, all that there is now."""

    def start(checkpoint: str = "checkpoint", partitions: int = 3, **options: str) -> StreamingQuery:
        named = {"nameServer": name_server, "subscribe": f"{topic}-in", "startingOffsets": "earliest"}
        limits = {"maxOffsetsPerTrigger": "20", "minPartitions": str(partitions)}
        followed = spark.readStream.format("tally-topic").options(**named, **limits).load()
        query = (
            followed.select("body", "keys")
            .writeStream.format("tally-topic")
            .options(nameServer=name_server, checkpointLocation=str(tmp_path / checkpoint), **options)
            .trigger(availableNow=True)
            .start(topic)
        )
        query.awaitTermination(300)
        return query

    return start


def test_a_query_repeats_its_last_batch_and_each_row_is_there_once(
    spark: SparkSession, mq: sync.RocketMQ, name_server: str, topic: str, copy: Start, tmp_path: Path
) -> None:
    """As after a kill of the driver between what the tasks sent and what Spark notes: the batch is known, its end is
    not."""
    send(mq, f"{topic}-in", [Message(f"{topic}-in", b"%d" % number) for number in range(50)])
    copy(application="copy")
    assert values(spark, name_server, topic) == list(range(50))
    older = tmp_path / "older"
    for _ in range(2):
        newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (newest, newest.with_name(f".{newest.name}.crc")):
            path.unlink(missing_ok=True)
        if not older.exists():
            shutil.copytree(tmp_path / "checkpoint", older)
        assert re.search(
            r"TALLY-NON-DETERMINISTIC-REPLAY.*has 7 now", failure_of(lambda: copy(partitions=7, application="copy"))
        )
        assert values(spark, name_server, topic) == list(range(50))
        copy(application="copy")
        assert values(spark, name_server, topic) == list(range(50))
    assert re.search(
        r"TALLY-CHECKPOINT-LOST.*began again without its checkpoint",
        failure_of(lambda: copy("new", application="copy")),
    )
    send(mq, f"{topic}-in", [Message(f"{topic}-in", b"%d" % number) for number in range(50, 70)])
    copy(application="copy")
    assert re.search(r"TALLY-CHECKPOINT-LOST.*an older copy", failure_of(lambda: copy("older", application="copy")))
    assert values(spark, name_server, topic) == list(range(70))


@contextmanager
def driver(name_server: str, topic: str, folder: Path, trigger: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", DRIVER, name_server, f"{topic}-in", topic, str(folder), trigger]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its JVM and Python workers, too
        process.wait()


def test_each_row_is_there_once_and_in_order_though_tasks_fail_and_the_driver_is_killed(
    spark: SparkSession, mq: sync.RocketMQ, name_server: str, topic: str, tmp_path: Path
) -> None:
    send(mq, f"{topic}-in", [Message(f"{topic}-in", b"%d" % number) for number in range(600)])
    with driver(name_server, topic, tmp_path, "always") as process:
        deadline = time.monotonic() + PATIENCE_S
        while len(list((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))) < 4:  # and it is at one now
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    assert len(values(spark, name_server, topic)) < 600
    with driver(name_server, topic, tmp_path, "now") as process:
        assert process.wait(PATIENCE_S) == 0
    assert values(spark, name_server, topic) == list(range(600))
    read = rows(spark, name_server, topic).select("queueId", "queueOffset", "body", f"properties.{SINK}").collect()
    for queue in range(3):
        own = [row for row in read if row["queueId"] == queue]
        places = [row[SINK].split(" ") for row in sorted(own, key=lambda row: row["queueOffset"])]
        by_partition: dict[str, list[tuple[int, int]]] = {}
        for place in places:
            by_partition.setdefault(place[4], []).append((int(place[2]), int(place[5])))
        assert all(each == sorted(each) for each in by_partition.values())
