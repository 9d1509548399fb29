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
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry

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


def entry_of(number: int, payload: bytes) -> bytes:
    message = OutMessage(payload, "UA", 1357035300000)
    return encode_entry([message], producer="flights", sequence=number, publish_time_ms=1_700_000_000_000)


def test_messages_of_a_stream_come_out_of_its_entries(
    spark: SparkSession, uri: str, write: Write, tmp_path: Path
) -> None:
    source, table = data.load(ROWS), tmp_path / "table"
    payloads = [payload for batch in data.payloads(source, 0, 1000) for payload in batch]
    ledger = write([entry_of(number, payload) for number, payload in enumerate(payloads)])
    options = {"uri": uri, "ledgers": str(ledger)}
    order = {"format": "tally-ledger", "options": options, "place": PLACE, "payload": "payload", "table": str(table)}
    ingest.ingest(spark, {**order, "messages": True})
    found = verify.compare(source, table, verify.LEDGERS, [AckedRun(ledger, 0, 0, ROWS, 0.0)])
    assert found.good and found.rows == ROWS


def test_an_entry_that_is_no_message_fails_the_query(read: Read, write: Write) -> None:
    payload = next(data.payloads(data.load(1), 0, 1))[0]
    entry = entry_of(0, payload)
    frame = ingest.opened(read(ledgers=write([entry, entry[:-1] + b"]"])), PLACE, "payload")
    with pytest.raises(Exception, match="CorruptEntry"):
        frame.collect()


@pytest.mark.parametrize("payload", [b'{"row": 1, "year"', b'{"row": "many"}'])
def test_an_entry_that_is_no_flight_fails_the_query_instead_of_becoming_a_row_of_nulls(
    read: Read, write: Write, payload: bytes
) -> None:
    good = next(data.payloads(data.load(1), 0, 1))
    frame = ingest.typed(read(ledgers=write([*good, payload])), PLACE, "payload")
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        frame.collect()
