"""Ledgers to a typed Parquet table through Spark, straight from the bookies; a process of its own.

Java and Spark take seconds to start, and the writers are paced: so this starts with them, and is told the ledgers, as
one line on its standard input, when they are all written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights.data import INTEGERS, ORDER, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def typed(entries: DataFrame) -> DataFrame:
    """The flights in the entries' payloads, by column. A payload that is not such an object fails the query."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    kinds = {"row": LongType()} | dict.fromkeys(INTEGERS, LongType()) | dict.fromkeys(STRINGS, StringType())
    schema = StructType([StructField(name, kinds.get(name, TimestampType())) for name in ORDER])
    # By default a damaged object would become a row of nulls.
    parsed = f.from_json(f.col("payload").cast("string"), schema, {"mode": "FAILFAST"}).alias("flight")
    event_time = f.col("time_hour") + f.make_dt_interval(mins=f.col("minute").cast("int"))
    flights = entries.select("ledger", "entry", parsed).select("ledger", "entry", "flight.*")
    return flights.withColumn("event_time", event_time)


def ingest(spark: SparkSession, uri: str, ledgers: str, table: Path) -> None:
    """Write the table. One task a core: the work is in the parsing, not in the bytes."""
    cores = spark.sparkContext.defaultParallelism
    options = {"uri": uri, "ledgers": ledgers, "columns": "ledger,entry,payload", "minPartitions": str(cores)}
    entries = spark.read.format("tally-ledger").options(**options).load()
    typed(entries).write.mode("overwrite").parquet(str(table))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--table", type=Path, required=True)
    options = parser.parse_args()
    from tallystick import spark as tally_spark

    # A folder for what Spark spills, beside the table: the system's own may be small.
    spill = str(options.table.parent / "spark")
    spark = tally_spark.session(**{"spark.local.dir": spill})
    try:
        if ledgers := sys.stdin.readline().strip():  # nothing: the writers have failed
            ingest(spark, options.uri, ledgers, options.table)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
