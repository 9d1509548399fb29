"""Spark over the original's broker and name server: topics as rows, and rows that are sent at least once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.broker_peers import Broker
from support.houses import House
from support.java import Java
from support.messages import TAGS, message
from support.spark_failures import failure_of
from support.spark_sessions import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE = 500
SOURCE, COPY = "SparkIn", "SparkCopy"


@pytest.fixture(scope="module")
def spark(rocketmq: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session("local[2]", tmp_path_factory.mktemp("warehouse")) as started:
        yield started


@pytest.fixture(scope="module")
def house(rocketmq: Java, folder: Path, new_house: Callable[[str], Coroutine[Any, Any, House]]) -> Iterator[House]:
    """With an original broker, and both topics."""
    started = asyncio.run(new_house("java"))
    broker = Broker("java", folder, rocketmq, started.ns, {})
    try:
        asyncio.run(started.start(broker))
        for topic in (SOURCE, COPY):
            asyncio.run(started.make_topic(topic))
        yield started
    finally:
        broker.kill()
        asyncio.run(started.forget())


def test_a_query_follows_an_original_broker_and_copies_to_it_at_least_once(
    spark: SparkSession, house: House, tmp_path: Path
) -> None:
    """A batch of which Spark does not know that it is through is sent again, as an original stores what it is sent."""
    _send(house, first=0, count=60)
    _copy(spark, house, tmp_path)
    assert _bodies(_rows(spark, house, SOURCE)) == _bodies(_rows(spark, house, COPY)) == _sent(range(60))
    tags = {row.tags for row in _rows(spark, house, COPY).select("tags").distinct().collect()}
    assert tags == set(TAGS)
    _send(house, first=60, count=30)
    for path in (tmp_path / "checkpoint" / "commits").glob("*2*"):  # it had the last three of each queue
        path.unlink()
    _copy(spark, house, tmp_path)
    copied = _bodies(_rows(spark, house, COPY))
    assert sorted(set(copied)) == _sent(range(90)) and len(copied) == 90 + 12


def test_exactly_once_is_refused_before_a_row_is_sent(spark: SparkSession, house: House, tmp_path: Path) -> None:
    _send(house, first=200, count=10)
    before = _rows(spark, house, COPY).count()
    assert re.search(
        r"TALLY-USAGE-ERROR.*b0 does not know messages that it has.*delivery=at-least-once, or write a stream",
        failure_of(lambda: _copy(spark, house, tmp_path, delivery="exactly-once")),
    )
    frame = _rows(spark, house, SOURCE).select("body").write.format("tally-topic").mode("append")
    options = {"nameServer": house.ns, "delivery": "exactly-once", "txnAppId": "app", "txnVersion": "1"}
    assert "TALLY-USAGE-ERROR" in failure_of(lambda: frame.options(**options).save(COPY))
    assert _rows(spark, house, COPY).count() == before


def _send(house: House, *, first: int, count: int) -> None:
    sending = house.clients["java"].ask(
        "send", ns=house.ns, topic=SOURCE, seed=7, first=first, count=count, size=SIZE, how="sync"
    )
    assert asyncio.run(sending)["SEND_OK"] == str(count)


def _sent(numbers: range) -> list[bytes]:
    return sorted(bytes(message(SOURCE, 7, number, SIZE).body) for number in numbers)


def _rows(spark: SparkSession, house: House, topic: str) -> DataFrame:
    return spark.read.format("tally-topic").options(nameServer=house.ns, subscribe=topic).load()


def _bodies(rows: DataFrame) -> list[bytes]:
    return sorted(bytes(row.body) for row in rows.select("body").collect())


def _copy(spark: SparkSession, house: House, folder: Path, **options: str) -> None:
    """What is new in the source, in batches of six rows a queue."""
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "24"}
    rows = spark.readStream.format("tally-topic").options(nameServer=house.ns, subscribe=SOURCE, **limits).load()
    query = rows.select("body", "keys", "tags").writeStream.format("tally-topic")
    query = query.options(nameServer=house.ns, checkpointLocation=str(folder / "checkpoint"), **options)
    query.trigger(availableNow=True).start(COPY).awaitTermination()
