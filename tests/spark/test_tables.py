"""Tables that follow streams: what is in the table is what is in the stream, each row once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tallystick import sync
from tallystick.errors import CheckpointLost
from tallystick.runtime.events import Event
from tallystick.spark import IngestSettings, ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Publish = Callable[[str, list[bytes]], None]


@pytest.fixture
def publish(bk: sync.BookKeeper) -> Publish:
    """Append to a stream, which is closed then: all of it is confirmed."""

    def append(name: str, values: list[bytes]) -> None:
        with bk.open_stream(name) as stream:
            stream.append_batch(values)
            stream.roll_over()

    return append


class Following:
    """A table of one stream, brought up to date again and again."""

    def __init__(
        self, spark: SparkSession, uri: str, stream: str, target: str, folder: Path, catalog: Any = None
    ) -> None:
        self.spark, self.uri, self.stream, self.target = spark, uri, stream, target
        self.folder, self.catalog = folder, catalog or {}
        self.events: list[Event] = []

    def run(self, checkpoint: str = "checkpoint", application: str = "test", **settings: Any) -> Any:
        """What the query has done when it has read all there is."""
        query = ingest(
            self.spark,
            options={"uri": self.uri, "subscribe": self.stream},
            target=self.target,
            application=application,
            checkpoint=str(self.folder / checkpoint),
            settings=IngestSettings(**{"trigger": "available-now", "catalog": self.catalog, **settings}),
            listener=self.events.append,
        )
        query.wait()
        return query.progress

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def delta(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(path).to_pyarrow_table()


def test_delta(spark: SparkSession, uri: str, publish: Publish, tmp_path: Path) -> None:
    name = "spark/tables/persistent/delta"
    publish(name, [json.dumps({"n": n, "text": f"row {n}"}).encode() for n in range(100)])
    following = Following(spark, uri, name, f"delta:{tmp_path / 'a table'}", tmp_path)
    assert following.run().rows == 100
    publish(name, [b'{"n": 100, "late": 1.5}', b"no object", b'{"n": "x"}'])
    progress = following.run()
    assert (progress.rows, progress.dead_letters) == (3, 2)
    rows = delta(tmp_path / "a table").to_pylist()
    assert sorted(row["n"] for row in rows if row["n"] is not None) == list(range(101))
    assert sorted(row["_dead_letter"] for row in rows if row["_dead_letter"]) == [b"no object", b'{"n": "x"}']
    assert [row["late"] for row in rows if row["n"] == 100] == [1.5]
    print(following.events, rows[:1])
    with pytest.raises(CheckpointLost):
        following.run(checkpoint="another")


def test_iceberg(spark: SparkSession, uri: str, publish: Publish, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    name = "spark/tables/persistent/iceberg"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    publish(name, [b'{"n": %d, "at": "2026-01-0%dT05:00:00Z"}' % (n, n % 3 + 1) for n in range(90)])
    following = Following(spark, uri, name, "iceberg:demo.rows", tmp_path, catalog)
    settings = {"partition_by": "hour", "event_time": "try_to_timestamp(at)"}
    assert following.run(**settings).files == 3
    publish(name, [b'{"n": 90, "late": true}', b"[]"])
    assert following.run(**settings).dead_letters == 1
    rows = load_catalog(None, **catalog).load_table("demo.rows").scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows if row["n"] is not None) == list(range(91))
    assert [row["late"] for row in rows if row["n"] == 90] == [True]
    assert {row["event_hour"] for row in rows if row["at"]} == {5}
    with pytest.raises(CheckpointLost):
        following.run(checkpoint="another", **settings)


def test_parquet(spark: SparkSession, uri: str, publish: Publish, tmp_path: Path) -> None:
    name, table = "spark/tables/persistent/parquet", tmp_path / "table"
    publish(name, [b'{"n": %d}' % n for n in range(50)])
    following = Following(spark, uri, name, f"parquet:{table}", tmp_path)
    assert following.run(columns="n INT", partition_by="day").rows == 50
    publish(name, [b'{"n": 50}', b"bad"])
    assert following.run(columns="n INT", partition_by="day").rows == 2
    rows = spark.read.parquet(str(table)).collect()
    assert sorted(row.n for row in rows if row.n is not None) == list(range(51))
    assert [bytes(row._dead_letter) for row in rows if row._dead_letter] == [b"bad"]
    with pytest.raises(CheckpointLost):
        following.run(checkpoint="another", columns="n INT", partition_by="day")
