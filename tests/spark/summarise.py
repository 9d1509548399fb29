"""A Spark program, run as a user would run it: ``summarise.py MASTER URI LEDGERS`` prints what it read, as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys

import tallystick.spark


def main(master: str, uri: str, ledgers: str) -> None:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "512m"}
    spark = tallystick.spark.session(master, **settings)
    spark.sparkContext.setLogLevel("OFF")
    options = {"uri": uri, "ledgers": ledgers, "minPartitions": "4"}
    rows = spark.read.format("tally-ledger").options(**options).load()
    digest = hashlib.sha256()
    for row in rows.collect():
        digest.update(f"{row.ledger}:{row.entry}:{row.length}:".encode() + bytes(row.payload))
    # The rows came through Python processes of the executors, and none of the driver's.
    parents = rows.rdd.mapPartitions(lambda part: [(os.environ.get("SPARK_EXECUTOR_DIRS", ""), len(list(part)))])
    placed = parents.collect()
    print(
        json.dumps(
            {
                "rows": sum(count for _, count in placed),
                "partitions": len(placed),
                "executors": len({directory for directory, _ in placed}),
                "sha256": digest.hexdigest(),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
