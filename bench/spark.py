"""The Spark source beside what Spark gives any Python function at best: ``mapInArrow`` over ready batches.

    python bench/spark.py [--quick] [--json FILE]

One local session with two cores and three bookies on this machine; the workloads take turns, and medians count. Each
writes to the ``noop`` sink. ``mapInArrow`` yields the same number of equal batches without reading anything, so the
distance to it is what reading, checking and building the batches costs; ``range`` is the JVM alone, as a ruler for how
busy the machine is. CPU is user and system time of the driver with its JVM and Python workers; the bookies' is apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from machine import cpu_seconds, describe

import tallystick.spark
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.bookkeeper.ledger.arrow import SCHEMA
from tallystick.pipeline.columns import BATCH_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
PAYLOAD_BYTES = 1024
APPEND_AT_ONCE = 2000
QUORUMS = {"source, 3/3/2": (3, 3, 2), "source, striped 3/2/2": (3, 2, 2)}
CEILING, RULER = "mapInArrow of ready batches", "range, JVM only"


@dataclass(frozen=True)
class Round:
    rows_per_s: float
    cpu_s_per_gb: float  # of payload
    bookies_cpu_s_per_gb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds: about a minute")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    arguments = parser.parse_args()
    rows, rounds = (100_000, 2) if arguments.quick else (400_000, 5)
    with tempfile.TemporaryDirectory() as folder:
        cluster = DevCluster(folder)
        state = cluster.up(3)
        try:
            bookies = [bookie.process.pid for bookie in state.bookies]
            spark = tallystick.spark.session(f"local[{PARTITIONS}]", **{"spark.driver.memory": "2g"})
            spark.sparkContext.setLogLevel("ERROR")
            found = measure(workloads(spark, state.uri, rows), rows, rounds, bookies)
            spark.stop()
        finally:
            cluster.down()
    print(table(found))
    if arguments.json:
        report = {"machine": describe(Path(tempfile.gettempdir())), "rows": rows, "payload_bytes": PAYLOAD_BYTES}
        report["rounds"] = {name: [asdict(one) for one in each] for name, each in found.items()}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def workloads(spark: SparkSession, uri: str, rows: int) -> dict[str, DataFrame]:
    """What is measured, by name."""
    found: dict[str, DataFrame] = {}
    for name, quorums in QUORUMS.items():
        ledger = write_ledger(uri, rows, quorums)
        options = {"uri": uri, "ledgers": str(ledger), "minPartitions": str(PARTITIONS)}
        found[name] = spark.read.format("tally-ledger").options(**options).load()
    columns = "ledger bigint, entry bigint, lac bigint, length bigint, payload binary"
    seeds = spark.range(PARTITIONS, numPartitions=PARTITIONS)
    found[CEILING] = seeds.mapInArrow(ready_batches(rows // PARTITIONS), columns)
    found[RULER] = spark.range(rows, numPartitions=PARTITIONS).selectExpr(
        "id AS ledger", "id AS entry", "id AS lac", "id AS length", f"binary(repeat('x', {PAYLOAD_BYTES})) AS payload"
    )
    return found


def write_ledger(uri: str, rows: int, quorums: tuple[int, int, int]) -> int:
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(APPEND_AT_ONCE)]
    with sync.connect(uri) as bk, bk.create_ledger(*quorums) as writer:
        for _ in range(rows // APPEND_AT_ONCE):
            writer.append_batch(payloads)
        return writer.id


def ready_batches(rows: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow that gives ``rows`` rows in batches as large as the source's."""
    at_once = BATCH_BYTES // PAYLOAD_BYTES
    schema = pa.schema([field.with_nullable(True) for field in SCHEMA])

    def give(seeds: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers, payloads = pa.array(range(at_once), pa.int64()), pa.array([os.urandom(PAYLOAD_BYTES)] * at_once)
        batch = pa.RecordBatch.from_arrays([numbers] * 4 + [payloads], schema=schema)
        for _ in seeds:
            for start in range(0, rows, at_once):
                yield batch.slice(0, min(at_once, rows - start))

    return give


def measure(frames: dict[str, DataFrame], rows: int, rounds: int, bookies: list[int]) -> dict[str, list[Round]]:
    """All workloads in turn; the first turn warms the JVM, the workers and the page cache, and does not count."""
    found: dict[str, list[Round]] = {name: [] for name in frames}
    for turn in range(rounds + 1):
        for name, frame in frames.items():
            one = run(frame, rows, bookies)
            if turn:
                found[name].append(one)
    return found


def run(frame: DataFrame, rows: int, bookies: list[int]) -> Round:
    gigabytes = rows * PAYLOAD_BYTES / 1e9
    started, ours, theirs = time.monotonic(), tree_cpu_seconds(os.getpid(), bookies), sum(map(cpu_seconds, bookies))
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - started
    return Round(
        rows / seconds,
        (tree_cpu_seconds(os.getpid(), bookies) - ours) / gigabytes,
        (sum(map(cpu_seconds, bookies)) - theirs) / gigabytes,
    )


def tree_cpu_seconds(root: int, but: list[int]) -> float:
    """User and system time of a process and all below it, those that have ended included, some left out."""
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


def table(found: dict[str, list[Round]]) -> str:
    lines = [
        "| workload | krows/s | MB/s | CPU µs per row | CPU-s per GB | bookies' CPU-s per GB | CPU beside mapInArrow |",
        "|---|" + "---|" * 6,
    ]
    ceiling = statistics.median(one.cpu_s_per_gb for one in found[CEILING])
    for name, each in found.items():
        rate = statistics.median(one.rows_per_s for one in each)
        cpu = statistics.median(one.cpu_s_per_gb for one in each)
        bookies = statistics.median(one.bookies_cpu_s_per_gb for one in each)
        lines.append(
            f"| {name} | {rate / 1e3:.0f} | {rate * PAYLOAD_BYTES / 1e6:.0f} | {cpu * PAYLOAD_BYTES / 1e3:.2f} "
            f"| {cpu:.2f} | {bookies:.2f} | {cpu / ceiling:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
