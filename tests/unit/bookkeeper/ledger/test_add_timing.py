"""A writer whose entries lack their ack quorum for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.clocks import ManualClock
from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.add_timing import AddTiming
from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.bookkeeper.ledger.running_time import BEAT_S
from tallystick.bookkeeper.wire import v2
from tallystick.errors import LedgerClosed, RequestTimeout


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


def hang(cluster: SmallCluster, *bookies: str) -> None:
    for name in bookies:
        cluster.bookies[name].misbehave = lambda request: HANG if isinstance(request, v2.AddFrame) else None


async def test_20_an_entry_without_its_quorum_ends_the_writer_and_all_that_wait(cluster: SmallCluster) -> None:
    client = cluster.client(add_quorum_timeout_s=2.0, add_timeout_s=60.0)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    assert await writer.append(b"a") == 0
    hang(cluster, "b0", "b1")
    first = writer.append_nowait(b"b")
    await asyncio.sleep(1.5)
    second = writer.append_nowait(b"c")
    await asyncio.sleep(0.4)
    assert not first.done()
    await asyncio.sleep(0.4)
    assert first.done(), "what is sent behind it gives it no more time"
    for future in (first, second):
        with pytest.raises(RequestTimeout, match="no ack quorum in time") as caught:
            await future
        assert caught.value.ambiguous
        assert (caught.value.fields["first_unconfirmed"], caught.value.fields["waited_s"]) == (1, 2.0)
    with pytest.raises(LedgerClosed, match="this writer has ended: an entry had no ack quorum in time"):
        await writer.append(b"d")
    assert "writer stopped" in cluster.kinds()
    await writer.close()
    assert (writer.metadata.last_entry, writer.metadata.length) == (0, 1)


async def test_entries_that_are_confirmed_in_time_end_nothing(cluster: SmallCluster) -> None:
    client = cluster.client(add_quorum_timeout_s=2.0, add_timeout_s=60.0)
    async with client.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        hang(cluster, "b0")  # one of three may
        for entry in range(8):
            assert await writer.append(b"x") == entry
            await asyncio.sleep(0.7)
        await asyncio.sleep(5)
        assert await writer.append(b"x") == 8


async def test_a_writer_that_was_stopped_runs_out_of_no_time(cluster: SmallCluster) -> None:
    """It would end a second time, for another reason than the one that its caller was told."""
    client = cluster.client(add_quorum_timeout_s=2.0, add_timeout_s=60.0)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    hang(cluster, "b0", "b1", "b2")
    future = writer.append_nowait(b"a")
    await asyncio.sleep(1)
    writer.abort()
    await asyncio.sleep(5)
    with pytest.raises(LedgerClosed, match="stopped"):
        await future
    assert "writer stopped" not in cluster.kinds()


async def test_all_who_wait_for_room_hear_that_the_writer_was_stopped(cluster: SmallCluster) -> None:
    client = cluster.client(max_inflight_bytes=100, add_timeout_s=600.0)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    hang(cluster, "b0", "b1", "b2")
    appends = [asyncio.create_task(writer.append(bytes(100))) for _ in range(4)]
    await asyncio.sleep(1)
    writer.abort()
    async with asyncio.timeout(5):
        for result in await asyncio.gather(*appends, return_exceptions=True):
            assert isinstance(result, LedgerClosed)


async def test_without_the_setting_an_entry_waits_for_its_bookies(cluster: SmallCluster) -> None:
    writer = await cluster.client(add_timeout_s=600.0).create_ledger(3, write_quorum=3, ack_quorum=3)
    hang(cluster, "b0")
    future = writer.append_nowait(b"x")
    await asyncio.sleep(300)
    assert not future.done()
    writer.abort()
    with pytest.raises(LedgerClosed):
        await future


async def test_a_loop_that_stood_still_hears_what_lies_in_its_sockets_first() -> None:
    clock, over = ManualClock(), list[float]()
    timing = AddTiming(-1, clock, ClientCounts(), 1.0, lambda: over.append(clock.now()))
    timing.sent(0)
    clock.time += 30.0  # no timer fired meanwhile
    await asyncio.sleep(1.1)
    assert over == []
    timing.confirmed(0, 1, 0)
    timing.sent(1)
    await asyncio.sleep(BEAT_S)
    clock.time += 30.0  # once more
    await asyncio.sleep(1.1)
    assert over == []
    await asyncio.sleep(BEAT_S)
    assert len(over) == 1
    timing.end()


async def test_who_has_ended_is_not_late_any_more(cluster: SmallCluster) -> None:
    writer = await cluster.client(add_quorum_timeout_s=2.0, add_timeout_s=60.0).create_ledger(3, ack_quorum=2)
    hang(cluster, *cluster.bookies)
    future = writer.append_nowait(b"x")
    await asyncio.sleep(1)
    writer.abort()
    with pytest.raises(LedgerClosed):
        await future
    await asyncio.sleep(5)
    assert "writer stopped" not in cluster.kinds()
