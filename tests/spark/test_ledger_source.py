"""The source on local[2], against real bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.links import AddLog
from support.listening import open_to_others
from support.spark_failures import failure_of
from support.waiting import until
from tallystick import sync
from tallystick.admin.dev import DevCluster
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.pipeline.bookies import bookie_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Read = Callable[..., "DataFrame"]
Write = Callable[..., int]
PAYLOADS = [b"row %d " % number * (number % 5) for number in range(1000)]


@pytest.fixture(scope="module")
def closed(bk: sync.BookKeeper) -> int:
    with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        writer.append_batch(PAYLOADS)
        return writer.id


def payloads_of(frame: DataFrame) -> list[bytes]:
    return [bytes(row.payload) for row in frame.select("payload").collect()]


@pytest.mark.parametrize(("ensemble", "write_quorum", "ack_quorum"), [(3, 3, 2), (3, 2, 2), (4, 3, 2), (1, 1, 1)])
def test_rows_are_the_entries_in_order(
    read: Read, write: Write, ensemble: int, write_quorum: int, ack_quorum: int
) -> None:
    ledger = write(PAYLOADS, ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)
    rows = read(ledgers=ledger, minPartitions=3).collect()
    assert [bytes(row.payload) for row in rows] == PAYLOADS
    assert [(row.ledger, row.entry) for row in rows] == [(ledger, entry) for entry in range(len(PAYLOADS))]
    assert rows[-1].length == sum(map(len, PAYLOADS)) and rows[-1].lac < rows[-1].entry


@pytest.mark.parametrize("digest", ["crc32", "crc32c", "hmac", "dummy"])
def test_each_digest_with_a_password(read: Read, write: Write, digest: str) -> None:
    ledger = write(PAYLOADS[:50], digest=digest, password=b"secret")
    assert payloads_of(read(ledgers=ledger, password="secret")) == PAYLOADS[:50]


@pytest.mark.rule("Q6", "Q11", "Q17")
def test_q17_an_open_ledger_is_read_up_to_its_lac_and_stays_writable(bk: sync.BookKeeper, read: Read) -> None:
    with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        for payload in PAYLOADS[:20]:
            writer.append(payload)
        found = payloads_of(read(ledgers=writer.id))
        assert found == PAYLOADS[: len(found)] and 18 <= len(found) <= writer.lac + 1
        assert writer.append(b"more") == 20
        assert not bk.ledger_metadata(writer.id).is_closed
    assert payloads_of(read(ledgers=writer.id)) == [*PAYLOADS[:20], b"more"]


def test_a_ledger_without_entries_has_no_rows(read: Read, write: Write) -> None:
    assert read(ledgers=write([])).count() == 0


def test_many_small_ledgers_make_one_partition(read: Read, write: Write) -> None:
    ledgers = [write([b"%d" % number]) for number in range(12)]
    frame = read(ledgers=f"{ledgers[0]}-{ledgers[-1]}")
    assert frame.rdd.getNumPartitions() == 1
    assert payloads_of(frame) == [b"%d" % number for number in range(12)]


def test_counting_and_projections(spark: SparkSession, read: Read, uri: str, closed: int) -> None:
    assert read(ledgers=closed).count() == len(PAYLOADS)
    by_option = read(ledgers=closed, columns="payload,entry")
    assert by_option.columns == ["payload", "entry"]
    by_schema = (
        spark.read.format("tally-ledger").schema("entry BIGINT, payload BINARY").options(uri=uri, ledgers=closed)
    )
    assert by_schema.load().columns == ["entry", "payload"]
    for frame in (by_option, by_schema.load()):
        rows = frame.collect()
        assert [(row.entry, bytes(row.payload)) for row in rows] == list(enumerate(PAYLOADS))


def test_entries_can_be_limited(read: Read, closed: int) -> None:
    rows = read(ledgers=closed, firstEntry=990, lastEntry=5000).collect()
    assert [row.entry for row in rows] == list(range(990, 1000))


def test_filters_are_pushed_into_the_plan(read: Read, write: Write, closed: int) -> None:
    other = write(PAYLOADS[:10])
    frame = read(columns="ledger,entry,lac").where(f"ledger IN ({closed}, {other}) AND entry BETWEEN 5 AND 11")
    rows = [(row.ledger, row.entry) for row in frame.collect()]
    assert rows == sorted([(closed, entry) for entry in range(5, 12)] + [(other, entry) for entry in range(5, 10)])
    assert "Filter (" not in frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" in frame.where("lac >= 0")._jdf.queryExecution().executedPlan().toString()
    assert read().where(f"ledger = {closed} AND length(payload) = 0").count() == 200


def test_sql_reads_a_table_of_ledgers(spark: SparkSession, uri: str, closed: int) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW rows USING `tally-ledger` OPTIONS (uri '{uri}', ledgers '{closed}')")
    assert spark.sql("SELECT max(entry) AS last FROM rows").collect()[0].last == 999


def test_parquet_has_what_the_ledger_has(spark: SparkSession, read: Read, closed: int, tmp_path: Path) -> None:
    read(ledgers=closed).write.parquet(str(tmp_path / "table"))
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("entry").collect()
    assert [bytes(row.payload) for row in rows] == PAYLOADS


@pytest.mark.rule("Q17")
def test_q17_dead_bookies_are_passed_over(bookies: DevCluster, read: Read, write: Write) -> None:
    whole = write(PAYLOADS, ensemble=4, write_quorum=4, ack_quorum=4)
    striped = write(PAYLOADS, ensemble=4, write_quorum=2, ack_quorum=2)
    bookies.kill(["bookie-2"])
    try:
        assert payloads_of(read(ledgers=whole)) == PAYLOADS
        assert payloads_of(read(ledgers=striped)) == PAYLOADS
    finally:
        bookies.restart(["bookie-2"])


def test_a_bookie_that_moved_is_found_by_the_next_query(bookies: DevCluster, read: Read, closed: int) -> None:
    for bookie in ("bookie-1", "bookie-2", "bookie-3", "bookie-4"):
        assert payloads_of(read(ledgers=closed)) == PAYLOADS
        bookies.restart([bookie])
    assert payloads_of(read(ledgers=closed)) == PAYLOADS


async def damaged_ledger(uri: str) -> int:
    """A closed ledger whose entry 3 has wrong bytes on every bookie. (Bookies do not look at digests.)"""
    driver = await open_driver(uri)
    bookies = (await driver.bookies()).writable
    client = bookie_client({name: info.address for name, info in bookies.items() if info.address})
    ensemble = tuple(sorted(bookies))[:3]
    digest, metadata = (
        Digest.of(DigestType.CRC32C),
        LedgerMetadata(3, 3, 3, (Fragment(0, ensemble),), DigestType.CRC32C),
    )
    ledger, stored_there = (await driver.create_ledger(metadata)).value, AddLog()
    for entry in range(5):
        body = bytearray(digest.encode(EntryHeader(ledger, entry, entry - 1, 7 * (entry + 1)), b"payload"))
        body[-1] ^= entry == 3
        frame = v2.AddFrame(ledger, entry, master_key(b""), bytes(body)).encode()
        for bookie in ensemble:
            client.adds(bookie, ledger, stored_there).send([entry], frame)
    await until(lambda: len(stored_there.all_acked) == 5 * len(ensemble))
    stored = await driver.read_ledger(ledger)
    await driver.write_ledger(ledger, stored.value.closed(4, 35), stored.version)
    await client.close()
    await driver.close()
    return ledger


def test_bytes_that_match_no_digest_are_an_error(bk: sync.BookKeeper, read: Read, uri: str) -> None:
    ledger = asyncio.run(damaged_ledger(uri))
    try:
        text = failure_of(read(ledgers=ledger).collect)
        assert "[TALLY-DIGEST-MISMATCH]" in text and "entry=3" in text
        assert len(read(ledgers=ledger, lastEntry=2).collect()) == 3
    finally:
        bk.delete_ledger(ledger)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ledger": "1"}, "[TALLY-USAGE-ERROR] unknown option: ledger (did you mean ledgers?); known: path, uri, "),
        ({"columns": "value"}, "[TALLY-USAGE-ERROR] columns are some of ledger, entry, lac, length, payload"),
        ({"ledgers": "123456789"}, "[TALLY-NO-SUCH-LEDGER]"),
    ],
)
def test_mistakes_are_named(read: Read, options: dict[str, str], text: str) -> None:
    assert text in failure_of(lambda: read(**options).collect())


def test_passwords_are_in_no_error_and_no_plan(bk: sync.BookKeeper, read: Read, write: Write) -> None:
    ledger = write(PAYLOADS[:3], digest="hmac", password=b"right-one")
    try:
        text = failure_of(read(ledgers=ledger, password="wrong-one").collect)
        assert "[TALLY-UNAUTHORIZED]" in text and "right-one" not in text and "wrong-one" not in text
        frame = read(ledgers=ledger, password="right-one")
        assert frame.count() == 3
        assert "right-one" not in frame._jdf.queryExecution().toString()
    finally:
        bk.delete_ledger(ledger)  # other tests read all ledgers, without a password


def test_spark_listens_on_loopback_only(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None and open_to_others(gateway.proc.pid) == []


def test_push_down_can_be_set_and_unset_in_a_session(spark: SparkSession, read: Read, closed: int) -> None:
    import tallystick.spark

    last = read(ledgers=closed).where("entry >= 998")
    for setting in ("false", "true"):
        spark.conf.set(tallystick.spark.PUSHDOWN, setting)
        assert read(ledgers=closed).where("entry >= 998").count() == 2
        assert last.count() == 2
        pushed = "PushedFilters" in last.select("entry").where("entry >= 999")._jdf.queryExecution().toString()
        assert pushed in (setting == "true", False)
