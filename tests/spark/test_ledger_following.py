"""Streaming queries of ledgers on local[2], against real bookies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import secret_file
from support.spark_failures import failure_of
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.pipeline.ledger.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

PATIENCE_S = 120.0


class Query:
    """Starts a query of one checkpoint and one table of Parquet, again and again."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path) -> None:
        self._spark, self._uri, self._folder = spark, uri, folder

    def start(self, ledgers: object, /, *, available_now: bool = False, **options: object) -> StreamingQuery:
        named = {"ledgers": ledgers, "startingOffsets": "earliest", **options}
        texts = {name: str(value) for name, value in named.items()}
        frame = self._spark.readStream.format("tally-ledger").options(uri=self._uri, **texts).load()
        writer = frame.writeStream.format("parquet").option("path", str(self._folder / "table"))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "50 milliseconds"}
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(**trigger).start()

    def run(self, ledgers: object, /, **options: object) -> StreamingQuery:
        """All that there is now."""
        query = self.start(ledgers, available_now=True, **options)
        query.awaitTermination()
        return query

    def payloads(self) -> list[bytes]:
        if not (self._folder / "table" / "_spark_metadata").exists():
            return []
        table = self._spark.read.schema(COLUMNS.struct(COLUMNS.names)).parquet(str(self._folder / "table"))
        return [bytes(row.payload) for row in table.orderBy("ledger", "entry").collect()]

    @property
    def last_log(self) -> Path:
        """Where the checkpoint has the offset of the last batch that was begun."""
        logs = (self._folder / "checkpoint" / "offsets").glob("[0-9]*")
        return max(logs, key=lambda path: int(path.name))

    def offset(self) -> dict[str, Any]:
        offset: dict[str, Any] = json.loads(self.last_log.read_text().splitlines()[-1])
        return offset


@pytest.fixture
def query(spark: SparkSession, uri: str, tmp_path: Path) -> Query:
    return Query(spark, uri, tmp_path)


def wait_until(condition: Callable[[], object], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline
        time.sleep(0.1)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, end)]


def test_a_query_follows_a_ledger_that_loses_a_bookie_and_is_closed(
    bookies: DevCluster, bk: sync.BookKeeper, query: Query
) -> None:
    with bk.create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
        writer.append_batch(numbers(0, 20))
        running = query.start(writer.id, maxOffsetsPerTrigger=15)
        try:
            wait_until(lambda: query.payloads() == numbers(0, 20), running)
            name = writer.metadata.fragments[-1].bookies[0]
            bookies.kill([name])
            try:
                writer.append_batch(numbers(20, 50))
                wait_until(lambda: query.payloads() == numbers(0, 50), running)
            finally:
                bookies.restart([name])
            assert len(writer.metadata.fragments) > 1
        finally:
            running.stop()
        writer.append_batch(numbers(50, 60))
    running = query.run(writer.id, maxOffsetsPerTrigger=4)
    assert query.payloads() == numbers(0, 60)
    latest = json.loads(running.recentProgress[0]["sources"][0]["latestOffset"])
    assert latest["l"]["next"] == {str(writer.id): 60} and 0 <= latest["lag"]["rows"] <= 6
    assert latest["lag"]["bytes"] == 4 * latest["lag"]["rows"]
    assert query.offset() == {"v": 1, "l": {"next": {}, "read": [[writer.id, writer.id]]}}


def test_a_ledger_that_is_deleted_in_the_middle(bk: sync.BookKeeper, query: Query) -> None:
    with bk.create_ledger(3) as gone:
        gone.append_batch(numbers(0, 20))
    with bk.create_ledger(3) as writer:
        writer.append_batch(numbers(100, 110))
        span = f"{gone.id}-{writer.id}"
        running = query.start(span, maxOffsetsPerTrigger=4)
        wait_until(lambda: len(query.payloads()) >= 4, running)
        running.stop()
        bk.delete_ledger(gone.id)
        text = failure_of(lambda: query.run(span, maxOffsetsPerTrigger=4))
        assert "[TALLY-NO-SUCH-LEDGER]" in text and "rows may be lost; failOnDataLoss=false" in text
    query.run(span, failOnDataLoss="false")
    payloads = query.payloads()
    assert payloads[-10:] == numbers(100, 110) and payloads[:-10] == numbers(0, len(payloads) - 10)


def test_mistakes_are_named(bk: sync.BookKeeper, query: Query) -> None:
    with bk.create_ledger(3) as writer:
        writer.append_batch(numbers(0, 3))
    assert "did you mean maxOffsetsPerTrigger" in failure_of(lambda: query.run(writer.id, maxOffsetPerTrigger=1))
    assert "firstEntry is an option of spark.read" in failure_of(lambda: query.run(writer.id, firstEntry=1))
    assert "startingOffsets is latest, earliest, or JSON" in failure_of(lambda: query.run(writer.id, startingOffsets=5))
    assert "[TALLY-NO-SUCH-LEDGER]" in failure_of(lambda: query.run(123456789))
    query.run(writer.id)
    (query.last_log.parent / f".{query.last_log.name}.crc").unlink(missing_ok=True)
    text = query.last_log.read_text()
    query.last_log.write_text("\n".join([*text.splitlines()[:-1], "rubbish"]))
    undecoded = failure_of(lambda: query.run(writer.id))
    assert "[TALLY-USAGE-ERROR] the checkpoint has an offset of tally-ledger that is no JSON: restore" in undecoded
    assert "offset=rubbish" in undecoded


def test_n10_a_checkpoint_keeps_no_password(bk: sync.BookKeeper, query: Query, tmp_path: Path) -> None:
    secret = "a-password-4093"
    with bk.create_ledger(digest="hmac", password=secret.encode()) as writer:
        writer.append_batch(numbers(0, 5))
        query.run(writer.id, passwordFile=secret_file(tmp_path / "password", secret))
        writer.append_batch(numbers(5, 8))
        running = query.run(writer.id, passwordFile=secret_file(tmp_path / "password", secret))
    assert query.payloads() == numbers(0, 8)
    kept = [file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert kept and not any(secret.encode() in content for content in (*kept, str(running.lastProgress).encode()))
    bk.delete_ledger(writer.id)
