"""The Spark sources beside what Spark gives any Python function at best: ``mapInArrow`` over ready batches.

    python bench/spark.py [--quick] [--json FILE] [--docs FILE]

One local session with two cores, three bookies, a master and its slave on this machine; the workloads take turns, and
medians count. Each writes to the ``noop`` sink. ``mapInArrow`` yields the same number of equal batches without reading
anything, so the distance to it is what reading, checking and building the batches costs; Parquet has the rows of a
ledger, not compressed; ``range`` is the JVM alone, as a ruler for how busy the machine is. CPU is user and system time
of the driver with its JVM and Python workers; that of bookies and brokers is apart. The last columns are what part of a
source's CPU ``mapInArrow`` needs: its rate beside that of ``mapInArrow`` where CPU is what limits both.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import command
import pyarrow as pa
from machine import cpu_seconds, describe
from report import grid

import tallystick.spark
from tallystick import Message, sync
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState
from tallystick.bookkeeper.ledger.arrow import SCHEMA
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.pipeline.columns import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
PAYLOAD_BYTES = 1024
APPEND_AT_ONCE, SEND_AT_ONCE = 2000, 500
QUORUMS = {"ledger 3/3/2": (3, 3, 2), "ledger striped 3/2/2": (3, 2, 2)}
STREAMS = {"stream, 1 message an entry": 1, "stream, 100 an entry": 100}
TOPIC = "bench"
TOPICS = {"topic, all 18 columns": None, "topic, place and body": "queueId,queueOffset,body"}
STREAM_CEILING, TOPIC_CEILING = "the same of a stream's 12 columns", "the same of a topic's 18 columns"
CEILING, PARQUET, RULER = "mapInArrow of ready batches", "the ledger's rows as Parquet", "range, JVM only"


@dataclass(frozen=True)
class Round:
    rows_per_s: float
    cpu_s_per_gb: float  # of payload
    servers_cpu_s_per_gb: float


def main() -> int:
    return command.run(__doc__, "fewer rows and rounds: about a minute", beside_ceiling, markdown, place="spark")


def beside_ceiling(quick: bool) -> command.Results:
    """Everything that the report needs."""
    rows, rounds = (100_000, 2) if quick else (400_000, 5)
    with tempfile.TemporaryDirectory() as folder:
        cluster = DevCluster(folder)
        state = cluster.up(3, "1+1")
        try:
            servers = [node.process.pid for node in state.nodes if node.process is not None]
            spark = counted_session(f"local[{PARTITIONS}]", **{"spark.driver.memory": "2g"})
            spark.sparkContext.setLogLevel("ERROR")
            results = measure(workloads(spark, state, rows, f"{folder}/parquet"), rows, rounds, servers)
            spark.stop()
        finally:
            cluster.down()
    machine = describe(Path(tempfile.gettempdir()))
    return {"machine": machine, "rows": rows, "payload_bytes": PAYLOAD_BYTES, "rounds": results}


def counted_session(master: str, **conf: object) -> SparkSession:
    """A session whose Python workers are counted by ``tree_cpu_seconds`` even when they have ended."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    return tallystick.spark.session(master, "bench", **{"spark.python.daemon.module": "counted_daemon", **conf})


