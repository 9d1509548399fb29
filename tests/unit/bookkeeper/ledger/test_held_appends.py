"""Writers whose caller gives the ids, over bookies that misbehave on order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from support.fake_bookie import FakeBookie
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import writers
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import EntriesMissing, EntryExists, LedgerClosed, LedgerFenced, UsageError


@pytest.fixture(autouse=True, params=[128, 0], ids=["", "without sessions"])
def sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is idle may keep what it needs to send, or make it again."""
    monkeypatch.setattr(writers, "IDLE_SESSIONS", request.param)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(5)
    yield made
    await made.close()


def member(cluster: SmallCluster, writer: LedgerWriter, slot: int) -> FakeBookie:
    return cluster.bookies[writer.metadata.ensemble[slot]]


def payload(entry: int) -> bytes:
    return b"%d" % entry * (entry % 5 + 1)


async def read_all(cluster: SmallCluster, ledger: int) -> list[tuple[int, bytes]]:
    async with cluster.client().open_ledger(ledger, recover=True) as reader:
        return [(entry.id, entry.data) async for entry in reader]


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2), (3, 2, 1)])
@pytest.mark.parametrize("seed", range(6))
async def test_27_any_order_is_confirmed_told_and_read_in_id_order(
    cluster: SmallCluster, sizes: tuple[int, int, int], seed: int
) -> None:
    order, told = list(range(60)), list[int]()
    random.Random(seed).shuffle(order)
    ensemble, write, ack = sizes
    creation = cluster.client().create_ledger(ensemble, write_quorum=write, ack_quorum=ack, entry_ids="given")
    async with creation as writer:
        for place, entry in enumerate(order):
            writer.append_nowait(payload(entry), entry).add_done_callback(lambda future: told.append(future.result()))
            if place in (20, 40):
                await asyncio.sleep(0.01)
                await cluster.down(writer.metadata.ensemble[place // 20 - 1])
                await cluster.up(*[name for name, bookie in cluster.bookies.items() if bookie.listener is None][:1])
        await writer.drain()
    assert told == list(range(60))
    assert (writer.metadata.last_entry, writer.length) == (59, sum(len(payload(entry)) for entry in range(60)))
    assert await read_all(cluster, writer.id) == [(entry, payload(entry)) for entry in range(60)]


async def test_the_length_in_an_entry_is_that_of_the_ledger_up_to_it(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger(entry_ids="given") as writer:
        futures = [writer.append_nowait(payload(entry), entry) for entry in (2, 1, 0)]
        await asyncio.gather(*futures)
        lengths = [entry.length async for entry in writer.read(0, 2)]
    assert lengths == [len(payload(0)), len(payload(0) + payload(1)), writer.length]


async def test_28_closing_with_a_gap_ends_the_ledger_before_it(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(entry_ids="given")
    futures = [writer.append_nowait(payload(entry), entry) for entry in (0, 1, 3, 4)]
    await writer.drain()
    await writer.close()
    assert [future.result() for future in futures[:2]] == [0, 1]
    for future in futures[2:]:
        error = future.exception()
        assert isinstance(error, LedgerClosed) and not error.ambiguous and error.fields["missing"] == 2
    assert (writer.metadata.last_entry, writer.metadata.length) == (1, len(payload(0) + payload(1)))
    with pytest.raises(LedgerClosed):
        await writer.append(b"", 2)


async def test_29_an_id_is_appended_once_and_every_append_has_one(cluster: SmallCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(entry_ids="given") as writer:
        held = writer.append_nowait(b"c", 2)
        assert await writer.append(b"a", 0) == 0
        for entry in (0, 2):
            with pytest.raises(EntryExists, match=f"entry={entry}"):
                await writer.append(b"x", entry)
        for call in (writer.append(b"x"), writer.append_batch([b"x"])):
            with pytest.raises(UsageError, match="give each entry its id"):
                await call
        for entry in (-1, 1 << 63, True):
            with pytest.raises(UsageError, match="an entry id"):
                await writer.append(b"x", entry)
        assert await writer.append(b"b", 1) == 1
        assert await held == 2
    async with client.create_ledger() as counted:
        with pytest.raises(UsageError, match="this writer gives the ids"):
            await counted.append(b"x", 0)
    with pytest.raises(UsageError, match="entry_ids"):
        client.create_ledger(entry_ids="mine")


async def test_who_gives_ids_too_far_ahead_is_refused_and_the_missing_one_is_taken(cluster: SmallCluster) -> None:
    async with cluster.client(max_inflight_bytes=10_000).create_ledger(entry_ids="given") as writer:
        futures = [writer.append_nowait(bytes(4000), entry) for entry in (3, 2, 1)]
        with pytest.raises(EntriesMissing) as refused:
            await writer.append(b"", 4)
        assert (refused.value.missing, refused.value.retriable) == (0, True)
        assert await writer.append(bytes(20_000), 0) == 0
        assert await asyncio.gather(*futures) == [3, 2, 1]
        assert await writer.append(b"", 4) == 4


async def test_what_is_held_fails_with_the_writer_and_certainly_is_nowhere(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3, entry_ids="given")
    held = writer.append_nowait(b"d", 3)
    await writer.append(b"a", 0)
    await cluster.client(2).open_ledger(writer.id, recover=True)
    with pytest.raises(LedgerFenced):
        await writer.append(b"b", 1)
    error = held.exception()
    assert isinstance(error, LedgerFenced) and not error.ambiguous
    assert cluster.holders(writer.id, 3) == set()
    with pytest.raises(LedgerFenced):
        await writer.close()


async def test_an_aborted_writer_fails_what_is_held(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(entry_ids="given")
    held = writer.append_nowait(b"c", 2)
    writer.abort()
    error = held.exception()
    assert isinstance(error, LedgerClosed) and not error.ambiguous


async def test_a_caller_that_no_longer_waits_leaves_no_gap(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger(entry_ids="given") as writer:
        writer.append_nowait(b"b", 1).cancel()
        assert await writer.append(b"a", 0) == 0
        assert await writer.append(b"c", 2) == 2


async def test_a_dead_writers_ledger_ends_before_its_first_gap(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=2, ack_quorum=2, entry_ids="given")
    for entry in (0, 1, 4, 3):
        writer.append_nowait(payload(entry), entry)
    await writer.drain()
    writer.abort()
    assert await read_all(cluster, writer.id) == [(entry, payload(entry)) for entry in (0, 1)]


async def test_an_ensemble_change_under_way_keeps_the_order(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3, entry_ids="given")
    bad = member(cluster, writer, 0)
    bad.misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    futures = [writer.append_nowait(payload(entry), entry) for entry in (4, 0, 2)]
    await until(lambda: futures[1].done())
    futures += [writer.append_nowait(payload(entry), entry) for entry in (3, 1)]
    assert await asyncio.gather(*futures) == [4, 0, 2, 3, 1]
    assert bad.id not in writer.metadata.ensemble
    await writer.close()
    assert await read_all(cluster, writer.id) == [(entry, payload(entry)) for entry in range(5)]
