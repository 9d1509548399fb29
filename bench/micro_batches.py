"""How long it takes until what is appended is visible in a streaming query: in rows that its sink has.

    python bench/micro_batches.py [--quick] [--json FILE] [--docs FILE]

One local session with two cores, three bookies, a master and its slave on this machine. A producer appends a message
some times a second, each with the time in it; the query's sink, ``foreachBatch``, collects the rows of each batch and
looks at the clock. A trigger follows the one before at once. The first seconds warm and do not count.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command
from machine import describe
from report import grid

import tallystick.spark
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.admin.dev_nodes import DevState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM, TOPIC = "bench/latency/persistent/followed", "latency"
RATE = 20  # messages a second
PATIENCE_S = 300.0

Append = Callable[[bytes], object]


@dataclass(frozen=True)
class Latencies:
    """Of messages, and how long batches took, in ms."""

    name: str
    ms: list[float]
    batch_ms: list[float]


def main() -> int:
    return command.run(__doc__, "ten seconds each instead of sixty", measure, markdown, place="micro-batches")


def measure(quick: bool) -> command.Results:
    warm_s, seconds, load = (10.0, 10.0, os.getloadavg()[0]) if quick else (30.0, 60.0, os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = DevCluster(folder)
        state = cluster.up(3, "1+1")
        stack.callback(cluster.down)
        spark = tallystick.spark.session("local[2]", **{"spark.driver.memory": "2g"})
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        results = [
            latencies(name, frame, append, Path(folder) / name, warm_s, seconds)
            for name, frame, append in followed(spark, state, stack)
        ]
    return {"machine": describe(Path(tempfile.gettempdir())), "load": load, "rate": RATE, "latencies": results}


def followed(spark: SparkSession, state: DevState, stack: ExitStack) -> list[tuple[str, DataFrame, Append]]:
    """What is measured: a name, the values of a query, and who appends one."""
    bk = stack.enter_context(sync.connect(state.uri))
    writer = stack.enter_context(bk.create_ledger(3, write_quorum=2, ack_quorum=2))
    stream = stack.enter_context(bk.open_stream(STREAM))
    producer = stack.enter_context(sync.topics(str(state.name_server))).producer("bench")
    producer.send(TOPIC, b"0")  # which makes the topic
    by_uri, by_name = {"uri": state.uri}, {"nameServer": str(state.name_server)}

    def frame(format_name: str, column: str, **options: str) -> DataFrame:
        return spark.readStream.format(format_name).options(**options).load().select(column)

    return [
        ("ledger", frame("tally-ledger", "payload", ledgers=str(writer.id), **by_uri), writer.append),
        ("stream", frame("tally-stream", "value", subscribe=STREAM, **by_uri), stream.append),
        ("topic", frame("tally-topic", "body", subscribe=TOPIC, **by_name), lambda data: producer.send(TOPIC, data)),
    ]


def latencies(name: str, frame: DataFrame, append: Append, folder: Path, warm_s: float, seconds: float) -> Latencies:
    seen: list[tuple[float, float]] = []  # when each was appended, and how long it took

    def visible(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        now = time.time()
        seen.extend((float(row[0]), now - float(row[0])) for row in rows)

    writer = frame.writeStream.foreachBatch(visible).option("checkpointLocation", str(folder))
    query = writer.trigger(processingTime="0 seconds").start()
    deadline = time.monotonic() + PATIENCE_S
    while not seen:  # the query is there
        append(repr(time.time()).encode())
        time.sleep(1 / RATE)
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing is visible: {query.exception()}")
    start = time.time()
    while (now := time.time()) < start + warm_s + seconds:
        append(repr(now).encode())
        time.sleep(max(now + 1 / RATE - time.time(), 0.0))
    last = time.time()
    while max(at for at, _ in list(seen)) < last - 2 / RATE and time.monotonic() < deadline:
        time.sleep(0.1)
    progress: list[Any] = list(query.recentProgress)
    query.stop()
    counted = [took * 1000 for at, took in seen if at >= start + warm_s]
    batches = [float(each["batchDuration"]) for each in progress[len(progress) // 2 :] if each["numInputRows"]]
    print(f"{name}: {statistics.median(counted):.0f} ms of {len(counted)}", file=sys.stderr, flush=True)
    return Latencies(name, counted, batches)


def markdown(results: command.Results) -> str:
    machine = results["machine"]
    head = (
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}; load of {results['load']:.1f}; "
        f"{results['rate']} messages a second."
    )
    rows = []
    for each in results["latencies"]:
        percentiles = statistics.quantiles(each.ms, n=100)
        figures = (percentiles[49], percentiles[98], max(each.ms), statistics.median(each.batch_ms))
        rows.append([each.name, str(len(each.ms)), *(f"{figure:.0f}" for figure in figures)])
    titles = ("followed", "messages", "visible after ms, p50", "p99", "longest", "a batch takes ms, p50")
    return f"{head}\n\n{grid(titles, rows)}"


if __name__ == "__main__":
    sys.exit(main())
