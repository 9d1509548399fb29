"""A short Spark program that loads the classes which tests use: the archive of ``spark_jvm`` is what it had at its end.

Usage: ``python spark_training.py JAVA_OPTIONS``
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

import tallystick.spark

ROWS = 20


class Numbers(DataSource):
    """A few numbers, as a table and as a stream."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NumbersReader()

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return NumbersStream()


class NumbersReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(ROWS)])


class NumbersStream(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[int]], dict[str, Any]]:
        return self.readBetweenOffsets(start, {"next": ROWS}), {"next": ROWS}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(start["next"], end["next"])])


def main(options: str, folder: Path) -> None:
    own = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "1"}
    spark = tallystick.spark.session("local[2]", **own)
    spark.dataSource.register(Numbers)
    numbers = spark.read.format("numbers").load()
    numbers.selectExpr("number", "CAST(number AS STRING) AS text").orderBy("number").collect()
    numbers.groupBy("number").count().write.parquet(str(folder / "table"))
    spark.read.parquet(str(folder / "table")).selectExpr("sum(number)").collect()
    followed = spark.readStream.format("numbers").load().writeStream.format("parquet")
    followed = followed.option("checkpointLocation", str(folder / "checkpoint")).option(
        "path", str(folder / "followed")
    )
    followed.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1], Path(folder))
