"""Topics of a broker that asks for keys by TLS, on local[2]: workers read files, and no secret is anywhere else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tallystick.spark
from support.broker_peers import Broker, NameServer
from support.certificates import Authority, secret_file
from support.spark_failures import failure_of
from support.spark_sessions import event_log
from support.waiting import until
from tallystick import sync
from tallystick.errors import TallyError
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.remoting.security import BrokerSecurity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "a-secret-8841-of-root"
TOPIC = "Kept"
PATIENCE_S = 60.0


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options of a topic with one message."""
    authority = Authority.make(tmp_path / "authority")
    made = authority.certify("broker")
    tls = {"tls.server.certPath": made.certificate, "tls.server.keyPath": made.key}
    dial = {"tls.enable": "true", "tls.client.trustCertPath": authority.trust}
    keys = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": f'{{"username":"root","password":"{SECRET}"}}',
    }
    names = NameServer("tally", tmp_path, None, tls)
    broker = Broker("tally", tmp_path, None, names.address, {**keys, **tls, **dial})
    given = {
        "nameServer": names.address,
        "credentialsFile": secret_file(tmp_path / "keys", f"accessKey=root\nsecretKey={SECRET}\n"),
        "tlsCaFile": authority.trust,
    }
    try:
        names.spawn()
        broker.spawn()
        security = BrokerSecurity(credentials_file=given["credentialsFile"], tls_ca_file=authority.trust)

        async def sends() -> bool:
            return await asyncio.to_thread(_sends, names.address, security)

        asyncio.run(until(sends, seconds=60))
        yield given
    finally:
        broker.kill()
        names.kill()


def _sends(name_server: str, security: BrokerSecurity) -> bool:
    settings = BrokerClientSettings(security=security, topic_wait_s=2.0)
    try:
        with sync.topics(name_server, settings=settings) as mq:
            mq.producer("P").send(TOPIC, b"first")
    except TallyError:
        return False
    return True


def collect_until_refused(reader: Any) -> None:
    """Workers look at their files once a second: what is read before that is read by the old key."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        reader.load().collect()


def test_n10_a_query_reads_and_writes_by_files_and_shows_no_secret(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.read.format("tally-topic").options(**options, subscribe=TOPIC).load()
    assert [bytes(row.body) for row in frame.collect()] == [b"first"]
    frame.explain(True)
    added = {**options, "credentialsFile": tallystick.spark.add_key_file(spark, options["credentialsFile"])}
    assert spark.read.format("tally-topic").options(**added, subscribe=TOPIC).load().count() == 1
    given = ", ".join(f"`{name}` '{value}'" for name, value in {**options, "subscribe": TOPIC}.items())
    spark.sql(f"CREATE TABLE kept USING `tally-topic` OPTIONS ({given})")
    catalog = [*spark.sql("DESCRIBE EXTENDED kept").collect(), *spark.sql("SHOW CREATE TABLE kept").collect()]
    assert spark.table("kept").count() == 1
    spark.sql("DROP TABLE kept")
    rows = spark.createDataFrame([(bytearray(b"second"),)], "body BINARY")
    writer = rows.write.format("tally-topic").options(**options, topic=TOPIC, txnAppId="app", txnVersion="1")
    writer.mode("append").save()
    checkpoint = tmp_path / "checkpoint"
    following = spark.readStream.format("tally-topic").options(**options, subscribe=TOPIC, startingOffsets="earliest")
    query = (
        following.load()
        .select("body")
        .writeStream.format("tally-topic")
        .options(**options, topic=TOPIC, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    again = spark.read.format("tally-topic").options(**options, subscribe=TOPIC).load()
    assert sorted(bytes(row.body) for row in again.collect()) == [b"first", b"first", b"second", b"second"]
    secret_file(options["credentialsFile"], "accessKey=root\nsecretKey=another-secret-5519\n")
    others = spark.read.format("tally-topic").options(**options, subscribe=TOPIC, group="G")
    refused = failure_of(lambda: collect_until_refused(others))
    assert "check signature failed" in refused
    shown = capsys.readouterr().out + refused + str(query.lastProgress) + str(catalog)
    kept = "".join(file.read_text(errors="replace") for file in checkpoint.rglob("*") if file.is_file())
    told = event_log(spark)
    assert "SparkListenerSQLExecutionStart" in told and "tally-topic" in told
    for secret in (SECRET, "another-secret-5519"):
        assert secret not in shown and secret not in kept and secret not in told
