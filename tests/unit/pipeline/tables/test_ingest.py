"""What is checked and said before a query of a table begins, and what its handle tells; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from tallystick.errors import CheckpointLost, NoSuchStream, UsageError
from tallystick.pipeline.tables import ingest as module
from tallystick.pipeline.tables.ingest import Ingestion, check_arguments, ingest
from tallystick.pipeline.tables.last_commit import LastCommit, note_commit
from tallystick.pipeline.tables.parquet import RECORD
from tallystick.pipeline.tables.record import TableRecord
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.pipeline.tables.writer import BatchWriter, IngestProgress

RAW = IngestSettings(schema="raw", trigger="5 seconds")
QUERY = "0e8a63a2-0000-4000-8000-000000000001"


class Query:
    """A running query of Spark."""

    isActive, id = True, QUERY

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.recentProgress: list[dict[str, int]] = []
        self.waits: list[float | None] = []

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        self.waits.append(timeout)
        if self.failure is not None:
            raise self.failure
        return None if timeout is None else not self.isActive


class Spark:
    """A session: what its reader and its writer were told."""

    _sc = object()

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.began: list[dict[str, Any]] = []
        self.read: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.columns = ["value"]

    @property
    def readStream(self) -> Spark:
        return self

    @property
    def writeStream(self) -> Spark:
        self.told = {}
        return self

    def format(self, name: str) -> Spark:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Spark:
        self.read = {**self.told, **options}
        return self

    def load(self) -> Spark:
        if self.failure is not None:
            raise self.failure
        return self

    def __getattr__(self, name: str) -> Any:
        if name not in ("foreachBatch", "option", "partitionBy", "queryName", "trigger"):
            raise AttributeError(name)

        def tell(*values: Any, **named: Any) -> Spark:
            self.told[name if name != "option" else values[0]] = named or values[-1:] or ()
            return self

        return tell

    def start(self) -> Query:
        self.began.append(self.told)
        return Query()


class Table:
    """A table that has a batch, or none."""

    def __init__(self, record: TableRecord | None) -> None:
        self.name, self.record = "delta:t", record

    def load(self, application: str) -> Any:
        return None if self.record is None else SimpleNamespace(record=self.record)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table(None)
    monkeypatch.setattr(module, "DeltaTarget", lambda place: made)
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """That of a query which has begun."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    return str(folder)


def begin(spark: Spark, checkpoint: str, target: str = "delta:t", **more: Any) -> Ingestion:
    given: Any = {"options": {"subscribe": "s"}, "settings": RAW, **more}
    return ingest(cast("Any", spark), target=target, application="a", checkpoint=checkpoint, **given)


def test_a_query_is_begun_as_the_settings_say(table: Table, checkpoint: str) -> None:
    spark = Spark()
    started = begin(spark, checkpoint)
    [told] = spark.began
    assert isinstance(told["foreachBatch"][0], BatchWriter) and told["queryName"] == ("a: delta:t",)
    assert told["checkpointLocation"] == (checkpoint,) and told["trigger"] == {"processingTime": "5 seconds"}
    assert started.progress == IngestProgress() and started.is_active
    with started:
        pass
    assert not started.is_active


def test_a_table_of_a_log_has_all_of_it_unless_somebody_says_otherwise(table: Table, checkpoint: str) -> None:
    for name in ("tally-stream", "tally-topic"):
        spark = Spark()
        begin(spark, checkpoint, format=name)
        assert spark.read == {"format": name, "subscribe": "s", "startingOffsets": "earliest"}
    for options in ({"StartingOffsets": "latest"}, {"startingtimestamp": 7}):
        begin(spark := Spark(), checkpoint, options=options)
        assert spark.read == {"format": "tally-stream", **{name: str(value) for name, value in options.items()}}
    begin(spark := Spark(), checkpoint, format="rate", options={})
    assert spark.read == {"format": "rate"}


def test_a_query_that_lost_its_checkpoint_is_refused_before_it_begins(table: Table, tmp_path: Path) -> None:
    table.record, spark = TableRecord(QUERY, 3, 0), Spark()
    with pytest.raises(CheckpointLost, match="without its checkpoint"):
        begin(spark, str(tmp_path / "new"))
    assert not spark.began


def test_a_table_that_lacks_a_batch_that_it_had_is_refused_before_the_query_begins(
    table: Table, checkpoint: str
) -> None:
    note_commit(checkpoint, LastCommit("delta:t", "a", 4))
    spark = Spark()
    for record in (None, TableRecord(QUERY, 3, 0)):
        table.record = record
        with pytest.raises(CheckpointLost, match="put back from an older copy"):
            begin(spark, checkpoint)
    assert not spark.began
    table.record = TableRecord(QUERY, 4, 0)
    begin(spark, checkpoint)


