"""Through Spark Connect: the session talks to a server, which runs the sources and sinks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings

pytestmark = pytest.mark.spark

# In a process of its own: one that has a classic session cannot have another kind.
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import tallystick.spark

uri, source, sink, folder = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]")
spark = tallystick.spark.register(builder.getOrCreate())
frame = spark.read.format("tally-stream").options(uri=uri, subscribe=source).load()
print(sorted(bytes(row.value).decode() for row in frame.select("value").collect()))
followed = spark.readStream.format("tally-stream").options(uri=uri, subscribe=source, startingOffsets="earliest")
query = followed.load().select("key", "value").writeStream.format("tally-stream").options(uri=uri)
query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(sink)
query.awaitTermination()
frame.limit(3).select("value").write.format("tally-stream").options(
    uri=uri, txnAppId="batches", txnVersion="1"
).mode("append").save(f"{sink}-batch")
"""


def test_a_connect_session_reads_follows_and_writes(bk: sync.BookKeeper, uri: str, tmp_path: Path) -> None:
    values = [b"%03d" % number for number in range(50)]
    with bk.open_stream("connect/a/persistent/in", settings=StreamSettings(max_entries_per_ledger=7)) as stream:
        for value in values:
            stream.append(value, key="k")
    command = [sys.executable, "-c", PROGRAM, uri, "connect/a/persistent/in", "connect/a/persistent/out", str(tmp_path)]
    # The server's Python workers are what finds tallystick; SPARK_TESTING makes it listen on whatever port is free.
    server = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}
    environment = {**os.environ, **server}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[:6000]
    assert done.stdout == f"{[value.decode() for value in values]}\n"
    with bk.read_stream("connect/a/persistent/out") as reader:
        rows = [(message.key, message.data) for message in reader.read()]
    assert sorted(rows) == [(b"k", value) for value in values]
    with bk.read_stream("connect/a/persistent/out-batch") as reader:
        assert len({message.data for message in reader.read()}) == 3
