from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tallystick.pipeline.worker as worker_module
from support.certificates import secret_file
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers
from tallystick.bookkeeper.ledger.arrow import schema_of
from tallystick.bookkeeper.ledger.ranges import ranges_of
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata
from tallystick.errors import DigestMismatch, EntryLost, NoSuchEntry, Unauthorized, Unavailable
from tallystick.pipeline.bookies import BookieAddresses
from tallystick.pipeline.columns import BATCH_ROWS
from tallystick.pipeline.ledger.options import LedgerOptions
from tallystick.pipeline.ledger.plan import LedgerPartition
from tallystick.pipeline.ledger.read import read_partition

Store = Callable[..., None]
OPTIONS = LedgerOptions("sqlite:///unused", password=b"secret")
PAYLOADS = [b"payload %d " % number * (number % 7) for number in range(100)]


@pytest.fixture(autouse=True)
def close_worker() -> Iterator[None]:
    yield
    close_workers()


def ledger_of(write_quorum: int, digest: DigestType = DigestType.CRC32C) -> LedgerMetadata:
    names = tuple(f"b{number}" for number in range(3))
    return LedgerMetadata(3, write_quorum, write_quorum, (Fragment(0, names),), digest, b"secret")


def partition_of(cluster: SmallCluster, *ledgers: tuple[int, LedgerMetadata, int]) -> LedgerPartition:
    """The ledgers up to the given last entries. Bookies that are down have no address."""
    ranges = [r for ledger, metadata, last in ledgers for r in ranges_of(ledger, metadata, 0, last)]
    up = {name: bookie.listener.address for name, bookie in cluster.bookies.items() if bookie.listener}
    return LedgerPartition(tuple(ranges), up)


async def read(
    partition: LedgerPartition, schema: pa.Schema | None = None, options: LedgerOptions = OPTIONS
) -> pa.Table:
    wanted = schema_of() if schema is None else schema
    return pa.Table.from_batches(
        await asyncio.to_thread(lambda: list(read_partition(partition, wanted, options))), wanted
    )


@pytest.mark.parametrize("write_quorum", [2, 3])
@pytest.mark.parametrize("digest", list(DigestType))
async def test_rows_are_what_was_written(
    cluster: SmallCluster, store: Store, write_quorum: int, digest: DigestType
) -> None:
    metadata = ledger_of(write_quorum, digest)
    store(7, metadata, PAYLOADS)
    table = await read(partition_of(cluster, (7, metadata, 99)))
    assert table["payload"].to_pylist() == PAYLOADS
    assert table["entry"].to_pylist() == list(range(100))
    assert table["lac"].to_pylist() == list(range(-1, 99))
    assert table["length"].to_pylist()[-1] == sum(map(len, PAYLOADS))
    assert set(table["ledger"].to_pylist()) == {7}
    asked = [request for bookie in cluster.bookies.values() for request in bookie.requests]
    assert all(isinstance(request, v2.ReadFrame | v2.BatchReadFrame) and request.flags == 0 for request in asked)


async def test_small_ledgers_share_batches(cluster: SmallCluster, store: Store) -> None:
    metadata = ledger_of(3)
    for ledger in range(50):
        store(ledger, metadata, PAYLOADS[:4])
    partition = partition_of(cluster, *((ledger, metadata, 3) for ledger in range(50)))
    batches = await asyncio.to_thread(lambda: list(read_partition(partition, schema_of(), OPTIONS)))
    assert len(batches) == 1 and batches[0].num_rows == 200 <= BATCH_ROWS
    assert batches[0]["ledger"].to_pylist() == [ledger for ledger in range(50) for _ in range(4)]


async def test_a_projection_has_the_wanted_schema(cluster: SmallCluster, store: Store) -> None:
    metadata = ledger_of(3)
    store(7, metadata, PAYLOADS)
    wanted = pa.schema([pa.field("payload", pa.binary()), pa.field("entry", pa.int64(), nullable=False)])
    table = await read(partition_of(cluster, (7, metadata, 99)), wanted)
    assert table.schema == wanted and table["payload"].to_pylist() == PAYLOADS


@pytest.mark.rule("Q17")
@pytest.mark.parametrize("write_quorum", [2, 3])
async def test_q17_a_dead_bookie_is_passed_over(cluster: SmallCluster, store: Store, write_quorum: int) -> None:
    metadata = ledger_of(write_quorum)
    store(7, metadata, PAYLOADS)
    await cluster.down("b0")
    table = await read(partition_of(cluster, (7, metadata, 99)))
    assert table["payload"].to_pylist() == PAYLOADS


async def test_a_damaged_copy_is_passed_over_and_the_last_one_is_an_error(cluster: SmallCluster, store: Store) -> None:
    metadata = ledger_of(2)
    store(7, metadata, PAYLOADS)
    for damaged in (0, 1):
        if damaged == 1:
            assert (await read(partition_of(cluster, (7, metadata, 99))))["payload"].to_pylist() == PAYLOADS
        entries = cluster.bookies[f"b{damaged}"].entries
        entries[7, 30] = entries[7, 30][:-1] + bytes([entries[7, 30][-1] ^ 1])
    with pytest.raises(DigestMismatch, match=r"^\[TALLY-DIGEST-MISMATCH\] .*entry=30"):
        await read(partition_of(cluster, (7, metadata, 99)))


