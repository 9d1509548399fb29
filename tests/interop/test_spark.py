"""Spark over the original's bookies, with the metadata on a real ZooKeeper: what it follows, writes and reads there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clusters import Cluster
from support.shell import Shell
from support.spark_sessions import session
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SOURCE, COPY = "interop/spark/persistent/in", "interop/spark/persistent/copy"
SHORT = StreamSettings(max_entries_per_ledger=40)
ROUND = 100  # rows that are appended at a time


@pytest.fixture(scope="module")
def spark(java: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session("local[2]", tmp_path_factory.mktemp("warehouse")) as started:
        yield started


@pytest.fixture
def cluster(clusters: Callable[[str], Cluster]) -> Cluster:
    return clusters("java")


@pytest.mark.rule("Q10", "Q18")
def test_a_query_follows_a_stream_on_original_bookies_and_copies_it_once_onto_them(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    written: list[bytes] = []
    with sync.connect(cluster.uri) as bk, bk.open_stream(SOURCE, settings=SHORT) as stream:

        def append() -> None:
            some = [b"%05d" % number for number in range(len(written), len(written) + ROUND)]
            for value in some:
                stream.append(value)
            written.extend(some)

        append()
        query = _copy(spark, cluster.uri, tmp_path)
        append()  # it is under way
        query.processAllAvailable()
        append()
        _copies(bk, query, len(written))
        query.stop()
        append()
        again = _copy(spark, cluster.uri, tmp_path)  # from its checkpoint
        again.processAllAvailable()
        _copies(bk, again, len(written))
        again.stop()
        assert sorted(_values(bk, COPY)) == written
        assert bk.sweep_sinks(COPY) == []
        _as_the_original_reads_them(spark, cluster, bk)


def _copy(spark: SparkSession, uri: str, folder: Path) -> StreamingQuery:
    options = {"uri": uri, "subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    rows = spark.readStream.format("tally-stream").options(**options, minPartitions="2").load()
    sink = rows.select("value").writeStream.format("tally-stream").options(uri=uri, application="copier")
    return sink.option("checkpointLocation", str(folder / "checkpoint")).start(COPY)


def _copies(bk: sync.BookKeeper, query: StreamingQuery, count: int) -> None:
    """Wait until the copy has so many rows: an owner says a moment after its last append that it is confirmed."""
    while len(_values(bk, COPY)) < count:
        query.processAllAvailable()


def _values(bk: sync.BookKeeper, name: str) -> list[bytes]:
    with bk.read_stream(name) as reader:
        return [message.data for message in reader.read()]


def _as_the_original_reads_them(spark: SparkSession, cluster: Cluster, bk: sync.BookKeeper) -> None:
    """Rows of ``tally-ledger`` have the bytes that the original's shell reads of the same ledgers."""
    with bk.read_stream(COPY) as reader:
        ledgers = sorted({message.position.ledger for message in reader.read()})
    first, last = ledgers[0], ledgers[-1]
    read = spark.read.format("tally-ledger").options(uri=cluster.uri, ledgers=f"{first},{last}").load()
    entries = read.orderBy("ledger", "entry").collect()
    shell = Shell(cluster.java, cluster.uri, cluster.folder / "spark-shell")
    for ledger in (first, last):
        assert "CLOSED" in asyncio.run(shell.run("ledgermetadata", "-ledgerid", str(ledger)))
        printed = asyncio.run(shell.run("-entryformat", "hex", "readledger", "-ledgerid", str(ledger), "-msg"))
        hexadecimal = re.findall(r"^[0-9A-F]{8} ((?:[0-9A-F]{2} ){1,16})", printed, re.MULTILINE)
        own = [bytes(entry.payload) for entry in entries if entry.ledger == ledger]
        assert own and bytes.fromhex("".join(hexadecimal)) == b"".join(own)
