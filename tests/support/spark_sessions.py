"""Spark sessions in the process of a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import tallystick.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Fast to start, small, and quiet: what a test wants of a JVM.
FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextlib.contextmanager
def session(master: str, warehouse: Path) -> Iterator[SparkSession]:
    """A session of its own; all live in one JVM, which is started once."""
    started = tallystick.spark.session(
        master,
        **{
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": FAST_JVM,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": FAST_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before all executors are there
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(warehouse),
        },
    )
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
