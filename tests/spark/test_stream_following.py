"""Streaming queries of streams on local[2], against real bookies."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.process_tree import command_of, descendants
from support.spark_failures import failure_of
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.pipeline.stream.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()
PATIENCE_S = 120.0


@pytest.fixture
def name() -> str:
    """A stream of its own for each test."""
    return f"spark/following/persistent/t{next(_NUMBERS)}"


class Query:
    """Starts a query of one checkpoint and one table of Parquet, again and again."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path) -> None:
        self._spark, self._uri, self._folder = spark, uri, folder

    def start(self, subscribe: str, /, *, available_now: bool = False, **options: object) -> StreamingQuery:
        """Of a stream, or those of a pattern with a star."""
        named = {"subscribePattern" if "*" in subscribe else "subscribe": subscribe, "startingOffsets": "earliest"}
        texts = {**named, **{name: str(value) for name, value in options.items()}}
        frame = self._spark.readStream.format("tally-stream").options(uri=self._uri, **texts).load()
        writer = frame.writeStream.format("parquet").option("path", str(self._folder / "table"))
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "50 milliseconds"}
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(**trigger).start()

    def run(self, subscribe: str, /, **options: object) -> StreamingQuery:
        """All that there is now."""
        query = self.start(subscribe, available_now=True, **options)
        query.awaitTermination()
        return query

    def rows(self) -> list[Any]:
        if not (self._folder / "table" / "_spark_metadata").exists():
            return []
        table = self._spark.read.schema(COLUMNS.struct(COLUMNS.names)).parquet(str(self._folder / "table"))
        return table.orderBy("stream", "ledger", "entry").collect()

    def values(self) -> list[bytes]:
        return [bytes(row.value) for row in self.rows()]

    def offsets(self) -> list[dict[str, Any]]:
        """What the checkpoint has of each batch that was begun."""
        logs = sorted((self._folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logs]


@pytest.fixture
def query(spark: SparkSession, uri: str, tmp_path: Path) -> Query:
    return Query(spark, uri, tmp_path)


def wait_until(condition: Callable[[], object], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if query is not None and (error := query.exception()) is not None:
            raise error
        assert time.monotonic() < deadline
        time.sleep(0.1)


def numbers(count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(count)]


def wait_for_rows(count: int, query: Query, running: StreamingQuery) -> None:
    wait_until(lambda: len(query.values()) >= count, running)


def test_a_query_follows_a_stream_over_its_ledgers(bk: sync.BookKeeper, query: Query, name: str) -> None:
    values = numbers(30)
    with bk.open_stream(name, settings=StreamSettings(max_entries_per_ledger=7)) as stream:
        for value in values[:5]:
            stream.append(value)
        running = query.start(name)
        for value in values[5:]:
            stream.append(value)
        try:
            wait_until(lambda: running.lastProgress and query.values() == values, running)
        finally:
            running.stop()
    assert [list(offset) for offset in query.offsets()] == [["v", "s"]] * len(query.offsets())
    assert query.offsets()[-1]["v"] == 1 and list(query.offsets()[-1]["s"]) == [name]


def test_available_now_reads_what_there_is_and_goes_on_with_the_next_run(
    bk: sync.BookKeeper, query: Query, name: str
) -> None:
    values = numbers(50)
    with bk.open_stream(name, settings=StreamSettings(max_entries_per_ledger=9)) as stream:
        for value in values[:20]:
            stream.append(value)
        stream.roll_over()
        query.run(name, maxOffsetsPerTrigger=6)
        assert query.values() == values[:20]
        assert len(query.offsets()) >= 4
        for value in values[20:]:
            stream.append(value)
    query.run(name)
    assert query.values() == values


def test_rows_come_once_though_the_query_is_stopped_among_roll_overs_and_trims(
    bk: sync.BookKeeper, query: Query, name: str
) -> None:
    values = numbers(240)
    settings = StreamSettings(max_entries_per_ledger=10, retention_s=0.0, retention_bytes=0)
    with bk.open_stream(name, settings=settings) as stream, bk.cursor(name, "behind") as cursor:
        for part in range(4):
            running = query.start(name, maxOffsetsPerTrigger=7)
            for value in values[60 * part : 60 * (part + 1)]:
                stream.append(value)
            wait_for_rows(60 * part + 20, query, running)
            running.stop()  # in whatever it is at
            cursor.ack_up_to(query.rows()[-1].position)  # all that was read may go
            stream.trim()
    query.run(name)
    assert query.values() == values
    assert len({row.ledger for row in query.rows()} - set(bk.ledgers())) > 10 and len(query.offsets()) > 30


def test_a_stream_that_ends_beside_its_query_and_is_made_anew(bk: sync.BookKeeper, query: Query, name: str) -> None:
    """Its end is no error; another stream of its name is, whatever it has."""
    settings = StreamSettings(retention_s=0.0, retention_bytes=0)
    with bk.open_stream(name, settings=settings) as stream:
        running = query.start(name)
        for value in numbers(3):
            stream.append(value)
        wait_for_rows(3, query, running)
        stream.roll_over()
        stream.trim()
        for value in numbers(5)[3:]:
            stream.append(value)
        stream.terminate()
    wait_for_rows(5, query, running)
    wait_until(lambda: running.lastProgress and running.lastProgress["numInputRows"] == 0, running)
    bk.delete_stream(name)
    with bk.open_stream(name, settings=settings) as stream:
        stream.append(b"another's")
        text = failure_of(lambda: wait_until(lambda: False, running))
    assert "rows may be lost" in text and f"stream={name}" in text and query.values() == numbers(5)


def test_limits_of_a_batch_hold_together(bk: sync.BookKeeper, query: Query, name: str) -> None:
    """By bytes and by entries, whichever is fewer; a few entries wait for more, and not for long."""
    with bk.open_stream(name) as stream:
        for value in numbers(40):
            stream.append(value * 250)  # 1,000 bytes
        query.run(name, maxBytesPerTrigger="5k", maxOffsetsPerTrigger=30)
        ends = [offset["s"][name][1] for offset in query.offsets()]
        assert ends[-1] == 40 and len(ends) >= 8 and max(b - a for a, b in itertools.pairwise([0, *ends])) <= 6
        query.run(name)
        begun = len(query.offsets())
        running = query.start(name, minOffsetsPerTrigger=10, maxTriggerDelay="4s")
        for value in numbers(3):
            stream.append(value)
        wait_for_rows(43, query, running)
        for value in numbers(12):
            stream.append(value)
        wait_for_rows(55, query, running)
        running.stop()
    assert len(query.offsets()) - begun <= 4  # one appended after the other they would have been many


def planners() -> set[int]:
    """The processes in which our JVM plans streaming queries; another run beside this one has its own."""
    return {pid for pid in descendants(os.getpid()) if b"python_streaming_source_runner" in command_of(pid)}


def test_rows_come_once_though_the_planner_is_killed(bk: sync.BookKeeper, query: Query, name: str) -> None:
    values = numbers(90)
    with bk.open_stream(name, settings=StreamSettings(max_entries_per_ledger=8)) as stream:
        for part in range(3):
            before = planners()
            running = query.start(name, maxOffsetsPerTrigger=5)
            for value in values[30 * part : 30 * (part + 1)]:
                stream.append(value)
            wait_for_rows(30 * part + 4, query, running)
            [planner] = planners() - before
            os.kill(planner, signal.SIGKILL)
            failure_of(running.awaitTermination)
    query.run(name)
    assert query.values() == values


def test_streams_of_a_pattern_that_come_in_the_middle(bk: sync.BookKeeper, query: Query) -> None:
    names = [f"spark/middle/persistent/{topic}" for topic in "abc"]
    with bk.open_stream(names[0]) as stream:
        stream.append(b"0")
    running = query.start("spark/middle/.*", startingOffsets="latest")
    try:
        wait_until(lambda: running.lastProgress, running)
        for number, name in enumerate(names[1:], 1):
            with bk.open_stream(name) as stream:
                stream.append(b"%d" % number)
        wait_until(lambda: query.offsets() and len(query.values()) == 2, running)
    finally:
        running.stop()
    assert query.values() == [b"1", b"2"]
    assert list(query.offsets()[-1]["s"]) == names


def test_what_was_deleted_before_it_was_read(bk: sync.BookKeeper, query: Query, name: str) -> None:
    settings = StreamSettings(retention_s=0.0, retention_bytes=0)
    with bk.open_stream(name, settings=settings) as stream:
        stream.append(b"0")
        wait_until(lambda: query.run(name) and query.values() == [b"0"])
        lost = stream.append(b"1")
        stream.roll_over()
        kept = stream.append(b"2")
        wait_until(lambda: stream.trim() or lost.ledger not in set(bk.ledgers()))
        text = failure_of(lambda: query.run(name))
        assert "[TALLY-POSITION-TRIMMED] what was at this position is deleted: rows may be lost" in text
        assert "failOnDataLoss=false" in text and f"stream={name}" in text
        wait_until(lambda: query.run(name, failOnDataLoss="false") and len(query.values()) == 2)
    assert query.rows()[-1].position == str(kept) and query.values() == [b"0", b"2"]


def test_a_checkpoint_of_a_newer_version_is_refused(
    bk: sync.BookKeeper, query: Query, name: str, tmp_path: Path
) -> None:
    with bk.open_stream(name) as stream:
        stream.append(b"0")
    query.run(name)
    [log] = (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")
    log.write_text(log.read_text().replace('{"v": 1,', '{"v": 2,'))
    (log.parent / f".{log.name}.crc").unlink(missing_ok=True)
    text = failure_of(lambda: query.run(name))
    assert "[TALLY-USAGE-ERROR] the checkpoint has offsets of a newer tallystick: run the query with" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is an option of spark.read"),
        ({"maxOffsetPerTrigger": 1}, "did you mean maxOffsetsPerTrigger"),
        ({}, "[TALLY-NO-SUCH-STREAM]"),
    ],
)
def test_mistakes_are_named(query: Query, name: str, options: dict[str, object], text: str) -> None:
    assert text in failure_of(lambda: query.run(name, **options))


def test_a_query_begins_at_the_end_of_a_stream_that_grows(bk: sync.BookKeeper, query: Query, name: str) -> None:
    sent = numbers(3)
    with bk.open_stream(name) as stream:
        stream.append_batch(sent)
        running = query.start(name, startingOffsets="latest")

        def grow() -> bool:
            sent.append(b"%04d" % len(sent))
            stream.append(sent[-1])
            return len(sent) % 20 == 0 and len(query.values()) >= 20

        try:
            wait_until(grow, running)
        finally:
            running.stop()
    values = query.values()
    first = sent.index(values[0])
    assert first >= 3 and values == sent[first : first + len(values)]


def test_the_progress_says_how_far_the_streams_are(bk: sync.BookKeeper, query: Query, name: str) -> None:
    with bk.open_stream(name) as stream:
        for value in numbers(10):
            last = stream.append(value)
        stream.roll_over()
        running = query.run(name, maxOffsetsPerTrigger=4)
    first = running.recentProgress[0]["sources"][0]
    assert json.loads(first["endOffset"])["s"][name] == [last.ledger, 4]
    latest = json.loads(first["latestOffset"])
    assert latest["s"][name][0] > last.ledger
    assert latest["lag"]["rows"] == 6 and latest["lag"]["bytes"] > 6 * 20 and 0 <= latest["lag"]["seconds"] < 600
    assert json.loads(running.recentProgress[-1]["sources"][0]["latestOffset"])["lag"]["rows"] == 0


def test_a_cursor_is_moved_behind_the_query(bk: sync.BookKeeper, query: Query, name: str) -> None:
    with bk.open_stream(name) as stream:
        positions = [stream.append(value) for value in numbers(10)]
        stream.roll_over()
        query.run(name, cursor="etl", maxOffsetsPerTrigger=4)
        with bk.cursor(name, "etl", create=False, takeover=True) as cursor:
            assert cursor.mark == positions[7]  # Spark does not tell of the last batch
        query.run(name, cursor="etl", maxOffsetsPerTrigger=4)
        with bk.cursor(name, "etl", create=False, takeover=True) as cursor:
            assert cursor.mark >= positions[-1]
    assert query.values() == numbers(10)
