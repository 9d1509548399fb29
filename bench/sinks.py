"""The Spark sinks: what exactly once costs beside at least once, and both beside Spark's own Parquet.

    python bench/sinks.py [--quick] [--json FILE] [--docs FILE]

One local session with two cores, three bookies, a master and its slave on this machine; the sinks take turns, the first
turn warms, medians of the others. All write the same rows, which Spark reads from Parquet: the last line says what that
costs alone. A table has the same rows out of a stream. CPU is user and system time of the driver with its JVM and
Python workers; that of bookies and brokers is apart. The second table is of batches of few rows, one behind the other.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command
import pyarrow as pa
import pyarrow.parquet as pq
from machine import cpu_seconds, describe
from report import grid

import tallystick
import tallystick.spark
from spark import PAYLOAD_BYTES, counted_session, tree_cpu_seconds
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.spark import IngestSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 2
ROWS_AT_ONCE = 10_000
BATCH_ROWS, IN_FLIGHT = 125, 16  # of append_batch
TOPIC, SOURCE = "sinks", "bench/sinks/persistent/source"
ONCE, AGAIN = "exactly once", "at least once"
READ, APPEND, PARQUET = "none: the rows are read", "append_batch in one process", "Parquet, by Spark"
DELTA, PARQUET_TABLE = "Delta by ingest, from a stream", "Parquet by Spark, from a stream"
FEW_ROWS, WARM_BATCHES, PATIENCE_S = 10, 10, 300.0

Work = Callable[[int], object]  # writes all rows; it is told the turn
Follow = Callable[["DataStreamWriter"], "DataStreamWriter"]


@dataclass(frozen=True)
class Round:
    seconds: float
    cpu_s: float
    servers_cpu_s: float


@dataclass(frozen=True)
class FewRows:
    """Of batches with few rows: how long each was with its sink, and what it cost."""

    name: str
    add_batch_ms: list[float]
    cpu_ms: float
    servers_cpu_ms: float


class Bench:
    """The clusters, the session, and the rows."""

    def __init__(self, state: DevState, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark, self.folder, self.rows, self.uri = spark, folder, rows, state.uri
        self.name_server = str(state.name_server)
        self.servers = [node.process.pid for node in state.nodes if node.process is not None]
        self._values = [os.urandom(PAYLOAD_BYTES) for _ in range(ROWS_AT_ONCE)]
        write_rows(folder / "rows", self._values, rows)
        with sync.topics(self.name_server) as mq:
            mq.producer("bench").send(TOPIC, b"0")  # which makes the topic
        asyncio.run(self.append(SOURCE))

    def works(self) -> dict[str, Work]:
        """What is measured, by name."""
        found: dict[str, Work] = {}
        for delivery in (ONCE, AGAIN):
            found[f"stream, {delivery}"] = self._writing("tally-stream", delivery)
        found[APPEND] = lambda turn: asyncio.run(self.append(f"bench/sinks/persistent/append-{turn}"))
        for delivery in (ONCE, AGAIN):
            found[f"topic, {delivery}"] = self._writing("tally-topic", delivery)
        found[PARQUET] = lambda turn: self._frame("value").write.parquet(str(self.folder / f"parquet-{turn}"))
        found[READ] = lambda turn: self._frame("value").write.format("noop").mode("overwrite").save()
        found[DELTA], found[PARQUET_TABLE] = self._ingest, self._follow_to_parquet
        return found

    def _frame(self, column: str) -> Any:
        return self.spark.read.parquet(str(self.folder / "rows")).selectExpr(f"value AS {column}")

    def _writing(self, name: str, delivery: str) -> Work:
        options, column = self.options(name, delivery)

        def write(turn: int) -> None:
            who = {"txnAppId": "bench", "txnVersion": str(turn)} if delivery == ONCE else {}
            self._frame(column).write.format(name).options(**options, **who).mode("append").save()

        return write

    def options(self, name: str, delivery: str) -> tuple[dict[str, str], str]:
        """Options of a sink, and the column that it wants."""
        said = delivery.replace(" ", "-")
        if name == "tally-topic":
            return {"nameServer": self.name_server, "topic": TOPIC, "delivery": said}, "body"
        return {"uri": self.uri, "stream": f"bench/sinks/persistent/{said}", "delivery": said}, "value"

    async def append(self, name: str) -> None:
        """The same rows, without Spark."""
        messages, pending = list(map(OutMessage, self._values)), deque[asyncio.Task[object]]()
        async with tallystick.connect(self.uri) as bk, bk.open_stream(name) as stream:
            for start in range(0, self.rows, BATCH_ROWS):
                at = start % ROWS_AT_ONCE
                pending.append(asyncio.create_task(stream.append_batch(messages[at : at + BATCH_ROWS])))
                if len(pending) > IN_FLIGHT:
                    await pending.popleft()
            await asyncio.gather(*pending)

    def _ingest(self, turn: int) -> None:
        folder = self.folder / f"delta-{turn}"
        tallystick.spark.ingest(
            self.spark,
            options={"uri": self.uri, "subscribe": SOURCE},
            target=f"delta:{folder}/table",
            application="bench",
            checkpoint=f"{folder}/checkpoint",
            settings=IngestSettings(schema="raw", trigger="available-now", compact_every=0),
        ).wait()

    def _follow_to_parquet(self, turn: int) -> None:
        folder = self.folder / f"files-{turn}"
        options = {"uri": self.uri, "subscribe": SOURCE, "startingOffsets": "earliest"}
        rows = self.spark.readStream.format("tally-stream").options(**options).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start(f"{folder}/table").awaitTermination()

    def few_rows(self, batches: int) -> list[FewRows]:
        """Of each sink, and of none. The first round warms: a JVM takes hundreds of batches to compile what they do."""
        results: list[FewRows] = []
        for turn in range(2):
            for number, (name, column, follow) in enumerate(self._followers()):
                rate = self.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=FEW_ROWS, numPartitions=2)
                frame = rate.load().selectExpr(f"CAST(value AS STRING) AS {column}")
                checkpoint = str(self.folder / f"few-{number}")
                one = self._few(name, follow(frame.writeStream.option("checkpointLocation", checkpoint)), batches)
                print(one, file=sys.stderr, flush=True)
                if turn:
                    results.append(one)
        return results

    def _followers(self) -> list[tuple[str, str, Follow]]:
        def sink(name: str, delivery: str) -> tuple[str, Follow]:
            options, column = self.options(name, delivery)
            if name == "tally-stream":
                options["stream"] += "-few"
            return column, lambda writer: writer.format(name).options(**options)

        found: list[tuple[str, str, Follow]] = []
        for name in ("tally-stream", "tally-topic"):
            for delivery in (ONCE, AGAIN):
                found.append((f"{name.removeprefix('tally-')}, {delivery}", *sink(name, delivery)))
        files = str(self.folder / "few-files")
        found.append((PARQUET, "value", lambda writer: writer.format("parquet").option("path", files)))
        return [*found, ("none", "value", lambda writer: writer.format("noop"))]

    def _few(self, name: str, writer: DataStreamWriter, batches: int) -> FewRows:
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            first = self._wait_for(query, self._wait_for(query, 0) + WARM_BATCHES)
            ours, theirs = self._cpu()
            last = self._wait_for(query, first + batches)
            ours, theirs = (after - before for after, before in zip(self._cpu(), (ours, theirs), strict=True))
            progress = [each for each in query.recentProgress if first < each["batchId"] <= last]
        finally:
            query.stop()
        count = last - first
        took = [float(each["durationMs"]["addBatch"]) for each in progress]
        return FewRows(name, took, ours / count * 1000, theirs / count * 1000)

    def _wait_for(self, query: Any, batch: int) -> int:
        """The batch that is finished then."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= batch:
                return int(progress["batchId"])
            if not query.isActive or time.monotonic() > deadline:
                raise TimeoutError(f"the query has no batch {batch}: {query.exception()}")
            time.sleep(0.02)

    def run(self, work: Work, turn: int) -> Round:
        start, (ours, theirs) = time.monotonic(), self._cpu()
        work(turn)
        seconds, (ours_after, theirs_after) = time.monotonic() - start, self._cpu()
        return Round(seconds, ours_after - ours, theirs_after - theirs)

    def _cpu(self) -> tuple[float, float]:
        return tree_cpu_seconds(os.getpid(), self.servers), sum(map(cpu_seconds, self.servers))


