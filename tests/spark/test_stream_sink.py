"""Writing streams on local[2], against real bookies: each batch once, as a whole, or not at all."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from support.spark_failures import failure_of
from tallystick import sync
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.errors import CheckpointLost, StreamFenced
from tallystick.pipeline import tasks
from tallystick.pipeline.stream import sink
from tallystick.pipeline.stream.sink import StreamBatchWriter, StreamFollowingWriter
from tallystick.pipeline.stream.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()
FEW = StreamSettings(max_entries_per_ledger=10)
VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def name() -> str:
    """A stream of its own for each test."""
    return f"spark/sink/persistent/t{next(_NUMBERS)}"


def save(frame: DataFrame, uri: str, name: str, version: int, **options: object) -> None:
    texts = {key: str(value) for key, value in options.items()}
    named = {"uri": uri, "txnAppId": "app", "txnVersion": str(version)} | texts
    frame.write.format("tally-stream").options(**named).mode("append").save(name)


def read(bk: sync.BookKeeper, name: str) -> list[bytes]:
    with bk.read_stream(name) as reader:
        return [message.data for message in reader.read()]


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS value")


def test_a_batch_is_stored_once_however_often_it_is_written(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str
) -> None:
    for version in (0, 0, 1, 1, 0):
        save(numbers(spark, 5), uri, name, version)
    assert sorted(read(bk, name)) == sorted([b"%d" % number for number in range(5)] * 2)
    assert len(bk_ledgers(bk, name)) == 2, "few rows of all tasks are one ledger"
    assert bk.sweep_sinks(name) == []


def bk_ledgers(bk: sync.BookKeeper, name: str) -> list[int]:
    with bk.read_stream(name) as reader:
        return sorted({message.position.ledger for message in reader.read()})


def test_columns_become_messages_in_the_order_of_their_partition(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str
) -> None:
    frame = spark.createDataFrame(
        [(b"k", "v1", {"a": "1", "b": None}, 1), (None, "v2", None, None)],
        "key BINARY, value STRING, properties MAP<STRING,STRING>, at BIGINT",
    ).selectExpr("key", "value", "properties", "timestamp_millis(at) AS eventTime")
    save(frame.coalesce(1), uri, name, 0, compression="zstd")
    with bk.read_stream(name) as reader:
        first, second = reader.read()
    assert (first.key, first.data, dict(first.properties), first.event_time) == (b"k", b"v1", {"a": "1", "b": ""}, 1)
    assert (second.key, second.data, dict(second.properties), second.event_time) == (None, b"v2", {}, None)
    assert first.producer == "tallystick/sink/app"


def test_many_rows_are_a_ledger_a_task(spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str) -> None:
    frame = spark.range(0, 4000, 1, 2).selectExpr("CAST(concat(id, repeat('x', 1000)) AS BINARY) AS value")
    save(frame, uri, name, 0, entryFormat="raw")
    with bk.read_stream(name, entry_format="raw") as reader:
        rows = [(message.position.ledger, int(message.data.rstrip(b"x"))) for message in reader.read()]
    ledgers = sorted({ledger for ledger, _ in rows})
    assert len(ledgers) == 2 and sorted(number for _, number in rows) == list(range(4000))
    for ledger in ledgers:
        own = [number for one, number in rows if one == ledger]
        assert own == sorted(own)


Start = Callable[..., "StreamingQuery"]


@pytest.fixture
def copy(spark: SparkSession, bk: sync.BookKeeper, uri: str, tmp_path: Path) -> Start:
    """A query that writes what a stream has into another one, all that there is now."""

    def start(source: str, target: str, checkpoint: str = "checkpoint", **options: object) -> StreamingQuery:
        followed = spark.readStream.format("tally-stream").options(
            uri=uri, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="7"
        )
        texts: dict[str, Any] = {key: str(value) for key, value in options.items()}
        query = (
            followed.load()
            .select("key", "value")
            .writeStream.format("tally-stream")
            .options(uri=uri, checkpointLocation=str(tmp_path / checkpoint), **texts)
            .trigger(availableNow=True)
            .start(target)
        )
        query.awaitTermination(300)
        return query

    return start


def test_a_query_writes_each_row_once_and_goes_on_from_its_checkpoint(
    bk: sync.BookKeeper, copy: Start, name: str
) -> None:
    with bk.open_stream(f"{name}-in", settings=FEW) as stream:
        for number in range(25):
            stream.append(b"%d" % number)
        copy(f"{name}-in", name)
        assert read(bk, name) == [b"%d" % number for number in range(25)]
        copy(f"{name}-in", name)
        for number in range(25, 40):
            stream.append(b"%d" % number)
    copy(f"{name}-in", name)
    assert read(bk, name) == [b"%d" % number for number in range(40)]
    assert bk.sweep_sinks(name) == []


def test_a_query_that_lost_its_checkpoint_is_refused_under_the_name_that_it_was_given(
    bk: sync.BookKeeper, copy: Start, name: str
) -> None:
    with bk.open_stream(f"{name}-in") as stream:
        stream.append(b"a")
    copy(f"{name}-in", name, application="pinned")
    text = failure_of(lambda: copy(f"{name}-in", name, "another", application="pinned"))
    assert "[TALLY-CHECKPOINT-LOST]" in text and "Restore the checkpoint" in text
    assert read(bk, name) == [b"a"]


def test_an_older_copy_of_the_checkpoint_is_refused(
    bk: sync.BookKeeper, copy: Start, name: str, tmp_path: Path
) -> None:
    """It would plan other batches under numbers that are stored: what is new in them would be left out."""
    with bk.open_stream(f"{name}-in", settings=FEW) as stream:
        stream.append_batch([b"%d" % number for number in range(20)])
        copy(f"{name}-in", name)
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
        for number in range(20, 50):
            stream.append(b"%d" % number)
        copy(f"{name}-in", name)
        for number in range(50, 80):
            stream.append(b"%d" % number)
    text = failure_of(lambda: copy(f"{name}-in", name, "older"))
    assert "[TALLY-CHECKPOINT-LOST]" in text and "an older copy" in text
    copy(f"{name}-in", name)
    assert read(bk, name) == [b"%d" % number for number in range(80)]


def test_a_copy_of_the_checkpoint_that_is_one_batch_old_is_refused(
    bk: sync.BookKeeper, copy: Start, name: str, tmp_path: Path
) -> None:
    """Its next batch has the number of the last one that is stored, and more rows."""
    with bk.open_stream(f"{name}-in", settings=FEW) as stream:
        stream.append(b"0")
        copy(f"{name}-in", name)
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
        stream.append(b"1")
        copy(f"{name}-in", name)
        stream.append(b"2")
    text = failure_of(lambda: copy(f"{name}-in", name, "older"))
    assert "[TALLY-CHECKPOINT-LOST]" in text and "an older copy" in text
    copy(f"{name}-in", name)
    assert read(bk, name) == [b"0", b"1", b"2"]


def test_mistakes_are_named(spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str) -> None:
    frame = numbers(spark, 1)
    assert "txnAppId and txnVersion" in failure_of(
        lambda: frame.write.format("tally-stream").option("uri", uri).mode("append").save(name)
    )
    assert "only ever appended to" in failure_of(
        lambda: (
            frame.write.format("tally-stream")
            .options(uri=uri, txnAppId="a", txnVersion="0")
            .mode("overwrite")
            .save(name)
        )
    )
    assert "column id is none of value, key" in failure_of(lambda: save(spark.range(1), uri, name, 0))
    assert "did you mean compression" in failure_of(lambda: save(frame, uri, name, 0, compresion="lz4"))
    assert "has no value" in failure_of(lambda: save(spark.sql("SELECT CAST(NULL AS STRING) AS value"), uri, name, 0))
    with bk.open_stream(name) as stream:
        stream.append(b"a")
    assert "[TALLY-STREAM-OWNED]" in failure_of(lambda: save(frame, uri, name, 0))
    save(frame, uri, name, 0, switch="true")
    assert read(bk, name) == [b"a", b"0"]


def test_a_task_that_fails_once_and_is_tried_again_stores_nothing_twice(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, name: str, tmp_path: Path
) -> None:
    failed = tmp_path / "failed"

    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            yield batch
            if number == 2 and context is not None and context.attemptNumber() == 0 and context.partitionId() == 1:
                failed.write_text(str(time.time()))
                raise RuntimeError("a planned failure")

    frame = spark.range(0, 20_000, 1, 2).selectExpr("CAST(concat(id, repeat('x', 200)) AS STRING) AS value")
    frame = frame.mapInArrow(fail_once, "value STRING")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        if spark.sparkContext.master == "local[2]":  # which tries nothing twice: the job is what is repeated
            failure_of(lambda: save(frame, uri, name, 0))
            assert read_or_none(bk, name) == [], "nothing of it is visible"
            failed_frame = spark.range(0, 20_000, 1, 2).selectExpr(
                "CAST(concat(id, repeat('x', 200)) AS STRING) AS value"
            )
            save(failed_frame, uri, name, 0)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert failed.exists() and len(read(bk, name)) == 20_000
    assert bk.sweep_sinks(name) == [], "the commit has swept"


def read_or_none(bk: sync.BookKeeper, name: str) -> list[bytes]:
    return read(bk, name) if name in list(bk.streams("spark/sink")) else []


class FirstTask:
    """Instead of Spark's context of a task: the first one of batch 0 of a run."""

    def __init__(self, run: str) -> None:
        self._locals = {
            "sql.streaming.queryId": "query",
            "spark.jobGroup.id": run,
            "streaming.sql.batchId": "0",
        }

    def partitionId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str:
        return self._locals[name]


