"""Spark as a process of its own: the driver of the streaming queries, and of the Parquet tables at the end.

Java and Spark take seconds to start, and the writing is paced: so this starts with it, and is told what to do, a JSON
object a line on its standard input. It answers ``done`` in a line.

- ``{"do": "derive" or "keep", …}``: start one of the ``queries``, which goes on from its checkpoint;
- ``{"do": "catch up"}``: have it read all that there is, and end it;
- ``{"do": "table", "format": …, "options": {…}, "place": [two columns], "payload": column, "table": …}``: a log to a
  table of Parquet, typed, straight from bookies and brokers.

A query that fails ends the process: its log says why.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from examples.flights import queries
from examples.flights.data import INTEGERS, ORDER, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DONE = "done"
# It lives for minutes, and is started three times: what the second compiler of Java gains it would never give back.
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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


class Orders:
    """Carries orders out, one after the other; a query that was started goes on beside them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: StreamingQuery | None = None

    def carry_out(self, order: dict[str, Any]) -> None:
        """Raises whatever Spark does."""
        if order["do"] == "table":
            ingest(self._spark, order)
        elif order["do"] == "catch up":
            self._catch_up()
        else:
            start = {"derive": queries.derive, "keep": queries.keep}[order["do"]]
            self._query = start(self._spark, order)
            threading.Thread(target=_watch, args=(self._query,), daemon=True).start()

    def _catch_up(self) -> None:
        assert self._query is not None, "one was started before"
        self._query.processAllAvailable()
        self._query.stop()
        self._query = None


def _watch(query: StreamingQuery) -> None:
    """End the process if the query fails: it may be hours until the next order would notice."""
    try:
        query.awaitTermination()
    except Exception:
        traceback.print_exc()
        os._exit(1)


def main() -> int:
    from tallystick import spark as tally_spark

    # A folder for what Spark spills, beside the tables: the system's own may be small.
    spark = tally_spark.session(**{"spark.local.dir": sys.argv[1], "spark.driver.extraJavaOptions": JVM})
    try:
        orders = Orders(spark)
        for line in sys.stdin:
            orders.carry_out(json.loads(line))
            print(DONE, flush=True)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
