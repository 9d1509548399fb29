"""A streaming query that keeps a table up to date: started here, watched and stopped by its handle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tallystick.errors import UsageError
from tallystick.pipeline.checkpoint import query_of, require_folder
from tallystick.pipeline.codes import error_of
from tallystick.pipeline.tables.delta import DeltaTarget
from tallystick.pipeline.tables.iceberg import IcebergTarget
from tallystick.pipeline.tables.last_commit import LastCommit, require_last_commit
from tallystick.pipeline.tables.parquet import ParquetFolder
from tallystick.pipeline.tables.record import application_name, require_same_query
from tallystick.pipeline.tables.rows import BatchRows
from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.pipeline.tables.target import TableTarget, split_target
from tallystick.pipeline.tables.writer import BatchWriter, IngestProgress
from tallystick.runtime.arguments import mapping, optional, text
from tallystick.runtime.events import Event, Events
from tallystick.runtime.extras import require
from tallystick.runtime.log import log_listener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_UNKNOWN_FORMAT = "[DATA_SOURCE_NOT_FOUND]"  # what Spark says
_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg", "sqlalchemy"), "parquet": ()}


class Ingestion:
    """A running query. As a context manager it is stopped at the end."""

    def __init__(self, query: StreamingQuery, writer: BatchWriter | None, application: str, target: str) -> None:
        self.query, self.application, self.target = query, application, target
        self._writer = writer

    def __repr__(self) -> str:
        return f"Ingestion(application={self.application!r}, target={self.target!r}, query={self.query.id})"

    def __enter__(self) -> Ingestion:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def progress(self) -> IngestProgress:
        """What it has done since it was started here."""
        if self._writer is not None:
            return self._writer.progress
        batches = [each for each in self.query.recentProgress if each["numInputRows"]]
        rows = sum(each["numInputRows"] for each in batches)
        return replace(
            IngestProgress(),
            batch=max((each["batchId"] for each in batches), default=-1),
            batches=len(batches),
            rows=rows,
        )

    @property
    def is_active(self) -> bool:
        """Whether it goes on."""
        return bool(self.query.isActive)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False if it goes on after ``timeout_s``. Raises the error that ended it."""
        with _own_errors(self._writer):
            if timeout_s is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout_s))  # type: ignore[arg-type]  # it takes parts of seconds

    def stop(self) -> None:
        """End it. A batch that was not committed comes again with the next start."""
        self.query.stop()


@contextlib.contextmanager
def _own_errors(writer: BatchWriter | None = None) -> Iterator[None]:
    """Raise errors of this package where Spark tells of them in an error of its own."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        own = writer.error if writer is not None else None
        own = own or error_of(str(error))
        if own is None:
            raise
        raise own from error


def ingest(
    spark: SparkSession,
    *,
    options: Mapping[str, object],
    target: str,
    application: str,
    checkpoint: str,
    format: str = "tally-stream",
    settings: IngestSettings | None = None,
    listener: Callable[[Event], None] | None = None,
) -> Ingestion:
    """Start it. Raises UsageError, and CheckpointLost if the table has batches of the application that are not of this
    checkpoint."""
    settings = optional(settings, IngestSettings, "settings") or IngestSettings()
    check_arguments(target, application, checkpoint, settings)
    kind, place = split_target(target)
    if getattr(spark, "_sc", None) is None:
        raise UsageError("a session of Spark Connect cannot do this: its driver is another process")
    events = Events(log_listener(), *([] if listener is None else [listener]))
    with _own_errors():
        rows = _source(spark, format, options)
    if kind == "parquet":
        return _to_folder(rows, ParquetFolder(place), application, checkpoint, settings)
    table: TableTarget = DeltaTarget(place) if kind == "delta" else IcebergTarget(place, settings.catalog)
    _require_checkpoint(table, application, checkpoint)
    writer = BatchWriter(table, application, checkpoint, settings, events)
    query = _started(rows.writeStream.foreachBatch(writer), f"{application}: {target}", checkpoint, settings)
    return Ingestion(query, writer, application, target)


def check_arguments(target: str, application: str, checkpoint: str, settings: IngestSettings) -> None:
    """Raises UsageError for what is wrong whatever Spark says: a session takes seconds to start."""
    kind, place = split_target(text(target, "target"))
    require(f"a table of {kind}", *_LIBRARIES[kind])
    application_name(text(application, "application"))
    if not text(checkpoint, "checkpoint").strip():
        raise UsageError("checkpoint is the folder that has how far the query is: it cannot be empty")
    require_folder(checkpoint, "checkpoint")
    if kind == "parquet":
        require_folder(place, "target")
    if settings.catalog and kind != "iceberg":
        raise UsageError(f"catalog is of tables of Iceberg, and this is one of {kind}", table=place)
    if kind == "parquet" and settings.schema == "json" and not settings.value_schema:
        raise UsageError(
            "a folder of Parquet with the schema json needs a value_schema: Spark's files have the same columns from "
            "first to last. Delta and Iceberg take new ones",
            table=place,
        )


def _source(spark: SparkSession, format: str, options: Mapping[str, object]) -> DataFrame:
    """A table of a log has all of it, unless somebody says otherwise."""
    for name, value in mapping(options, "options").items():
        if value is None:
            raise UsageError(f"the option {name} is None: give it a value, or leave it out")
    texts = {name: str(value) for name, value in options.items()}
    names = {name.lower() for name in texts}
    if not names & {"startingoffsets", "startingtimestamp"} and format.startswith("tally-"):
        texts["startingOffsets"] = "earliest"
    try:
        return spark.readStream.format(format).options(**texts).load()
    except Exception as error:  # PySpark's, or py4j's own, of a kind that no type checker knows
        if _UNKNOWN_FORMAT in str(error):
            raise UsageError("Spark knows no source of this format", format=format) from None
        if format.startswith("tally-"):
            raise
        first = str(error).splitlines()[0]  # the others are a trace of Java's
        raise UsageError(f"Spark cannot follow this source: {first}", format=format) from error


def _require_checkpoint(table: TableTarget, application: str, checkpoint: str) -> None:
    """Before Spark is started: each batch is asked again."""
    state = table.load(application)
    record = None if state is None else state.record
    if record is not None:
        require_same_query(record, query_of(checkpoint), application, table.name)
    require_last_commit(checkpoint, LastCommit(table.name, application, -1 if record is None else record.batch))


def _to_folder(
    rows: DataFrame, folder: ParquetFolder, application: str, checkpoint: str, settings: IngestSettings
) -> Ingestion:
    query = query_of(checkpoint)
    folder.require(application, checkpoint, query)
    shaped = BatchRows(settings).shaped(rows, None)
    folder.claim(application, checkpoint, query)
    writer = shaped.writeStream.format("parquet").option("path", folder.place).partitionBy(*settings.partitions)
    started = _started(writer, f"{application}: {folder.name}", checkpoint, settings)
    try:
        folder.claim(application, checkpoint, str(started.id))
    except OSError:
        started.stop()  # nobody would have its handle
        raise
    return Ingestion(started, None, application, folder.name)


def _started(writer: DataStreamWriter, name: str, checkpoint: str, settings: IngestSettings) -> StreamingQuery:
    arguments: dict[str, Any] = settings.spark_trigger()
    return writer.queryName(name).option("checkpointLocation", checkpoint).trigger(**arguments).start()
