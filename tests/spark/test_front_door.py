"""What a newcomer tries first: SQL tables, load(path), no options at all, streams and sinks that are not there yet."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.certificates import secret_file
from support.spark_failures import failure_of
from support.spark_sessions import event_log
from tallystick import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Write

pytestmark = pytest.mark.spark


@pytest.fixture
def ledger(write: Write, bk: sync.BookKeeper) -> Iterator[int]:
    made = write([b"%d" % number for number in range(10)])
    yield made
    bk.delete_ledger(made)


def test_a_table_of_the_catalog_keeps_its_options(spark: SparkSession, uri: str, ledger: int) -> None:
    spark.sql(
        f"CREATE TABLE entries USING `tally-ledger` OPTIONS (uri '{uri}', ledgers '{ledger}', firstEntry '4', "
        "columns 'entry,payload') COMMENT 'the last ones' TBLPROPERTIES ('mine' = 'yes')"
    )
    try:
        rows = spark.sql("SELECT * FROM entries WHERE entry < 6").collect()
        assert [(row.entry, bytes(row.payload)) for row in rows] == [(4, b"4"), (5, b"5")]
        assert spark.read.option("firstEntry", "8").table("entries").count() == 2
    finally:
        spark.sql("DROP TABLE entries")


def test_a_table_keeps_no_password(spark: SparkSession, uri: str) -> None:
    statement = f"CREATE TABLE secrets USING `tally-ledger` OPTIONS (uri '{uri}', password 'not-for-all')"
    text = failure_of(lambda: spark.sql(statement))
    assert "[TALLY-USAGE-ERROR] a table keeps no password" in text and "not-for-all" not in text


def test_a_table_knows_the_file_of_its_password_and_no_password(
    spark: SparkSession, uri: str, write: Write, bk: sync.BookKeeper, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made, secret = (
        write([b"1", b"2"], digest="hmac", password=b"secret-of-7718"),
        secret_file(tmp_path / "p", "secret-of-7718"),
    )
    options = f"uri '{uri}', ledgers '{made}', passwordFile '{secret}'"
    try:
        spark.sql(f"CREATE TABLE keyed USING `tally-ledger` OPTIONS ({options})")
        frame = spark.table("keyed")
        assert sorted(bytes(row.payload) for row in frame.collect()) == [b"1", b"2"]
        shown = [frame._jdf.queryExecution().toString(), *map(str, spark.sql("DESCRIBE EXTENDED keyed").collect())]
        shown.append(event_log(spark))
        assert "keyed" in shown[-1]
        assert not any("secret-of-7718" in text for text in (*shown, *capfd.readouterr()))
    finally:
        spark.sql("DROP TABLE IF EXISTS keyed")
        bk.delete_ledger(made)


def test_a_temporary_view(spark: SparkSession, uri: str, ledger: int) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW seen USING `tally-ledger` OPTIONS (uri '{uri}', ledgers '{ledger}')")
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == 10  # type: ignore[index]  # there is always a row


def test_a_path_and_a_development_cluster(
    spark: SparkSession, uri: str, ledger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.read.format("tally-ledger").option("uri", uri).load(str(ledger)).count() == 10
    assert spark.read.format("tally-ledger").option("ledgers", ledger).load(uri).count() == 10
    text = failure_of(lambda: spark.read.format("tally-ledger").option("ledger", ledger).load(uri))
    assert "did you mean ledgers?" in text


def test_writing_ledgers_says_what_to_do_instead(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    rows = spark.range(3)
    rate: Any = spark.readStream.format("rate").load()

    def run() -> None:
        writer = rate.writeStream.format("tally-ledger").option("uri", uri).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    for mode in ("append", "overwrite"):
        text = failure_of(lambda mode=mode: rows.write.format("tally-ledger").option("uri", uri).mode(mode).save())  # type: ignore[misc]
        assert "[TALLY-USAGE-ERROR] tally-ledger cannot be written by Spark" in text
    assert "tally-ledger cannot be written by Spark" in failure_of(run)


PROGRAM = """
import sys, warnings
from pyspark.sql import SparkSession
import tallystick.spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
tallystick.spark.register(spark)
print("rows", spark.read.format("tally-ledger").load(sys.argv[1]).count())
"""


def test_a_session_of_one_s_own_outside_of_an_activated_environment(
    uri: str, ledger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python3`` is an interpreter without tallystick there, and PYSPARK_PYTHON is not set."""
    venv.create(tmp_path / "bare", symlinks=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bare' / 'bin'}:/usr/bin:/bin")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("TALLY_URI", uri)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ledger)], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert "rows 10" in done.stdout, done.stderr[-3000:]