def workloads(spark: SparkSession, state: DevState, rows: int, folder: str) -> dict[str, DataFrame]:
    """What is measured, by name. ``folder`` is for Parquet."""
    results: dict[str, DataFrame] = {}
    for name, quorums in QUORUMS.items():
        ledger = write_ledger(state.uri, rows, quorums)
        options = {"uri": state.uri, "ledgers": str(ledger), "minPartitions": str(PARTITIONS)}
        results[name] = spark.read.format("tally-ledger").options(**options).load()
    for name, at_once in STREAMS.items():
        stream = f"bench/spark/persistent/by-{at_once}"
        write_stream(state.uri, stream, rows, at_once)
        options = {"uri": state.uri, "subscribe": stream, "minPartitions": str(PARTITIONS)}
        results[name] = spark.read.format("tally-stream").options(**options).load()
    write_topic(str(state.name_server), rows)
    for name, chosen in TOPICS.items():
        options = {"nameServer": str(state.name_server), "subscribe": TOPIC, "minPartitions": str(PARTITIONS)}
        reader = spark.read.format("tally-topic").options(**options)
        results[name] = (reader.option("columns", chosen) if chosen else reader).load()
    ledger_rows = results[next(iter(QUORUMS))]
    ledger_rows.write.options(**{"compression": "none", "parquet.enable.dictionary": "false"}).parquet(folder)
    results[PARQUET] = spark.read.parquet(folder)
    columns = "ledger bigint, entry bigint, lac bigint, length bigint, payload binary"
    seeds = spark.range(PARTITIONS, numPartitions=PARTITIONS)
    results[CEILING] = seeds.mapInArrow(ready_batches(rows // PARTITIONS, ledger_batch()), columns)
    for name, like in {STREAM_CEILING: next(iter(STREAMS)), TOPIC_CEILING: next(iter(TOPICS))}.items():
        [batch] = results[like].limit(BATCH_BYTES // PAYLOAD_BYTES).toArrow().combine_chunks().to_batches()
        results[name] = seeds.mapInArrow(ready_batches(rows // PARTITIONS, batch), results[like].schema)
    results[RULER] = spark.range(rows, numPartitions=PARTITIONS).selectExpr(
        "id AS ledger", "id AS entry", "id AS lac", "id AS length", f"binary(repeat('x', {PAYLOAD_BYTES})) AS payload"
    )
    return results


def write_ledger(uri: str, rows: int, quorums: tuple[int, int, int]) -> int:
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(APPEND_AT_ONCE)]
    ensemble, write, ack = quorums
    with sync.connect(uri) as bk, bk.create_ledger(ensemble, write_quorum=write, ack_quorum=ack) as writer:
        for _ in range(rows // APPEND_AT_ONCE):
            writer.append_batch(payloads)
        return writer.id


def write_stream(uri: str, name: str, rows: int, at_once: int) -> None:
    """Messages with a key, so many an entry."""
    messages = [OutMessage(os.urandom(PAYLOAD_BYTES), "bench") for _ in range(at_once)]
    with sync.connect(uri) as bk, bk.open_stream(name) as stream:
        for _ in range(rows // APPEND_AT_ONCE):
            if at_once > 1:
                for _ in range(APPEND_AT_ONCE // at_once):
                    stream.append_batch(messages)
                continue
            futures = [stream.append_nowait(messages[0].data, key="bench") for _ in range(APPEND_AT_ONCE)]
            for future in futures:
                future.result()


def write_topic(name_server: str, rows: int) -> None:
    """Messages with a tag and a key, as an application sends them; the topic is made by the first."""
    body = os.urandom(PAYLOAD_BYTES)
    with sync.topics(name_server) as mq:
        producer = mq.producer("bench")
        for start in range(0, rows, SEND_AT_ONCE):
            messages = [Message(TOPIC, body, tags="bench", keys=(str(start + i),)) for i in range(SEND_AT_ONCE)]
            producer.send_batch(TOPIC, messages)


def ledger_batch() -> pa.RecordBatch:
    """A batch as large as the source's, with the columns of a ledger."""
    count = BATCH_BYTES // PAYLOAD_BYTES
    numbers, payloads = pa.array(range(count), pa.int64()), pa.array([os.urandom(PAYLOAD_BYTES)] * count)
    schema = pa.schema([field.with_nullable(True) for field in SCHEMA])
    return pa.RecordBatch.from_arrays([numbers] * 4 + [payloads], schema=schema)


def ready_batches(rows: int, batch: pa.RecordBatch) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow that gives ``rows`` rows, one batch again and again."""

    def give(seeds: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in seeds:
            for start in range(0, rows, batch.num_rows):
                yield batch.slice(0, min(batch.num_rows, rows - start))

    return give


def measure(frames: dict[str, DataFrame], rows: int, rounds: int, servers: list[int]) -> dict[str, list[Round]]:
    """All workloads in turn; the first turn warms the JVM, the workers and the page cache, and does not count."""
    results: dict[str, list[Round]] = {name: [] for name in frames}
    for turn in range(rounds + 1):
        for name, frame in frames.items():
            one = run(frame, rows, servers)
            if turn:
                results[name].append(one)
    return results


def run(frame: DataFrame, rows: int, servers: list[int]) -> Round:
    gigabytes = rows * PAYLOAD_BYTES / 1e9
    start, ours, theirs = time.monotonic(), tree_cpu_seconds(os.getpid(), servers), sum(map(cpu_seconds, servers))
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - start
    return Round(
        rows / seconds,
        (tree_cpu_seconds(os.getpid(), servers) - ours) / gigabytes,
        (sum(map(cpu_seconds, servers)) - theirs) / gigabytes,
    )


def tree_cpu_seconds(root: int, but: list[int]) -> float:
    """User and system time of a process and all below it, some left out. Those that have ended are in it if their
    parents waited for them: Spark's daemon of Python workers does not, ``counted_daemon`` does.

    A process that ends while it is looked lacks in that look; it never looks like too much, so the greater of two
    counts.
    """
    return max(_tree_cpu_seconds(root, but) for _ in range(2))


def _tree_cpu_seconds(root: int, but: list[int]) -> float:
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it ended just now
            continue
        pid = int(folder.name)
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += [child for child in children.get(pid, []) if child not in but]
    return total


def markdown(results: command.Results) -> str:
    machine = results["machine"]
    head = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; {results['rows']:,} rows of 1 KB."
    )
    return f"{head}\n\n{table(results['rounds'])}"


def table(results: dict[str, list[Round]]) -> str:
    titles = (
        "workload",
        "krows/s",
        "MB/s",
        "CPU µs per row",
        "CPU-s per GB",
        "servers' CPU-s per GB",
        "mapInArrow's CPU beside it",
        "beside it and servers",
    )
    ceiling = statistics.median(one.cpu_s_per_gb for one in results[CEILING])
    rows = []
    for name, each in results.items():
        rate = statistics.median(one.rows_per_s for one in each)
        cpu = statistics.median(one.cpu_s_per_gb for one in each)
        servers = statistics.median(one.servers_cpu_s_per_gb for one in each)
        beside = ceiling / cpu, ceiling / (cpu + servers)
        figures = (rate * PAYLOAD_BYTES / 1e6, cpu * PAYLOAD_BYTES / 1e3, cpu, servers, *beside)
        rows.append([name, f"{rate / 1e3:.0f}", f"{figures[0]:.0f}", *(f"{figure:.2f}" for figure in figures[1:])])
    return grid(titles, rows)


if __name__ == "__main__":
    sys.exit(main())
