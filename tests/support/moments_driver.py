"""A Spark query in a process of its own, which the kill matrix stops at moments: a copy of a stream, or of a topic.

Usage: ``python moments_driver.py JOB`` with a ``Job`` in JSON. It ends with 0 when all that the source has now is
copied, and with 1 and what the query failed with in FOLDER/error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tallystick.spark
from support.moments import FOLDER, MomentsDataSource, TopicMomentsDataSource
from support.spark_jvm import fast_jvm

ROWS_A_BATCH = 24


@dataclass(frozen=True)
class Job:
    """``name_server``: ``source`` is a topic of its brokers, not a stream; ``sink_name_server``: so is ``sink``.

    ``speculates``: a task that takes longer than others is run a second time beside it, on another host.
    """

    uri: str
    source: str
    sink: str
    folder: str
    master: str = "local[2]"
    name_server: str = ""
    sink_name_server: str = ""
    checkpoint: str = "checkpoint"
    speculates: bool = False

    def command(self) -> list[str]:
        return [sys.executable, __file__, json.dumps(dataclasses.asdict(self))]

    @property
    def error(self) -> str:
        path = Path(self.folder) / "error"
        return path.read_text() if path.exists() else ""


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.5",
}


def run(job: Job) -> int:
    environment = {name: os.environ[name] for name in ("PYTHONPATH", FOLDER)}
    spark = tallystick.spark.session(
        job.master,
        **{
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": fast_jvm(),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": fast_jvm(),
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.local.dir": job.folder,
            "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
            **(SPECULATION if job.speculates else {}),
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    for source in (MomentsDataSource, TopicMomentsDataSource):
        spark.dataSource.register(source)
    if job.name_server:
        reader = spark.readStream.format("tally-topic").options(nameServer=job.name_server)
        values = "body AS value"
    else:
        reader, values = spark.readStream.format("tally-moments").options(uri=job.uri), "value"
    rows = reader.options(
        subscribe=job.source, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS_A_BATCH), minPartitions="2"
    ).load()
    query = rows.selectExpr(values).writeStream.option("application", "copier")
    if job.sink_name_server:
        query = query.format("tally-topic-moments").options(nameServer=job.sink_name_server, order="arrival")
    else:
        query = query.format("tally-moments").options(uri=job.uri)
    try:
        started = query.option("checkpointLocation", f"{job.folder}/{job.checkpoint}").trigger(availableNow=True)
        started.start(job.sink).awaitTermination()
    except Exception as error:
        (Path(job.folder) / "error").write_text(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(Job(**json.loads(sys.argv[1]))))
