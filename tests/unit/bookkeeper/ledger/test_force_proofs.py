"""A force counts only of what bookies kept, and of an open ledger (Q5, Q11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.force_requests import bookies_of, forces, hold_requests
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.changes import begin_recovery
from tallystick.bookkeeper.metadata.driver import Moment
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.entry_list import EntryList, encode_runs
from tallystick.bookkeeper.wire.v3_responses import EntryListResponse, encode_response
from tallystick.errors import (
    BookieUnavailable,
    LedgerError,
    LedgerFenced,
    MetadataUnavailable,
)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


@pytest.mark.parametrize("lost", ["all", "last"])
async def test_q5_what_a_bookie_lost_at_its_death_is_not_forced_by_its_next_life(
    cluster: SmallCluster, lost: str
) -> None:
    """The original takes the new process's word for what the old one had in memory."""
    writer = await cluster.client().create_ledger(3, write_quorum=3, deferred_sync=True)
    await writer.append(b"x")
    assert await writer.force() == 0
    await writer.append_batch([b"x"] * 9)
    bookie = bookies_of(cluster, writer)[1]
    await cluster.down(bookie.id)
    bookie.keep_only({key: body for key, body in bookie.entries.items() if key[1] < (1 if lost == "all" else 9)})
    await cluster.up(bookie.id)
    await asyncio.sleep(2)
    pending = writer.append_nowait(b"y")
    with pytest.raises(LedgerError, match="lost entries") as raised:
        await writer.force()
    assert (raised.value.bookie, raised.value.entry) == (bookie.id, 1 if lost == "all" else 9)
    assert await pending == 10
    for call in (writer.force(), writer.append(b"z"), writer.drain()):
        with pytest.raises(LedgerError, match="lost entries"):
            await call
    await writer.close()
    assert (await cluster.client(2).ledger_metadata(writer.id)).last_entry == 0


async def test_q5_what_a_bookie_shows_before_its_connection_ends_is_not_forced_over_the_next(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]

    def lose_connections() -> None:
        for transport in tuple(bookie.connections):
            transport.abort()

    lose_connections()
    await asyncio.sleep(1)
    entry_list = client.context.bookies.entry_list

    async def shown_before_the_end(name: str, ledger: int) -> EntryList:
        shown = await entry_list(name, ledger)
        lose_connections()
        await asyncio.sleep(1)
        return shown

    with monkeypatch.context() as patched:
        patched.setattr(client.context.bookies, "entry_list", shown_before_the_end)
        with pytest.raises(BookieUnavailable, match="ended in a force"):
            await writer.force()
    assert (writer.lac, forces(bookie)) == (-1, 0)
    assert await writer.force() == 0


async def test_q5_what_a_force_took_that_was_given_up_is_shown_by_the_next_life(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3, deferred_sync=True)
    await writer.append(b"x")
    bookie = bookies_of(cluster, writer)[0]
    held = hold_requests(bookie, v3.ForceRequest)
    forcing = asyncio.ensure_future(writer.force())
    await asyncio.sleep(0.1)
    assert held
    forcing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forcing
    bookie.script_v3 = None
    await cluster.down(bookie.id)
    bookie.keep_only({})
    await cluster.up(bookie.id)
    await asyncio.sleep(2)
    with pytest.raises(LedgerError, match="lost entries"):
        await writer.force()
    assert writer.lac == -1


@pytest.mark.rule("P2", "Q5", "Q16")
@pytest.mark.parametrize("when", ["before the force", "while the list is on its way"])
async def test_q5_what_a_recovery_wrote_back_proves_nothing_of_what_the_bookie_kept(
    cluster: SmallCluster, when: str
) -> None:
    """Another recovery, begun before, may have been told "no" twice, and will close the ledger before that entry."""
    client = cluster.client(1, read_timeout_s=60.0)
    writer = await client.create_ledger(3, write_quorum=3, deferred_sync=True)
    await writer.append(b"x")
    kept, *emptied = bookies_of(cluster, writer)
    entry = kept.entries[writer.id, 0]
    await cluster.down(*(bookie.id for bookie in emptied))
    for bookie in emptied:
        bookie.keep_only({})
    await cluster.up(*(bookie.id for bookie in emptied))
    await asyncio.sleep(2)

    async def recover() -> None:
        await begin_recovery(cluster.driver, writer.id, await cluster.driver.read_ledger(writer.id))
        for bookie in emptied:
            bookie.put(writer.id, 0, entry)

    if when == "before the force":
        await recover()
        forcing = asyncio.ensure_future(writer.force())
    else:
        held = [hold_requests(bookie, v3.EntryListRequest) for bookie in emptied]
        forcing = asyncio.ensure_future(writer.force())
        await asyncio.sleep(5)
        await recover()
        listed = encode_runs([(0, 0)])
        for bookie, (request,) in zip(emptied, held, strict=True):
            bookie.say(encode_response(EntryListResponse(request.header.request_id, Code.OK, writer.id, listed)))
    with pytest.raises(LedgerFenced):
        await forcing
    for call in (writer.force(), writer.append(b"y"), writer.close()):
        with pytest.raises(LedgerFenced):
            await call
    assert writer.lac == -1


async def test_q11_a_force_of_a_ledger_that_another_client_ended_is_refused(cluster: SmallCluster) -> None:
    client = cluster.client()
    deleted, closed = [await client.create_ledger(3, deferred_sync=True) for _ in range(2)]
    for writer in (deleted, closed):
        await writer.append(b"x")
    await cluster.client(2).delete_ledger(deleted.id)
    await (await cluster.client(2).open_ledger(closed.id, recover=True)).close()
    for writer in (deleted, closed):
        with pytest.raises(LedgerFenced, match="another client"):
            await writer.force()
        with pytest.raises(LedgerFenced):
            await writer.append(b"y")
    assert cluster.kinds().count("writer stopped") == 2, "by the force: nothing more is sent, and no LAC told"


async def test_a_force_of_an_ordinary_ledger_that_another_client_ended_says_nothing_new(cluster: SmallCluster) -> None:
    """Its entries were durable when they were acknowledged, and are part of it."""
    writer = await cluster.client().create_ledger(3)
    await writer.append(b"x")
    async with cluster.client(2).open_ledger(writer.id, recover=True) as reader:
        assert await writer.force() == reader.last_entry == 0
    with pytest.raises(LedgerFenced):
        await writer.append(b"y")


async def test_a_force_that_cannot_tell_whether_the_ledger_is_open_may_succeed_later(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, deferred_sync=True)
    await writer.append(b"x")
    driver = writer._writers.context.driver
    moments = [Moment("one", generation, 0) for generation in (2, 1)]

    async def sync() -> Moment:
        return moments.pop() if moments else Moment("one", 2, 0)

    driver.sync = sync  # type: ignore[method-assign]  # it connects anew in between
    with pytest.raises(MetadataUnavailable, match="may be old"):
        await writer.force()
    assert writer.lac == -1
    assert await writer.force() == 0
