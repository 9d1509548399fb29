"""A streaming query whose driver is killed, JVM and all, and started again: each row is in its table once, and in a
stream once, or at least once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings

pytestmark = pytest.mark.spark

DRIVER = """
import sys
import tallystick.spark

uri, stream, folder, trigger, sink, delivery = sys.argv[1:]
spark = tallystick.spark.session("local[2]", **{"spark.driver.memory": "1g", "spark.local.dir": folder})
spark.sparkContext.setLogLevel("OFF")
options = {"uri": uri, "subscribe": stream, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40",
           "minPartitions": "2", "cursor": "etl"}
rows = spark.readStream.format("tally-stream").options(**options).load()


def write(batch, number):
    batch.write.mode("overwrite").parquet(f"{folder}/table/batch={number}")  # a batch that comes again is the same


if sink == "table":
    query = rows.writeStream.foreachBatch(write)
else:
    query = rows.select("value").writeStream.format("tally-stream").options(uri=uri, stream=sink, delivery=delivery)
query = query.option("checkpointLocation", f"{folder}/checkpoint")
query = query.trigger(availableNow=True) if trigger == "now" else query.trigger(processingTime="20 milliseconds")
query.start().awaitTermination()
"""
PATIENCE_S = 180.0


@contextmanager
def driver(
    uri: str, name: str, folder: Path, trigger: str, sink: str, delivery: str = "exactly-once"
) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", DRIVER, uri, name, str(folder), trigger, sink, delivery]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its JVM and Python workers, too
        process.wait()


def begun(folder: Path) -> int:
    """How many batches the checkpoint has."""
    return len(list((folder / "checkpoint" / "offsets").glob("[0-9]*")))


def wait_for_lac(bk: sync.BookKeeper, name: str, count: int) -> None:
    """Wait until the stream has told that so many messages are confirmed."""
    deadline = time.monotonic() + PATIENCE_S
    with bk.read_stream(name) as reader:
        while sum(1 for _ in reader.read()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("sink", ["table", "spark/killed/persistent/copy"])
def test_rows_come_once_though_the_driver_is_killed_in_the_middle_of_batches(
    bk: sync.BookKeeper, uri: str, tmp_path: Path, sink: str
) -> None:
    name, values = f"spark/killed/persistent/of-{len(sink)}", [b"%05d" % number for number in range(600)]
    written = 0
    with bk.open_stream(name, settings=StreamSettings(max_entries_per_ledger=30)) as stream:
        for _ in range(3):
            for value in values[written : written + 200]:
                stream.append(value)
            written += 200
            batches = begun(tmp_path)
            with driver(uri, name, tmp_path, "always", sink) as process:
                deadline = time.monotonic() + PATIENCE_S
                while begun(tmp_path) < batches + 3:  # and it is at one now
                    assert process.poll() is None and time.monotonic() < deadline
                    time.sleep(0.01)
        wait_for_lac(bk, name, written)
        with driver(uri, name, tmp_path, "now", sink) as process:
            assert process.wait(PATIENCE_S) == 0
    if sink != "table":
        with bk.read_stream(sink) as reader:
            assert sorted(message.data for message in reader.read()) == values
        assert bk.sweep_sinks(sink) == [], "each commit leaves nothing behind it"
        return
    rows = [row for path in (tmp_path / "table").glob("batch=*") for row in pq.read_table(path).to_pylist()]
    assert sorted(row["value"] for row in rows) == values


def test_no_row_is_lost_though_the_driver_that_owns_the_stream_is_killed(
    bk: sync.BookKeeper, uri: str, tmp_path: Path
) -> None:
    name, sink = "spark/killed/persistent/in", "spark/killed/persistent/owned"
    values = [b"%05d" % number for number in range(200)]
    with bk.open_stream(name) as stream:
        for value in values:
            stream.append(value)
        with driver(uri, name, tmp_path, "always", sink, "at-least-once") as process:
            deadline = time.monotonic() + PATIENCE_S
            while begun(tmp_path) < 3:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
        wait_for_lac(bk, name, len(values))
        with driver(uri, name, tmp_path, "now", sink, "at-least-once") as process:
            assert process.wait(PATIENCE_S) == 0
    with bk.read_stream(sink) as reader:
        rows = [message.data for message in reader.read()]
    assert sorted(set(rows)) == values
    assert len(rows) - len(values) <= 40, "what the batch has in which it was killed"
    with bk.open_stream(sink) as stream:  # nobody has it any more
        listed = {each["ledgerId"] for each in stream.state()["ledgers"]}
    made = [ledger for ledger in bk.ledgers() if metadata_of(bk, ledger).get("pulsar/managed-ledger") == sink.encode()]
    assert listed.issuperset(made)


def metadata_of(bk: sync.BookKeeper, ledger: int) -> Mapping[str, bytes]:
    return bk.ledger_metadata(ledger).custom
