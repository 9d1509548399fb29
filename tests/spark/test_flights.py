"""The demo's tables and queries: JSON entries to typed columns, to a stream of delays, and to a table of Delta."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import data, queries, results, spark_program, verify
from examples.flights.acks import AckedRun
from support.topics import make_topic
from tallystick import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
Write = Callable[..., int]
ROWS = 3000
FEW = 400
PLACE = ["ledger", "entry"]


def test_flights_come_out_as_they_went_in_whatever_the_time_zone(
    spark: SparkSession, uri: str, write: Write, tmp_path: Path
) -> None:
    source, table = data.load(ROWS), tmp_path / "table"
    ledger = write([payload for batch in data.payloads(source, 0, 1000) for payload in batch])
    options = {"uri": uri, "ledgers": str(ledger)}
    order = {"format": "tally-ledger", "options": options, "place": PLACE, "payload": "payload", "table": str(table)}
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Honolulu")
    try:
        spark_program.ingest(spark, order)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = verify.compare(source, pq.read_table(table), verify.LEDGERS, [AckedRun(ledger, 0, 0, ROWS, 0.0)])
    assert found.good and found.rows == ROWS
    first = pq.read_table(table).sort_by("row")["event_time"].cast(pa.timestamp("us"))[0].as_py()
    assert first == datetime(2013, 1, 1, 10, 15)  # UTC


def test_messages_of_a_stream_become_the_same_table(
    bk: sync.BookKeeper, spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    source, table, name = data.load(ROWS), tmp_path / "table", "demo/test/persistent/flights"
    with bk.open_stream(name) as stream:
        for batch in data.payloads(source, 0, 1000):
            appends = [stream.append_nowait(payload) for payload in batch]
            ledger = appends[0].result().ledger
            assert appends[-1].result().ledger == ledger
    options = {"uri": uri, "subscribe": name}
    spark_program.ingest(
        spark, {"format": "tally-stream", "options": options, "place": PLACE, "payload": "value", "table": str(table)}
    )
    found = verify.compare(source, pq.read_table(table), verify.LEDGERS, [AckedRun(ledger, 0, 0, ROWS, 0.0)])
    assert found.good and found.rows == ROWS


def test_the_derived_stream_has_the_delay_of_each_flight_once_though_its_query_is_started_twice(
    bk: sync.BookKeeper, spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    source, name = data.load(FEW), "demo/test/persistent/followed"
    order = {"uri": uri, "source": name, "target": "demo/test/persistent/delays", "batch_rows": FEW // 2}
    with bk.open_stream(name) as stream:
        for batch in data.flights(source, 0, FEW // 2):
            for flight in batch:
                stream.append(flight.data, key=flight.carrier, event_time=flight.scheduled_ms)
            caught_up(queries.derive(spark, {**order, "checkpoint": str(tmp_path / "checkpoint")}))
    derived = results.read_derived(uri, "demo/test/persistent/delays")
    found = results.compare_derived(source, derived.table)
    assert found.good and found.rows == FEW
    assert [commit.rows for commit in derived.commits] == [FEW // 2, FEW // 2]


def test_the_delta_table_has_each_message_of_the_topic_once_though_its_query_is_started_twice(
    spark: SparkSession, name_server: str, tmp_path: Path
) -> None:
    source, topic, acked = data.load(FEW), "demo-flights", []
    order = {"name_server": name_server, "source": topic, "target": str(tmp_path / "table"), "batch_rows": FEW}
    with sync.topics(name_server) as mq:
        make_topic(name_server, topic)
        for number, batch in enumerate(data.payloads(source, 0, FEW // 2)):
            sent = mq.producer("demo").send_batch(topic, batch)
            acked.append(AckedRun(sent.queue.queue_id, sent.queue_offset, number * FEW // 2, FEW // 2, 0.0))
            caught_up(queries.keep(spark, {**order, "checkpoint": str(tmp_path / "checkpoint")}))
    delta = results.read_delta(tmp_path / "table")
    found = verify.compare(source.drop_columns(["event_time"]), delta.table, verify.QUEUES, acked)
    assert found.good and found.rows == FEW and not delta.set_aside
    assert [commit.rows for commit in delta.commits] == [FEW // 2, FEW // 2]


def caught_up(query: StreamingQuery) -> None:
    """Let it read all that there is, and end it."""
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.parametrize("payload", [b'{"row": 1, "year"', b'{"row": "many"}'])
def test_an_entry_that_is_no_flight_fails_the_query_instead_of_becoming_a_row_of_nulls(
    read: Read, write: Write, payload: bytes
) -> None:
    good = next(data.payloads(data.load(1), 0, 1))
    frame = spark_program.typed(read(ledgers=write([*good, payload])), PLACE, "payload")
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        frame.collect()