def test_a_folder_is_claimed_before_its_query_begins_and_knows_it_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaped = SimpleNamespace(shaped=lambda rows, table: rows)
    monkeypatch.setattr(module, "BatchRows", lambda settings: shaped)
    place, checkpoint, records = tmp_path / "folder", str(tmp_path / "checkpoint"), []
    start = Spark.start

    def started(spark: Spark) -> Query:
        records.append(json.loads((place / RECORD).read_text())["query"])
        return start(spark)

    monkeypatch.setattr(Spark, "start", started)
    spark = Spark()
    ingestion = begin(spark, checkpoint, f"parquet:{place}", settings=IngestSettings(schema="raw", partition_by="day"))
    assert records == [None] and json.loads((place / RECORD).read_text())["query"] == QUERY
    [told] = spark.began
    assert told["format"] == "parquet" and told["path"] == (str(place),) and told["partitionBy"] == ("event_day",)
    query = cast("Query", ingestion.query)
    query.recentProgress = [{"batchId": number, "numInputRows": rows} for number, rows in ((0, 5), (1, 7), (2, 0))]
    assert ingestion.progress == IngestProgress(batch=1, batches=2, rows=12)
    (place / "_spark_metadata").mkdir()
    (place / "_spark_metadata" / "0").touch()
    with pytest.raises(CheckpointLost):
        begin(spark, str(tmp_path / "another"), f"parquet:{place}")


def test_a_query_whose_folder_cannot_be_claimed_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is full: nobody would have the handle of a query that goes on."""
    monkeypatch.setattr(module, "BatchRows", lambda settings: SimpleNamespace(shaped=lambda rows, table: rows))
    place, queries, start = tmp_path / "folder", list[Query](), Spark.start

    def started(spark: Spark) -> Query:
        queries.append(start(spark))
        (place / f"{RECORD}.new").mkdir()  # in its way
        return queries[0]

    monkeypatch.setattr(Spark, "start", started)
    with pytest.raises(OSError, match="folder"):
        begin(Spark(), str(tmp_path / "checkpoint"), f"parquet:{place}", settings=RAW)
    assert not queries[0].isActive


def test_what_cannot_work_is_said_before_spark_is_started() -> None:
    for target, checkpoint, settings, reason in (
        ("csv:t", "c", RAW, "a target is delta:PATH"),
        ("delta:t", " ", RAW, "checkpoint .* cannot be empty"),
        ("parquet:t", "c", IngestSettings(), "needs a value_schema"),
        ("delta:t", __file__, RAW, "checkpoint is a folder, and this is a file"),
        (f"parquet:{__file__}", "c", RAW, "target is a folder, and this is a file"),
        ("delta:t", "s3a://bucket/c", RAW, "cannot use this checkpoint: .*s3a.*a URI that pyarrow can open"),
        ("parquet:s3a://bucket/t", "c", RAW, "cannot use this target: .*s3a.*a URI that pyarrow can open"),
        ("delta:t", "c\0", RAW, "cannot use this checkpoint"),
        ("delta:t", "c" * 5000, RAW, "cannot use this checkpoint: .*Errno"),
    ):
        with pytest.raises(UsageError, match=reason):
            check_arguments(target, "a", checkpoint, settings)
    with pytest.raises(UsageError, match="an application is named with"):
        check_arguments("delta:t", "a/b", "c", RAW)
    check_arguments("delta:t", "a", "c", IngestSettings())
    check_arguments("parquet:t", "a", "c", IngestSettings(value_schema="n INT"))


def test_nothing_begins_with_wrong_arguments_or_where_the_driver_is_elsewhere(table: Table, checkpoint: str) -> None:
    spark = Spark()
    with pytest.raises(UsageError, match="cannot be empty"):
        begin(spark, "")
    spark._sc = None
    with pytest.raises(UsageError, match="Spark Connect"):
        begin(spark, checkpoint)


def test_errors_of_ours_are_raised_where_spark_tells_of_them_in_its_own(table: Table, checkpoint: str) -> None:
    spark = Spark()
    spark.failure = StreamingQueryException("a trace\n[TALLY-NO-SUCH-STREAM] there is no s\n")
    with pytest.raises(NoSuchStream, match="there is no s"):
        begin(spark, checkpoint)
    writer = SimpleNamespace(error=UsageError("with its fields", column="n"), progress=IngestProgress(batch=9))
    for failure, own, kind in (
        (spark.failure, None, NoSuchStream),
        (spark.failure, writer, UsageError),
        (StreamingQueryException("Spark's own"), None, StreamingQueryException),
    ):
        running = Ingestion(cast("Any", Query(failure)), cast("Any", own), "a", "delta:t")
        with pytest.raises(kind):
            running.wait()
    assert running.progress.batch == -1
    assert Ingestion(cast("Any", Query()), cast("Any", writer), "a", "delta:t").progress.batch == 9


def test_who_waits_hears_whether_it_goes_on() -> None:
    query = Query()
    running = Ingestion(cast("Any", query), None, "a", "delta:t")
    assert not running.wait(0.5)
    running.stop()
    assert running.wait(0.5) and running.wait() and query.waits == [0.5, 0.5, None]
