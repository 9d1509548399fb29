"""Writing streams at least once, on local[2] with tasks that are tried again: the driver owns the stream."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.spark_failures import failure_of
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.errors import StreamOwned
from tallystick.pipeline.stream.relay import SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def master() -> str:
    return "local[2,3]"


@pytest.fixture
def name() -> str:
    """A stream of its own for each test."""
    return f"spark/relay/persistent/t{next(_NUMBERS)}"


def save(frame: DataFrame, uri: str, name: str, **options: str) -> None:
    frame.write.format("tally-stream").options(uri=uri, delivery="at-least-once", **options).mode("append").save(name)


def read(bk: sync.BookKeeper, name: str, count: int) -> list[tuple[int, bytes]]:
    """The ledger and the value of each message, when there are so many: an owner tells of its last ones a moment
    later."""
    deadline = time.monotonic() + 60
    while True:
        with bk.read_stream(name) as reader:
            rows = [(message.position.ledger, message.data) for message in reader.read()]
        if len(rows) >= count or time.monotonic() > deadline:
            return rows
        time.sleep(0.05)


def test_a_frame_is_stored_with_all_its_columns_each_time_that_it_is_written(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str
) -> None:
    frame = spark.createDataFrame(
        [("k", "v1", {"a": "1"}), (None, "v2", None)], "key STRING, value STRING, properties MAP<STRING,STRING>"
    )
    for _ in range(2):
        save(frame.coalesce(1), uri, name, compression="zstd")
    with bk.open_stream(name, wait_s=60), bk.read_stream(name) as reader:
        messages = list(reader.read())
    assert [(each.key, each.data, dict(each.properties)) for each in messages] == [
        ("k", b"v1", {"a": "1"}),
        (None, b"v2", {}),
    ] * 2
    assert messages[0].producer == "tallystick/sink/batch"


def test_the_batches_of_a_query_are_in_one_ledger(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str, tmp_path: Path
) -> None:
    values = [b"%d" % number for number in range(40)]
    with bk.open_stream(f"{name}-in", settings=StreamSettings(max_entries_per_ledger=15)) as stream:
        for value in values:
            stream.append(value)
        followed = spark.readStream.format("tally-stream").options(
            uri=uri, subscribe=f"{name}-in", startingOffsets="earliest", maxOffsetsPerTrigger="7"
        )
        writer = followed.load().select("value").writeStream.format("tally-stream")
        writer = writer.options(uri=uri, delivery="at-least-once", checkpointLocation=str(tmp_path))
        query = writer.trigger(availableNow=True).start(name)
        query.awaitTermination(300)
    rows = read(bk, name, len(values))
    assert [value for _, value in rows] == values and len(query.recentProgress) >= 6
    assert len({ledger for ledger, _ in rows}) == 1
    with pytest.raises(StreamOwned):  # the next batch may come at once
        bk.open_stream(name).__enter__()


def test_a_task_that_is_tried_again_loses_nothing_and_doubles_its_own_rows_alone(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str
) -> None:
    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            yield batch
            if number == 2 and context is not None and context.attemptNumber() == 0 and context.partitionId() == 1:
                raise RuntimeError("a planned failure")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        frame = spark.range(0, 20_000, 1, 2).selectExpr("CAST(concat(id, repeat('x', 200)) AS STRING) AS value")
        save(frame.mapInArrow(fail_once, "value STRING"), uri, name)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    counts = Counter(int(value.rstrip(b"x")) for _, value in read(bk, name, 20_000 + 2_000))
    assert sorted(counts) == list(range(20_000))
    doubled = [number for number, count in counts.items() if count > 1]
    assert doubled and min(doubled) >= 10_000 and max(counts.values()) == 2


def test_a_stream_changes_its_kind_of_writer_only_if_that_is_said(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str
) -> None:
    once = {"uri": uri, "txnAppId": "app", "txnVersion": "0"}
    frame = spark.sql("SELECT 'a' AS value")
    frame.write.format("tally-stream").options(**once).mode("append").save(name)
    text = failure_of(lambda: save(frame, uri, name))
    assert "[TALLY-STREAM-OWNED]" in text and "of these applications: app. switch=true" in text
    save(frame, uri, name, switch="true")
    with bk.open_stream(name, wait_s=60):
        pass
    text = failure_of(
        lambda: frame.write.format("tally-stream").options(**{**once, "txnVersion": "1"}).mode("append").save(name)
    )
    assert "[TALLY-STREAM-OWNED]" in text
    assert [value for _, value in read(bk, name, 2)] == [b"a", b"a"]


def test_mistakes_are_named(spark: SparkSession, uri: str, name: str) -> None:
    frame = spark.sql("SELECT 'a' AS value")
    assert "txnAppId says nothing" in failure_of(lambda: save(frame, uri, name, txnAppId="a"))
    assert "has no value" in failure_of(lambda: save(spark.sql("SELECT CAST(NULL AS STRING) AS value"), uri, name))
    place = spark.conf.get(SETTING)
    spark.conf.unset(SETTING)
    try:
        assert "call tallystick.spark.register in the driver" in failure_of(lambda: save(frame, uri, name))
    finally:
        spark.conf.set(SETTING, str(place))