def write_rows(folder: Path, values: list[bytes], rows: int) -> None:
    """A file for each partition, not compressed: what random bytes are worth."""
    folder.mkdir()
    table = pa.table({"value": pa.array(values, pa.binary())})
    for number in range(PARTITIONS):
        path = folder / f"{number}.parquet"
        with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(rows // PARTITIONS // len(values)):
                writer.write_table(table)


def measure(quick: bool) -> command.Results:
    rows, rounds, batches = (100_000, 2, 30) if quick else (400_000, 5, 80)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = DevCluster(str(Path(folder) / "cluster"))
        state = cluster.up(3, "1+1")
        stack.callback(cluster.down)
        conf = {"spark.driver.memory": "2g", "spark.sql.files.maxPartitionBytes": "4g"}
        spark = counted_session(f"local[{PARTITIONS}]", **conf)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        bench = Bench(state, spark, Path(folder), rows)
        few = bench.few_rows(batches)
        results: dict[str, list[Round]] = {name: [] for name in bench.works()}
        for turn in range(rounds + 1):
            for name, work in bench.works().items():
                one = bench.run(work, turn)
                print(f"{name}: {one}", file=sys.stderr, flush=True)
                if turn:
                    results[name].append(one)
    machine = describe(Path(tempfile.gettempdir()))
    return {"machine": machine, "load": load, "rows": rows, "rounds": results, "few": few}


def markdown(results: command.Results) -> str:
    machine, rows = results["machine"], results["rows"]
    head = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; load of {results['load']:.1f} "
        f"before; {rows:,} rows of 1 KB."
    )
    return f"{head}\n\n{table(results['rounds'], rows * PAYLOAD_BYTES)}\n\n{few_table(results['few'])}"


