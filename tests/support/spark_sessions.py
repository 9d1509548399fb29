"""Spark sessions in the process of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tallystick.spark
from support.spark_jvm import fast_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def session(master: str, warehouse: Path) -> Iterator[SparkSession]:
    """A session of its own, with an event log (``event_log``); all live in one JVM, which is started once."""
    events = warehouse / "events"
    events.mkdir(parents=True)
    started = tallystick.spark.session(
        master,
        **{
            "spark.driver.memory": "1g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.driver.extraJavaOptions": fast_jvm(),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": fast_jvm(),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before all executors are there
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(warehouse),
        },
    )
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


def event_log(spark: SparkSession) -> str:
    """What the session has told its event log until now."""
    folder = Path(spark.sparkContext.getConf().get("spark.eventLog.dir", "").removeprefix("file://"))
    return "".join(file.read_text(errors="replace") for file in folder.rglob("*") if file.is_file())
