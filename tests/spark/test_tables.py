"""Tables that follow streams: what is in the table is what is in the stream, each row once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from support.spark_jvm import fast_jvm
from tallystick import sync
from tallystick.errors import CheckpointLost, UsageError
from tallystick.runtime.events import Event
from tallystick.spark import IngestSettings, ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIVER = """
import os, signal, sys, threading
import tallystick.spark
from tallystick.pipeline.tables.delta import DeltaTarget
from tallystick.pipeline.tables.iceberg import IcebergTarget

uri, stream, folder, when, at, jvm, *catalog = sys.argv[1:]
both = threading.Barrier(2, action=lambda: os.killpg(0, signal.SIGKILL))
for kind in (DeltaTarget, IcebergTarget):

    def dying(self, files, new, application, written, commit=kind.commit):
        if written.batch == int(at):
            if when == "after":
                commit(self, files, new, application, written)
            both.wait()
        return commit(self, files, new, application, written)

    kind.commit = dying
spark = tallystick.spark.session("local[2]", **{"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": jvm})
of_iceberg = dict(pair.split("=", 1) for pair in catalog)
for target, catalog in ((f"delta:{folder}/delta", {}), ("iceberg:demo.killed", of_iceberg)):
    tallystick.spark.ingest(
        spark, options={"uri": uri, "subscribe": stream, "maxOffsetsPerTrigger": 20}, target=target, application="test",
        checkpoint=f"{folder}/{target[:5]}", settings=tallystick.spark.IngestSettings(
            schema="raw", trigger="available-now", catalog=catalog),
    )
