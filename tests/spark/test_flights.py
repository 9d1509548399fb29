"""The demo's table: JSON entries to typed columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import data, ingest, verify
from examples.flights.acks import AckedRun
from tallystick import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
Write = Callable[..., int]
ROWS = 3000
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
        ingest.ingest(spark, order)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = verify.compare(source, table, verify.LEDGERS, [AckedRun(ledger, 0, 0, ROWS, 0.0)])
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
    ingest.ingest(
        spark, {"format": "tally-stream", "options": options, "place": PLACE, "payload": "value", "table": str(table)}
    )
    found = verify.compare(source, table, verify.LEDGERS, [AckedRun(ledger, 0, 0, ROWS, 0.0)])
    assert found.good and found.rows == ROWS


@pytest.mark.parametrize("payload", [b'{"row": 1, "year"', b'{"row": "many"}'])
def test_an_entry_that_is_no_flight_fails_the_query_instead_of_becoming_a_row_of_nulls(
    read: Read, write: Write, payload: bytes
) -> None:
    good = next(data.payloads(data.load(1), 0, 1))
    frame = ingest.typed(read(ledgers=write([*good, payload])), PLACE, "payload")
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        frame.collect()
