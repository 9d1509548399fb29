"""``tally spark``."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from tallystick.cli.options import WHOLE, Json, pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tallystick.pipeline.tables.ingest import Ingestion

app = App(name="spark", help="Keep tables up to date by Spark.")
POLL_S = 0.5
# Spark's logger of how a query ended, with a trace of Java's and one of Python's: we say so in words.
_ENDED_QUERIES = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"

Application = Annotated[str, Parameter(help="Who writes, in the table. Others that write it have other names.")]
StreamUri = Annotated[
    str | None, Parameter(help="Metadata of the streams. By default TALLY_URI, else the running development cluster.")
]
Schema = Annotated[
    Literal["json", "avro", "raw"], Parameter(help="The fields of JSON or Avro values, or the source's columns.")
]
ValueSchema = Annotated[
    str, Parameter(help="Of json: carrier STRING, delay INT; all by default. Of avro: its schema, or a file of it.")
]
ValueHeader = Annotated[
    Literal["confluent"] | None, Parameter(help="What comes before each value of avro: five bytes.")
]
Trigger = Annotated[str, Parameter(help="A batch so often; or available-now: all there is, and then the end.")]
Catalog = Annotated[
    tuple[str, ...], Parameter(help="A property of Iceberg's catalog: name=value, as uri=sqlite:///c.db. Repeatable.")
]


@app.command
def ingest(
    source: Annotated[str, Parameter(help="What to read: a stream, several with commas between; or a topic.")],
    target: Annotated[str, Parameter(help="The table: delta:PATH, iceberg:NAMESPACE.TABLE or parquet:PATH.")],
    /,
    *,
    checkpoint: Annotated[str, Parameter(help="The folder where Spark keeps how far it is; each table has its own.")],
    application: Application = "tally-ingest",
    format_: Annotated[
        str, Parameter(name="--format", help="tally-stream, tally-topic, or another source of Spark.")
    ] = "tally-stream",
    option: Annotated[tuple[str, ...], Parameter(help="An option of the source: name=value. Repeatable.")] = (),
    uri: StreamUri = None,
    schema: Schema = "json",
    value_schema: ValueSchema = "",
    value_header: ValueHeader = None,
    partition_by: Annotated[Literal["day", "hour"] | None, Parameter(help="Partitions, of the event time.")] = None,
    event_time: Annotated[str, Parameter(help="SQL for the event time, where it is a column.")] = "",
    trigger: Trigger = "10 seconds",
    compact_every: Annotated[int, WHOLE, Parameter(help="Commits until small files are made large; 0: never.")] = 50,
    catalog: Catalog = (),
    master: Annotated[str, Parameter(help="Where Spark runs. spark-submit says it better.")] = "local[*]",
    conf: Annotated[tuple[str, ...], Parameter(help="A setting of Spark: name=value. Repeatable.")] = (),
    explain: Annotated[bool, Parameter(help="Print each decision, as events.")] = False,
    json: Json = False,
) -> None:
    """Keep a table up to date with a stream or a topic, each row in it once, until Ctrl-C.

    Started again with its checkpoint it goes on where it was, also after it was killed. By default it begins at the
    first row that there is.

    Example: `tally spark ingest demo/flights/persistent/all delta:flights --checkpoint flights-checkpoint`
    """
    from tallystick import spark as tally_spark
    from tallystick.cli import output
    from tallystick.runtime.extras import require

    options = _source_options(source, uri, option)
    settings = tally_spark.IngestSettings(
        schema=schema, value_schema=value_schema, value_header=value_header or "", partition_by=partition_by or "",
        event_time=event_time, trigger=trigger, compact_every=compact_every,
        catalog=pairs("--catalog", "name=value", catalog),
    )  # fmt: skip
    require("a table", *tally_spark.LIBRARIES)
    from tallystick.pipeline.tables.ingest import check_arguments

    check_arguments(target, application, checkpoint, settings)
    _check_source(format_, options)
    with _quiet(), _interruptible(_session(master, pairs("--conf", "name=value", conf))) as session:
        started = tally_spark.ingest(
            session,
            options=options,
            target=target,
            application=application,
            checkpoint=checkpoint,
            format=format_,
            settings=settings,
            listener=(lambda event: output.event_line(event, json=json)) if explain else None,
        )
        _follow_to_its_end(started, json=json)


def _source_options(source: str, uri: str | None, more: tuple[str, ...]) -> dict[str, str]:
    from tallystick.errors import UsageError

    options = {"path": source} if uri is None else {"path": source, "uri": uri}
    for name, value in pairs("--option", "name=value", more).items():
        if name.lower() in options:
            raise UsageError(f"SOURCE and --uri say this already: leave out --option {name}", given=value)
        options[name] = value
    return options


def _check_source(format_: str, options: dict[str, str]) -> None:
    """Raises UsageError before Spark is started, which takes seconds."""
    from tallystick.errors import UsageError
    from tallystick.pipeline.stream.options import StreamSourceOptions
    from tallystick.pipeline.topic.options import TopicOptions

    if format_ == "tally-stream":
        try:
            StreamSourceOptions.parse(options, follows=True)
        except UsageError as error:
            if "/" in options["path"]:
                raise
            raise UsageError(f"of a topic give --format tally-topic; {error.message}", **error.fields) from None
    elif format_ == "tally-topic":
        TopicOptions.parse(options, follows=True)


def _session(master: str, conf: dict[str, str]) -> SparkSession:
    """Our own; or that of spark-submit, which has said all of it."""
    import os

    from tallystick import spark as tally_spark

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark.sql import SparkSession

        return tally_spark.register(SparkSession.builder.getOrCreate())
    session = tally_spark.session(master, **conf)
    session.sparkContext.setLogLevel("ERROR")
    jvm: Any = session.sparkContext._jvm
    log = jvm.org.apache.logging.log4j
    log.core.config.Configurator.setLevel(_ENDED_QUERIES, log.Level.OFF)
    return session


def _follow_to_its_end(started: Ingestion, *, json: bool) -> None:
    try:
        _follow(started)
    finally:
        _stop(started)
        _tell(started, json=json)


def _follow(started: Ingestion) -> None:
    from tallystick.cli import output

    shown = 0
    with output.progress("rows") as count:
        while not started.wait(POLL_S):
            rows = started.progress.rows
            count(rows - shown)
            shown = rows


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out of the log what py4j says of an interrupt, with a traceback: Ctrl-C is how the command ends."""

    def is_shown(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("KeyboardInterrupt while")

    logging.getLogger().addFilter(is_shown)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_shown)