def test_a_driver_that_was_stopped_before_its_first_commit_ends_nobody(
    bk: sync.BookKeeper, uri: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SinkOptions.parse({"uri": uri, "stream": name}, {}, follows=True)
    rows = pa.RecordBatch.from_pydict({"value": ["row"]})
    writers: list[StreamFollowingWriter] = []
    parts: list[list[WriterCommitMessage | None]] = []
    for run in ("first", "second"):
        for module in (sink, tasks):
            monkeypatch.setattr(module, "this_task", partial(FirstTask, run))
        writers.append(StreamFollowingWriter(options, VALUE))
        parts.append([writers[-1].write(iter([rows]))])
    with pytest.raises(StreamFenced, match="run second goes on"):
        writers[0].commit(parts[0], 0)
    writers[1].commit(parts[1], 0)
    with pytest.raises(StreamFenced, match="run second goes on"):
        writers[0].commit(parts[0], 0)
    assert read(bk, name) == [b"row"]


def test_a_stream_that_was_deleted_between_two_batches_is_not_begun_anew(
    bk: sync.BookKeeper, uri: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (sink, tasks):
        monkeypatch.setattr(module, "this_task", partial(FirstTask, "run"))
    given = {"uri": uri, "stream": name, "application": "app", "checkpointlocation": str(tmp_path)}
    options, rows = SinkOptions.parse(given, {}, follows=True), pa.RecordBatch.from_pydict({"value": ["row"]})
    for batch in range(2):
        writer = StreamFollowingWriter(options, VALUE)
        writer.commit([writer.write(iter([rows]))], batch)
    bk.delete_stream(name)
    writer = StreamFollowingWriter(options, VALUE)
    part = writer.write(iter([rows]))
    with pytest.raises(CheckpointLost, match=r"\[TALLY-CHECKPOINT-LOST\] batch 1 of application app was committed to"):
        writer.commit([part], 2)
    assert read(bk, name) == []


def test_a_version_that_is_left_out_is_said(
    bk: sync.BookKeeper, uri: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (sink, tasks):
        monkeypatch.setattr(module, "this_task", partial(FirstTask, "no query"))
    for version in (4, 5, 4, 5):
        options = SinkOptions.parse(
            {"uri": uri, "stream": name, "txnappid": "app", "txnversion": str(version)}, {}, follows=False
        )
        writer = StreamBatchWriter(options, VALUE)
        writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"value": [f"{version}"]})]))])
    assert read(bk, name) == [b"4", b"5"]
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "left out" in line] == [
        f"tally-stream: txnVersion {version} of app is left out, with all its rows: the last one that {name} has of it "
        "is 5. Versions ascend"
        for version in (4, 5)
    ]
