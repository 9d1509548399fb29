"""The same sources on a real standalone cluster: executors are other processes, started by workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.listening import open_to_others
from support.spark_cluster import SparkCluster, running
from support.topics import QUEUES, make_topic, send
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.rocketmq.wire.record import Message

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
Write = Callable[..., int]
PAYLOADS = [b"flight %d " % number * (number % 9) for number in range(2000)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with running(tmp_path_factory.mktemp("spark")) as started:
        yield started


@pytest.fixture(scope="module")
def master(cluster: SparkCluster) -> str:
    return cluster.master


def kill_an_executor_once(mark: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: whichever task has given its first batch and makes the file ``mark`` takes its executor down."""

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            # This process was forked by Spark's Python daemon, and that was started by the executor.
            executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)

    return give


def test_a_cluster_of_processes_reads_the_same_rows(
    cluster: SparkCluster, spark: SparkSession, read: Read, write: Write
) -> None:
    first, second = write(PAYLOADS, ensemble=3, write_quorum=3), write(PAYLOADS[:500], ensemble=3, write_quorum=2)
    frame = read(ledgers=f"{first},{second}", minPartitions=4)
    rows = frame.selectExpr("*", "spark_partition_id() AS partition").collect()
    wanted = [(first, entry) for entry in range(2000)] + [(second, entry) for entry in range(500)]
    assert [(row.ledger, row.entry) for row in rows] == wanted
    assert [bytes(row.payload) for row in rows] == PAYLOADS + PAYLOADS[:500]
    assert [row.partition for row in rows] == sorted(row.partition for row in rows)
    assert {row.partition for row in rows} == {0, 1, 2, 3}
    assert len(cluster.executors) == 2
    assert all(open_to_others(pid) == [] for pid in (*cluster.pids, *cluster.executors))


def test_a_cluster_of_processes_reads_a_topic(spark: SparkSession, read_topic: Read, name_server: str) -> None:
    make_topic(name_server, "standalone")
    with sync.topics(name_server) as mq:
        send(mq, "standalone", [Message("standalone", payload or b"-") for payload in PAYLOADS])
    frame = read_topic("standalone", minPartitions=4, columns="queueId,queueOffset,body")
    rows = frame.selectExpr("*", "spark_partition_id() AS partition").collect()
    assert {row.partition for row in rows} == {0, 1, 2, 3}
    found = {row.queueOffset * QUEUES + row.queueId: bytes(row.body) for row in rows}
    assert len(rows) == len(PAYLOADS) and found == {n: payload or b"-" for n, payload in enumerate(PAYLOADS)}
    assert [(row.queueId, row.queueOffset) for row in rows] == sorted((row.queueId, row.queueOffset) for row in rows)


@pytest.mark.rule("Q17")
def test_q17_tasks_of_a_dead_executor_are_read_again_and_once(
    cluster: SparkCluster, read: Read, write: Write, tmp_path: Path
) -> None:
    ledger, mark, before = write(PAYLOADS), tmp_path / "killed", set(cluster.executors)
    frame = read(ledgers=ledger, minPartitions=6)
    rows = frame.mapInArrow(kill_an_executor_once(str(mark)), frame.schema).collect()
    assert mark.exists() and before - set(cluster.executors)
    assert [(row.entry, bytes(row.payload)) for row in rows] == list(enumerate(PAYLOADS))


@pytest.mark.rule("Q17", "Q18")
def test_q18_a_cluster_of_processes_reads_a_stream_though_an_executor_dies(
    cluster: SparkCluster, spark: SparkSession, bk: sync.BookKeeper, uri: str, tmp_path: Path
) -> None:
    name, mark = "spark/standalone/persistent/s", tmp_path / "killed"
    with bk.open_stream(name, settings=StreamSettings(max_entries_per_ledger=7)) as stream:
        for start in range(0, len(PAYLOADS), 50):
            stream.append_batch(PAYLOADS[start : start + 50])
    options = {"uri": uri, "subscribe": name, "minPartitions": "6"}
    frame = spark.read.format("tally-stream").options(**options).load()
    assert frame.count() == len(PAYLOADS)
    before = set(cluster.executors)
    rows = frame.mapInArrow(kill_an_executor_once(str(mark)), frame.schema).collect()
    assert mark.exists() and before - set(cluster.executors)
    assert [bytes(row.value) for row in rows] == PAYLOADS
