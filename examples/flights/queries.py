"""The two streaming queries: delays derived from the stream into a second one, and a Delta table of the topic.

Both store each row once, though the driver that runs them is killed: the stream by the record of batches in its
metadata, the table by the batch's number in its own commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.flights.data import INTEGERS, ORDER, STRINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

APPLICATION = "flights-demo"  # its name in the stream and in the table
TRIGGER = "500 milliseconds"


def delays(flights: DataFrame) -> DataFrame:
    """A message for each flight: its carrier is the key, its scheduled time the event time, and its value says the
    hour and the delay, null for a flight that was cancelled."""
    from pyspark.sql import functions as f

    schema = "row BIGINT, carrier STRING, hour BIGINT, dep_delay BIGINT"
    flight = f.from_json(f.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    value = f.to_json(f.struct("f.row", "f.hour", "f.dep_delay"), {"ignoreNullFields": "false"})
    return flights.select(flight.alias("f"), "eventTime").select(
        f.col("f.carrier").alias("key"), value.alias("value"), "eventTime"
    )


def derive(spark: SparkSession, order: dict[str, Any]) -> StreamingQuery:
    """Start the first query: from the stream ``source`` into the stream ``target``."""
    flights = spark.readStream.format("tally-stream").options(
        uri=order["uri"],
        subscribe=order["source"],
        columns="value,eventTime",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(order["batch_rows"]),
    )
    writer = delays(flights.load()).writeStream.format("tally-stream").trigger(processingTime=TRIGGER)
    place = {"uri": order["uri"], "application": APPLICATION, "checkpointLocation": order["checkpoint"]}
    return writer.options(**place).start(order["target"])


def keep(spark: SparkSession, order: dict[str, Any]) -> StreamingQuery:
    """Start the second query: the topic ``source`` into the Delta table ``target``, a column for each field."""
    import tallystick.spark
    from tallystick.spark import IngestSettings

    kinds = dict.fromkeys(("row", *INTEGERS), "BIGINT") | dict.fromkeys(STRINGS, "STRING")
    schema = ", ".join(f"{name} {kinds.get(name, 'TIMESTAMP')}" for name in ORDER)
    ingestion = tallystick.spark.ingest(
        spark,
        format="tally-topic",
        options={
            "nameServer": order["name_server"],
            "subscribe": order["source"],
            "columns": "queueId,queueOffset,body",
            "maxOffsetsPerTrigger": order["batch_rows"],
        },
        target=f"delta:{order['target']}",
        application=APPLICATION,
        checkpoint=order["checkpoint"],
        settings=IngestSettings(value_schema=schema, trigger=TRIGGER),
    )
    return ingestion.query
