"""A Spark session that can read ledgers, streams and topics: ``session()``, then ``.read.format("tally-ledger")``,
``.read.format("tally-stream")`` or ``.read.format("tally-topic")``; and tables that follow them: ``ingest()``.

The same on one machine and on a cluster; whatever is set here can be set otherwise by the caller. Needs Java 17 or
newer and the extra ``spark``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Literal

from tallystick.pipeline.tables.settings import IngestSettings
from tallystick.runtime.extras import require
from tallystick.runtime.java import end_children, java_command, java_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tallystick.pipeline.tables.ingest import Ingestion
    from tallystick.runtime.events import Event

__all__ = ["IngestSettings", "add_key_file", "decoded", "ingest", "register", "session"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

# Loopback: nobody else's business unless the caller says so. For executors on other machines set spark.driver.host (and
# spark.driver.bindAddress) to an address that they reach.
DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    PUSHDOWN: "true",
}


LIBRARIES = ("pyspark", "pyarrow", "numpy", "pandas")  # Spark itself imports the last ones late, and dies


def session(master: str = "local[*]", app_name: str = "tallystick", **conf: object) -> SparkSession:
    """The session, made if there is none. ``conf`` adds Spark settings or replaces ours: ``**{"spark.ui.port": 4050}``.

    Python workers run this interpreter unless PYSPARK_PYTHON names another. Raises UsageError without PySpark, or a
    Java that it can use.
    """
    java = java_command(os.environ)
    require("a Spark session", *LIBRARIES)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(
        "SPARK_LOCAL_IP", str(conf.get("spark.driver.bindAddress", DEFAULTS["spark.driver.bindAddress"]))
    )
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**DEFAULTS, **conf}.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    try:
        made = builder.getOrCreate()
    except PySparkException:
        java_version(java)  # of one that is too old Spark says only that it ended
        raise
    except KeyboardInterrupt as interrupt:
        end_children(interrupt)  # PySpark removes the folder that its JVM needs, which then neither goes on nor ends
        raise
    return register(made)


def register(spark: SparkSession) -> SparkSession:
    """Make the formats known to a session of one's own.

    Spark's Python workers must find tallystick. On one machine they are made to run this interpreter if theirs lacks
    it; on a cluster a warning says what to set. Raises UsageError for a library that is not installed.
    """
    require("reading with Spark", *LIBRARIES)
    from tallystick.pipeline.ledger.source import LedgerDataSource
    from tallystick.pipeline.stages import serve_stages
    from tallystick.pipeline.stream.relay_driver import serve_relay
    from tallystick.pipeline.stream.source import StreamDataSource
    from tallystick.pipeline.topic.source import TopicDataSource

    _check_workers(spark)
    if getattr(spark, "_sc", None) is not None:
        serve_stages(spark)
        serve_relay(spark)
    spark.dataSource.register(LedgerDataSource)
    spark.dataSource.register(StreamDataSource)
    spark.dataSource.register(TopicDataSource)
    return spark


def add_key_file(spark: SparkSession, path: str) -> str:
    """Have each executor get a file of secrets, by ``addFile``. Returns the name for an option such as
    ``credentialsFile``. Raises UsageError where Spark would send it in plain bytes: ``local[*]`` sends nothing."""
    from tallystick.pipeline.key_files import add_key_file as add

    return add(spark, path)


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
    """Start a query that keeps a table up to date, each row in it once; a handle, to be waited for or stopped.

    ``options`` are those of the source ``format``, which is read from its beginning unless they say otherwise.
    ``target`` is ``delta:PATH``, ``iceberg:NAMESPACE.TABLE`` or ``parquet:PATH``. In the table ``application`` names
    who writes, and ``checkpoint`` has how far it is: a new one under the old name is refused. ``listener`` hears the
    events, which are logged, too. Raises UsageError, and CheckpointLost.
    """
    require("a table", *LIBRARIES)
    from tallystick.pipeline.tables.ingest import ingest as start

    return start(
        register(spark),
        options=options,
        target=target,
        application=application,
        checkpoint=checkpoint,
        format=format,
        settings=settings,
        listener=listener,
    )


def decoded(
    frame: DataFrame, value_schema: str = "", *, format: Literal["json", "avro"] = "json", header: str = ""
) -> DataFrame:
    """The frame of a source with the fields of its values as columns, and its other columns behind an underscore.

    ``value_schema`` is as in ``carrier STRING, delay INT``; without it the fields are looked for in all values, which
    needs a frame that is read, not followed. Of ``avro`` it is the schema as JSON, or a file that has it; its values
    may each have a ``header``, ``confluent``. What does not fit is in the column ``_dead_letter`` as it came. Raises
    UsageError.
    """
    from tallystick.pipeline.tables.decoded import decoded as decode

    return decode(frame, value_schema, format, header)


def _check_workers(spark: SparkSession) -> None:
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none: its server chose the interpreter
    if context is None or _finds_us(context.pythonExec):
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable
    else:
        warnings.warn(
            f"Spark's Python workers run {context.pythonExec}, which does not find tallystick on this machine: set "
            "PYSPARK_PYTHON to an interpreter that has it on every machine, before the session is made",
            stacklevel=3,
        )


def _finds_us(interpreter: str) -> bool:
    if interpreter == sys.executable:
        return True
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tallystick') is None)"
    try:
        return subprocess.run([interpreter, "-c", find], check=False, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