spark.streams.awaitAnyTermination()
"""
PATIENCE_S = 180.0

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

    def run(self, checkpoint: str = "checkpoint", application: str = "test", most: int = 1000, **settings: Any) -> Any:
        """What the query has done when it has read all there is, ``most`` entries a batch."""
        query = ingest(
            self.spark,
            options={"uri": self.uri, "subscribe": self.stream, "maxOffsetsPerTrigger": most},
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


def delta_files(path: Path) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(path).file_uris()


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
    shutil.rmtree(tmp_path / "a table")
    publish(name, [b'{"n": 101}'])
    with pytest.raises(CheckpointLost, match="committed to this table, which lacks it"):
        following.run()


def test_iceberg(spark: SparkSession, uri: str, publish: Publish, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    name = "spark/tables/persistent/iceberg"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    publish(name, [b'{"n": %d, "at": "2026-01-0%dT05:00:00Z"}' % (n, n % 3 + 1) for n in range(90)])
    following = Following(spark, uri, name, "iceberg:demo.rows", tmp_path, catalog)
    settings: dict[str, Any] = {"partition_by": "hour", "event_time": "try_to_timestamp(at)"}
    assert following.run(**settings).files == 3
    publish(name, [b'{"n": 90, "late": true}', b"[]"])
    assert following.run(**settings).dead_letters == 1
    rows = load_catalog(None, **catalog).load_table("demo.rows").scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows if row["n"] is not None) == list(range(91))
    assert [row["late"] for row in rows if row["n"] == 90] == [True]
    assert {row["event_hour"] for row in rows if row["at"]} == {5}
    with pytest.raises(CheckpointLost):
        following.run(checkpoint="another", **settings)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_event_times_that_are_none_end_no_query(
    spark: SparkSession, bk: sync.BookKeeper, uri: str, tmp_path: Path, kind: str
) -> None:
    """A producer counts in microseconds, say: its messages are on the days on which they were published."""
    stream = f"spark/tables/persistent/times-{kind}"
    with bk.open_stream(stream) as owned:
        for number, time in enumerate([1_700_000_000_000, 1_700_000_000_000_000, 253_402_300_800_000, 0]):
            owned.append(b'{"n": %d}' % number, event_time=time)
        owned.roll_over()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    target = f"delta:{tmp_path}/t" if kind == "delta" else "iceberg:demo.times"
    following = Following(spark, uri, stream, target, tmp_path, catalog if target.startswith("iceberg") else None)
    assert following.run(partition_by="hour").rows == 4
    if kind == "delta":
        table = delta(tmp_path / "t").select(["n", "event_day"])
    else:
        from pyiceberg.catalog import load_catalog

        table = load_catalog(None, **catalog).load_table("demo.times").scan().to_arrow()
    days = dict(zip(table.column("n").to_pylist(), table.column("event_day").to_pylist(), strict=True))
    assert (days[0], days[3]) == (date(2023, 11, 14), date(1970, 1, 1)) and days[1] == days[2] > days[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partition_by": "day", "event_time": "nosuch + 1"}, "event_time is an expression of SQL .*`nosuch`"),
        ({"partition_by": "day", "event_time": "(("}, "event_time is an expression of SQL .*PARSE_SYNTAX_ERROR"),
        ({"partition_by": "day", "event_time": "n"}, "event_time is a timestamp, not of bigint"),
        ({"schema": lambda frame: None}, "what a schema function returns is of type DataFrame"),
    ],
)
def test_settings_that_do_not_fit_the_rows_end_the_query_in_words(
    spark: SparkSession, uri: str, publish: Publish, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    name = f"spark/tables/persistent/unfit-{tmp_path.name}"
    publish(name, [b'{"n": 1}'])
    with pytest.raises(UsageError, match=said) as refused:
        Following(spark, uri, name, f"delta:{tmp_path / 't'}", tmp_path).run(**settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("kafkaa", r"Spark knows no source of this format \(format=kafkaa\)"),
        ("kafka", r"Spark cannot follow this source: \[KAFKA_DATA_SOURCE_NOT_ENABLED\].* \(format=kafka\)"),
        ("csv", r"Spark cannot follow this source: 'path' is not specified. \(format=csv\)"),
    ],
)
def test_a_source_that_spark_cannot_follow_is_refused_in_words(
    spark: SparkSession, tmp_path: Path, format: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        ingest(spark, options={}, target=f"delta:{tmp_path}", application="a", checkpoint=str(tmp_path), format=format)


def test_the_command_says_in_words_what_ended_its_query(uri: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "tallystick", "spark", "ingest",
            "spark/tables/persistent/none", f"delta:{tmp_path}/table", "--checkpoint", f"{tmp_path}/checkpoint",
            "--uri", uri, "--trigger", "available-now", "--master", "local[1]",
        ],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "tally: There is no stream of this name" in done.stderr
    assert "\tat " not in done.stderr and "Traceback" not in done.stderr


def test_parquet(spark: SparkSession, uri: str, publish: Publish, tmp_path: Path) -> None:
    name, table = "spark/tables/persistent/parquet", tmp_path / "table"
    publish(name, [b'{"n": %d}' % n for n in range(50)])
    following = Following(spark, uri, name, f"parquet:{table}", tmp_path)
    assert following.run(value_schema="n INT", partition_by="day").rows == 50
    publish(name, [b'{"n": 50}', b"bad"])
    assert following.run(value_schema="n INT", partition_by="day").rows == 2
    rows = spark.read.parquet(str(table)).collect()
    assert sorted(row.n for row in rows if row.n is not None) == list(range(51))
    assert [bytes(row._dead_letter) for row in rows if row._dead_letter] == [b"bad"]
    with pytest.raises(CheckpointLost):
        following.run(checkpoint="another", value_schema="n INT", partition_by="day")


def test_each_row_is_there_once_though_the_driver_dies_before_its_commit_and_behind_it(
    spark: SparkSession, uri: str, bk: sync.BookKeeper, tmp_path: Path
) -> None:
    from pyiceberg.catalog import load_catalog

    name = "spark/tables/persistent/killed"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with bk.open_stream(name) as stream:
        for n in range(60):
            stream.append(b"%03d" % n)
        stream.roll_over()
    for when, at in (("before", 0), ("after", 1)):  # batch 0 comes again, and is committed; batch 1 was committed
        of_catalog = [f"{key}={value}" for key, value in catalog.items()]
        arguments = [uri, name, str(tmp_path), when, str(at), fast_jvm(), *of_catalog]
        died = subprocess.run(
            [sys.executable, "-c", DRIVER, *arguments],
            start_new_session=True, timeout=PATIENCE_S, capture_output=True, text=True,
        )  # fmt: skip
        assert died.returncode == -signal.SIGKILL, died.stderr[-3000:]
    tables = (
        ("delta", Following(spark, uri, name, f"delta:{tmp_path / 'delta'}", tmp_path)),
        ("icebe", Following(spark, uri, name, "iceberg:demo.killed", tmp_path, catalog)),
    )
    for checkpoint, following in tables:
        progress = following.run(checkpoint, most=20, schema="raw")
        assert (progress.skipped, progress.batches, progress.rows, progress.batch) == (1, 1, 20, 2)
        assert following.kinds().count("batch skipped") == 1
    values = [b"%03d" % n for n in range(60)]
    assert sorted(delta(tmp_path / "delta").column("value").to_pylist()) == values
    table = load_catalog(None, **catalog).load_table("demo.killed")
    assert sorted(table.scan().to_arrow().column("value").to_pylist()) == values
    # The attempt that died before its commit left files, which no reader sees and a sweep will find.
    assert len(list((tmp_path / "delta").glob("tally-*.parquet"))) > len(delta_files(tmp_path / "delta"))
