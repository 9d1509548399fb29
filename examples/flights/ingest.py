"""A stream and a topic to typed Parquet tables through Spark, straight from bookies and brokers; a process of its own.

Java and Spark take seconds to start, and the writing is paced: so this starts with it, and is told what is all written,
a JSON line each on its standard input: ``{"format": …, "options": {…}, "place": [two columns], "payload": column,
"table": …}``. It answers ``done`` in a line.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from examples.flights.data import INTEGERS, ORDER, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DONE = "done"


def typed(stored: DataFrame, place: list[str], payload: str) -> DataFrame:
    """The flights in the payloads, by column. A payload that is not such an object fails the query."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    kinds = {"row": LongType()} | dict.fromkeys(INTEGERS, LongType()) | dict.fromkeys(STRINGS, StringType())
    schema = StructType([StructField(name, kinds.get(name, TimestampType())) for name in ORDER])
    # By default a damaged object would become a row of nulls.
    parsed = f.from_json(f.col(payload).cast("string"), schema, {"mode": "FAILFAST"}).alias("flight")
    event_time = f.col("time_hour") + f.make_dt_interval(mins=f.col("minute").cast("int"))
    flights = stored.select(*place, parsed).select(*place, "flight.*")
    return flights.withColumn("event_time", event_time)


def ingest(spark: SparkSession, order: dict[str, Any]) -> None:
    """Write a table. One task a core: the work is in the parsing, not in the bytes."""
    columns = ",".join([*order["place"], order["payload"]])
    cores = str(spark.sparkContext.defaultParallelism)
    options = {**order["options"], "columns": columns, "minPartitions": cores}
    stored = spark.read.format(order["format"]).options(**options).load()
    typed(stored, order["place"], order["payload"]).write.mode("overwrite").parquet(order["table"])


def main() -> int:
    from tallystick import spark as tally_spark

    # A folder for what Spark spills, beside the tables: the system's own may be small.
    spark = tally_spark.session(**{"spark.local.dir": sys.argv[1]})
    try:
        for line in sys.stdin:
            ingest(spark, json.loads(line))
            print(DONE, flush=True)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