@pytest.mark.rule("Q17")
@pytest.mark.parametrize("write_quorum", [2, 3])
async def test_q17_a_bookie_that_dies_in_the_middle_of_a_task_is_passed_over(
    cluster: SmallCluster, store: Store, write_quorum: int
) -> None:
    metadata, payloads = ledger_of(write_quorum), [b"%05d" % number * 20_000 for number in range(200)]
    store(7, metadata, payloads)
    batches = read_partition(partition_of(cluster, (7, metadata, 199)), schema_of(), OPTIONS)
    first = await asyncio.to_thread(next, batches)
    assert cluster.bookies["b0"].requests, "it reads there"
    await cluster.down("b0")
    table = pa.Table.from_batches([first, *await asyncio.to_thread(list, batches)])
    assert table["entry"].to_pylist() == list(range(200)) and table["payload"].to_pylist() == payloads


async def test_a_ledger_that_is_deleted_in_the_middle_of_a_task_is_an_error_and_not_its_end(
    cluster: SmallCluster, store: Store
) -> None:
    metadata, payloads = ledger_of(3), [b"%05d" % number * 20_000 for number in range(400)]
    store(7, metadata, payloads)
    batches = read_partition(partition_of(cluster, (7, metadata, 399)), schema_of(), OPTIONS)
    await asyncio.to_thread(next, batches)
    for bookie in cluster.bookies.values():
        bookie.clear()
    with pytest.raises(NoSuchEntry, match=r"^\[TALLY-NO-SUCH-ENTRY\]"):
        await asyncio.to_thread(list, batches)


@pytest.mark.parametrize("write_quorum", [2, 3])
async def test_what_was_given_up_is_an_error_or_is_left_out_and_said(
    cluster: SmallCluster, store: Store, capsys: pytest.CaptureFixture[str], write_quorum: int
) -> None:
    metadata = ledger_of(write_quorum)
    store(7, metadata, PAYLOADS[:50])
    metadata = with_lost(metadata, [(0, 0), (10, 12), (49, 49)])
    with pytest.raises(EntryLost, match=r"^\[TALLY-ENTRY-LOST\]"):
        await read(partition_of(cluster, (7, metadata, 49)))
    table = await read(replace(partition_of(cluster, (7, metadata, 49)), fail_on_data_loss=False))
    assert table["entry"].to_pylist() == [*range(1, 10), *range(13, 49)]
    assert capsys.readouterr().err.count("lost entries are left out") == 3


async def test_of_what_is_deleted_the_rest_is_left_out_if_it_is_to_be(
    cluster: SmallCluster, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = ledger_of(3)
    store(7, metadata, PAYLOADS[:50])
    store(8, metadata, PAYLOADS[:10])
    left = replace(partition_of(cluster, (7, metadata, 99), (8, metadata, 9)), fail_on_data_loss=False)
    table = await read(left)
    rows = [(row["ledger"], row["entry"]) for row in table.to_pylist()]
    count = len(rows) - 10
    assert 0 < count <= 50 and rows == [*((7, entry) for entry in range(count)), *((8, entry) for entry in range(10))]
    assert "the rest of a ledger is left out: ledger=7" in capsys.readouterr().err


async def test_a_missing_entry_is_an_error(cluster: SmallCluster, store: Store) -> None:
    metadata = ledger_of(3)
    store(7, metadata, PAYLOADS[:50])
    with pytest.raises(NoSuchEntry, match=r"^\[TALLY-NO-SUCH-ENTRY\]"):
        await read(partition_of(cluster, (7, metadata, 99)))


async def test_no_bookie_at_all_is_an_error(cluster: SmallCluster) -> None:
    await cluster.down(*cluster.bookies)
    with pytest.raises(Unavailable, match=r"^\[TALLY-BOOKIE-UNAVAILABLE\]"):
        await read(partition_of(cluster, (7, ledger_of(3), 99)))


async def test_the_worker_is_kept_until_bookies_move(cluster: SmallCluster, store: Store) -> None:
    metadata = ledger_of(3)
    store(7, metadata, PAYLOADS)
    await read(partition_of(cluster, (7, metadata, 9)))
    first = worker_module._workers[BookieAddresses]
    await read(partition_of(cluster, (7, metadata, 19)))
    assert worker_module._workers[BookieAddresses] is first
    await cluster.down("b0")
    await read(partition_of(cluster, (7, metadata, 9)))
    assert worker_module._workers[BookieAddresses] is not first


async def test_a_password_is_read_where_the_task_runs(
    cluster: SmallCluster, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = ledger_of(2, DigestType.HMAC)
    store(7, metadata, PAYLOADS)
    partition = partition_of(cluster, (7, replace(metadata, password=b""), 99))
    path = secret_file(tmp_path / "password", "secret\n")
    options = LedgerOptions.parse({"uri": "sqlite:///unused", "passwordFile": path}, {})
    assert (await read(partition, options=options)).num_rows == 100
    monkeypatch.setenv("TALLY_PASSWORD", "secret")
    options = LedgerOptions.parse({"uri": "sqlite:///unused"})
    assert (await read(partition, options=options)).num_rows == 100 and b"secret" not in pickle.dumps(options)
    monkeypatch.delenv("TALLY_PASSWORD")
    with pytest.raises(Unauthorized, match=r"^\[TALLY-UNAUTHORIZED\] TALLY_PASSWORD is set where .* passwordFile"):
        await read(partition, options=options)


async def test_a_password_is_not_read_for_what_no_password_is_needed_for(
    cluster: SmallCluster, store: Store, tmp_path: Path
) -> None:
    """Its file may be on the machine alone where the query is planned."""
    metadata = ledger_of(2, DigestType.CRC32C)
    store(7, metadata, PAYLOADS)
    options = LedgerOptions.parse({"uri": "sqlite:///unused", "passwordFile": str(tmp_path / "elsewhere")}, {})
    assert (await read(partition_of(cluster, (7, metadata, 99)), options=options)).num_rows == 100


async def test_an_empty_partition_asks_nobody() -> None:
    assert (await read(LedgerPartition((), {}))).num_rows == 0
    assert not worker_module._workers