@contextlib.contextmanager
def _interruptible(session: SparkSession) -> Iterator[SparkSession]:
    """An interrupt asks a session nothing: the handler that PySpark makes for it cancels jobs over the connection on
    which the interrupted thread awaits a response. What runs is stopped by us."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield session
    finally:
        signal.signal(signal.SIGINT, handler)


def _stop(started: Ingestion) -> None:
    """End the query; Spark may be gone, and the query with it: a supervisor sends SIGTERM to the JVM, too. What was not
    committed comes again."""
    with contextlib.suppress(Exception):  # py4j's own, of kinds that no type checker knows
        started.stop()


def _tell(started: Ingestion, *, json: bool) -> None:
    import dataclasses

    from tallystick.cli import output

    progress = started.progress
    if json:
        output.json_line({"application": started.application, "target": started.target, **dataclasses.asdict(progress)})
        return
    text = f"{started.target}: {output.quantity(progress.rows, 'row', 'rows')} in "
    text += output.quantity(progress.batches, "batch", "batches")
    if progress.files:
        text += f" and {output.quantity(progress.files, 'file', 'files')}"
    if progress.skipped:
        text += f"; {output.quantity(progress.skipped, 'batch', 'batches')} skipped, which the table had"
    if progress.dead_letters:
        text += f"; {output.quantity(progress.dead_letters, 'row', 'rows')} set aside in _dead_letter"
    print(text)