def table(results: dict[str, list[Round]], size: int) -> str:
    titles = ("sink", "MB/s", "CPU-s per GB", "servers' CPU-s per GB", "CPU of all beside at least once", "time")
    rows = []
    for name, rounds in results.items():
        seconds = statistics.median(one.seconds for one in rounds)
        cpu, servers = (statistics.median(costs) / size * 1e9 for costs in _costs(rounds))
        cells = [name, f"{size / seconds / 1e6:.0f}", f"{cpu:.2f}", f"{servers:.2f}", "", ""]
        if name.endswith(ONCE):
            other = results[name.replace(ONCE, AGAIN)]
            cells[4] = f"{_total(rounds) / _total(other):.2f}"
            cells[5] = f"{seconds / statistics.median(one.seconds for one in other):.2f}"
        rows.append(cells)
    return grid(titles, rows)


def _costs(rounds: list[Round]) -> tuple[list[float], list[float]]:
    return [one.cpu_s for one in rounds], [one.servers_cpu_s for one in rounds]


def _total(rounds: list[Round]) -> float:
    return statistics.median(one.cpu_s + one.servers_cpu_s for one in rounds)


def few_table(few: list[FewRows]) -> str:
    titles = (f"sink of batches of {FEW_ROWS} rows", "ms a batch, p50", "p90", "CPU ms", "servers' CPU ms")
    rows = []
    for each in few:
        p90 = statistics.quantiles(each.add_batch_ms, n=10)[-1]
        figures = (statistics.median(each.add_batch_ms), p90, each.cpu_ms, each.servers_cpu_ms)
        rows.append([each.name, *(f"{figure:.0f}" for figure in figures)])
    return grid(titles, rows)


def main() -> int:
    return command.run(__doc__, "fewer rows, rounds and batches: two minutes", measure, markdown, place="sinks")


if __name__ == "__main__":
    sys.exit(main())
