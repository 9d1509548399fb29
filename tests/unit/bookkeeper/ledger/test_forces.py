"""Deferred sync: entries are acknowledged before they are durable, and confirmed by a force (facts 5.11, 9.2-30 …)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.fake_bookie import FakeBookie
from support.force_requests import bookies_of, forces, hold_requests
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import ForceResponse, encode_response
from tallystick.errors import (
    BookieUnavailable,
    LedgerClosed,
    LedgerError,
    RequestTimeout,
    TallyError,
    UsageError,
)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


@pytest.mark.parametrize("wire", ["auto", "v3"])
async def test_q5_the_lac_is_what_was_acknowledged_before_the_last_force(cluster: SmallCluster, wire: str) -> None:
    """9.2-30, 9.2-33: however many adds, the LAC stands; a force moves it; the end is the last forced entry."""
    writer = await cluster.client(1, wire=wire).create_ledger(3, deferred_sync=True)
    assert await writer.force() == -1
    for entry in range(5):
        assert await writer.append(b"%d" % entry) == entry
    assert (writer.lac, writer.length) == (-1, 0)
    assert await writer.force() == 4
    assert (writer.lac, writer.length) == (4, 5)
    assert [forces(bookie) for bookie in bookies_of(cluster, writer)] == [1, 1, 1]
    adds = [
        one for bookie in bookies_of(cluster, writer) for one in bookie.requests_v3 if isinstance(one, v3.AddRequest)
    ]
    assert len(adds) == 10 and all(add.deferred_sync and add.body[16:24] == b"\xff" * 8 for add in adds)
    assert not any(isinstance(one, v2.AddFrame) for bookie in bookies_of(cluster, writer) for one in bookie.requests)
    assert await writer.append_batch([b"xy"] * 3) == range(5, 8)
    assert [entry.data async for entry in writer.read(0, 4)] == [b"0", b"1", b"2", b"3", b"4"]
    await writer.close()
    metadata = await cluster.client(2).ledger_metadata(writer.id)
    assert (metadata.last_entry, metadata.length) == (4, 5)
    assert len(cluster.holders(writer.id, 7)) == 2  # what was not forced is there, and no part of the ledger


async def test_without_a_force_the_ledger_is_empty(cluster: SmallCluster) -> None:
    """9.2-33."""
    async with await cluster.client().create_ledger(3, deferred_sync=True) as writer:
        await writer.append_batch([b"x"] * 10)
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        assert (reader.last_entry, reader.length, reader.is_closed) == (-1, 0, True)


async def test_an_ack_that_comes_during_a_force_is_not_part_of_it(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]
    held = hold_requests(bookie, v3.ForceRequest)
    forcing = asyncio.ensure_future(writer.force())
    await asyncio.sleep(0.1)
    await writer.append(b"y")
    assert not forcing.done() and writer.lac == -1
    bookie.script_v3 = None
    bookie.say(encode_response(ForceResponse(held[0].header.request_id, Code.OK, writer.id)))
    assert await forcing == 0
    assert await writer.force() == 1


@pytest.mark.rule("Q5", "Q6")
async def test_q5_a_force_in_the_middle_of_a_batch_has_the_length_so_far(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=2, deferred_sync=True)
    await writer.append(b"x" * 100)
    for bookie in bookies_of(cluster, writer):
        bookie.held = []
    batch = asyncio.ensure_future(writer.append_batch([b"y" * size for size in (1, 20, 300, 4000)]))
    await asyncio.sleep(1)
    for bookie in bookies_of(cluster, writer)[1:]:  # the first entry of the batch that bookie 0 stores is 2
        bookie.release()
    await asyncio.sleep(1)
    assert (await writer.force(), writer.length) == (1, 101)
    bookies_of(cluster, writer)[0].release()
    await batch
    assert (await writer.force(), writer.length) == (4, 4421)
    await writer.close()
    assert (writer.metadata.last_entry, writer.metadata.length) == (4, 4421)


async def test_all_bookies_must_do_it_and_a_force_that_failed_may_succeed_later(cluster: SmallCluster) -> None:
    """9.2-31: E=3, Qw=2; one of the three is down, and comes back with all that it had."""
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    for _ in range(9):
        await writer.append(b"x")
    down = writer.metadata.ensemble[2]
    await cluster.down(down)
    assert await writer.append(b"x") == 9  # of the other two alone
    with pytest.raises(BookieUnavailable):
        await writer.force()
    assert writer.lac == -1
    await cluster.up(down)
    await asyncio.sleep(2)
    assert await writer.force() == 9
    assert "ensemble changed" not in cluster.kinds()
    await writer.close()
    assert (await cluster.client(2).ledger_metadata(writer.id)).last_entry == 9


@pytest.mark.parametrize("how", ["code", "hangs", "closes"])
async def test_the_first_error_fails_the_force_and_nothing_else(cluster: SmallCluster, how: str) -> None:
    writer = await cluster.client(1, add_timeout_s=0.5).create_ledger(3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]

    def refuse(request: v3.Request) -> bytes | None:
        if not isinstance(request, v3.ForceRequest):
            return FakeBookie.USUAL
        answers = {"hangs": None, "closes": FakeBookie.CLOSE}
        refusal = encode_response(ForceResponse(request.header.request_id, Code.IO_ERROR, request.ledger))
        return answers.get(how, refusal)

    bookie.script_v3 = refuse
    began_at = asyncio.get_running_loop().time()
    with pytest.raises((BookieUnavailable, RequestTimeout)):
        await writer.force()
    assert asyncio.get_running_loop().time() - began_at < 1, "it is given as long as an add"
    bookie.script_v3 = None
    await asyncio.sleep(2)
    assert await writer.append(b"y") == 1
    assert await writer.force() == 1


async def test_q7_a_deferred_ledger_never_changes_its_ensemble(cluster: SmallCluster) -> None:
    """9.2-32: a bookie that fails ends the writer; the ledger ends with what was forced."""
    writer = await cluster.client().create_ledger(3, write_quorum=3, deferred_sync=True)
    await writer.append(b"x")
    await writer.force()
    await writer.append(b"y")
    before = writer.metadata.fragments
    await cluster.down(writer.metadata.ensemble[0])
    with pytest.raises(LedgerError, match="deferred sync"):
        await writer.append(b"z")
    for call in (writer.force(), writer.append(b"z"), writer.drain()):
        with pytest.raises(LedgerError, match="deferred sync"):
            await call
    await writer.close()
    metadata = await cluster.client(2).ledger_metadata(writer.id)
    assert (metadata.fragments, metadata.last_entry) == (before, 0)


async def test_a_bookie_that_failed_behind_the_quorum_ends_the_writer_at_the_next_append(cluster: SmallCluster) -> None:
    client = cluster.client(1, add_timeout_s=0.2)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2, deferred_sync=True)
    await writer.append(b"x")
    bookies_of(cluster, writer)[0].held = []
    assert await writer.append(b"y") == 1
    await asyncio.sleep(2)
    with pytest.raises(LedgerError, match="deferred sync"):
        await writer.append(b"z")


async def test_force_on_a_closed_or_stopped_writer(cluster: SmallCluster) -> None:
    """9.2-32: -11."""
    client = cluster.client()
    closed, stopped = [await client.create_ledger(3, deferred_sync=True) for _ in range(2)]
    for writer in (closed, stopped):
        await writer.append(b"x")
    await closed.close()
    stopped.abort()
    for writer in (closed, stopped):
        with pytest.raises(LedgerClosed):
            await writer.force()


async def test_a_force_of_a_writer_that_is_stopped_meanwhile_fails(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]
    held = hold_requests(bookie, v3.ForceRequest)
    forcing = asyncio.ensure_future(writer.force())
    await asyncio.sleep(0.1)
    writer.abort()
    bookie.say(encode_response(ForceResponse(held[0].header.request_id, Code.OK, writer.id)))
    with pytest.raises(LedgerClosed):
        await forcing
    assert writer.lac == -1


async def test_a_close_waits_for_the_force_that_is_under_way(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]
    held = hold_requests(bookie, v3.ForceRequest)
    forcing = asyncio.ensure_future(writer.force())
    await asyncio.sleep(0.1)
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    bookie.say(encode_response(ForceResponse(held[0].header.request_id, Code.OK, writer.id)))
    await asyncio.gather(forcing, closing)
    assert (await cluster.client(2).ledger_metadata(writer.id)).last_entry == 0


async def test_forces_follow_each_other_and_each_moves_the_lac_so_far_as_it_was_called(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    results = []
    for _ in range(5):
        await writer.append(b"x")
        results.append(asyncio.ensure_future(writer.force()))
    assert await asyncio.gather(*results) == [0, 1, 2, 3, 4]


async def test_a_force_of_an_ordinary_ledger_asks_all_its_bookies(cluster: SmallCluster) -> None:
    """9.2-33: it works without the write flag, too."""
    writer = await cluster.client().create_ledger(3)
    assert await writer.force() == -1
    assert sum(map(forces, bookies_of(cluster, writer))) == 0
    await writer.append(b"x")
    assert await writer.force() == 0
    assert [forces(bookie) for bookie in bookies_of(cluster, writer)] == [1, 1, 1]


async def test_given_ids_are_forced_up_to_the_first_gap(cluster: SmallCluster) -> None:
    """9.2-32."""
    writer = await cluster.client().create_ledger(3, deferred_sync=True, entry_ids="given")
    futures = [writer.append_nowait(b"x", entry) for entry in (1, 0, 4)]
    await asyncio.gather(*futures[:2])
    assert await writer.force() == 1
    await writer.close()
    with pytest.raises(LedgerClosed):
        await futures[2]
    assert (await cluster.client(2).ledger_metadata(writer.id)).last_entry == 1


async def test_the_lac_of_a_force_is_told_to_who_follows(cluster: SmallCluster) -> None:
    """9.2-34: explicit LACs work with deferred sync."""
    writer = await cluster.client().create_ledger(3, deferred_sync=True)
    await writer.append_batch([b"x"] * 5)
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        await asyncio.sleep(1)
        assert await reader.refresh() == -1
        await writer.force()
        await asyncio.sleep(1)
        assert await reader.refresh() == 4


async def test_version_2_alone_and_old_bookies_have_no_deferred_sync(cluster: SmallCluster) -> None:
    with pytest.raises(UsageError, match="version 3"):
        cluster.client(1, wire="v2").create_ledger(3, deferred_sync=True)
    ordinary = await cluster.client(2, wire="v2").create_ledger(3)
    with pytest.raises(UsageError, match="version 3"):
        await ordinary.force()
    for bookie in cluster.bookies.values():
        bookie.speaks_v3 = False
    client = cluster.client(3)
    writer = await client.create_ledger(3, deferred_sync=True)
    with pytest.raises(TallyError, match="deferred sync"):
        await writer.append(b"x")
    other = await client.create_ledger(3)
    await other.append(b"x")
    with pytest.raises(BookieUnavailable):
        await other.force()
    opened = [bookie.opened for bookie in cluster.bookies.values()]
    with pytest.raises(BookieUnavailable, match="older bookies"):
        await other.force()
    assert [bookie.opened for bookie in cluster.bookies.values()] == opened, "that is remembered"
    assert await other.append(b"y") == 1
    assert "ensemble changed" not in cluster.kinds()
