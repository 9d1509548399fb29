"""A Spark program, run as a user would run it: ``summarise.py MASTER URI LEDGERS`` prints what it read, as JSON."""

from __future__ import annotations

import hashlib
import json
import sys

import tallystick.spark

FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # fast to start
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": FAST_JVM,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": FAST_JVM,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task before both executors are there
}


def main(master: str, uri: str, ledgers: str) -> None:
    spark = tallystick.spark.session(master, **SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    options = {"uri": uri, "ledgers": ledgers, "minPartitions": "4"}
    frame = spark.read.format("tally-ledger").options(**options).load()
    rows = frame.selectExpr("*", "spark_partition_id() AS partition").collect()
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.ledger}:{row.entry}:{row.length}:".encode() + bytes(row.payload))
    block_managers = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()  # the driver's is one of them
    found = {
        "rows": len(rows),
        "partitions": len({row.partition for row in rows}),
        "executors": block_managers - 1,
        "sha256": digest.hexdigest(),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
