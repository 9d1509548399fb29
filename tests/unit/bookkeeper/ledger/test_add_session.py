"""What a session sends at the end of a tick, however much that is, and what becomes of it when that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger import add_session, wire_v3
from tallystick.errors import LedgerClosed, LedgerError
from tallystick.sim.virtual.loop import VirtualLoop


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


@pytest.mark.parametrize("write_quorum", [2, 3])
@pytest.mark.parametrize(("wire", "deferred"), [("v2", False), ("v3", False), ("v3", True)])
async def test_many_entries_are_sent_in_parts(
    cluster: SmallCluster, wire: str, write_quorum: int, deferred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_session, "SENT_A_TURN", 8)
    monkeypatch.setattr(wire_v3, "MOST_AT_ONCE", 8)  # in place of a million
    client = cluster.client(1, wire=wire)
    writer = await client.create_ledger(3, write_quorum=write_quorum, deferred_sync=deferred)
    first, batch = writer.append_nowait(b"x" * 100), writer.append_batch([b"%d" % number for number in range(30)])
    assert (await batch, await first) == (range(1, 31), 0)
    assert await writer.append(b"last") == 31
    if deferred:
        await writer.force()
    await writer.close()
    async with cluster.client(2).open_ledger(writer.id) as reader:
        data = [entry.data async for entry in reader]
    assert data == [b"x" * 100, *(b"%d" % number for number in range(30)), b"last"]
    assert writer.metadata.length == sum(map(len, data))


async def test_each_part_has_a_turn_and_what_is_left_when_the_writer_stops_was_not_sent(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_session, "SENT_A_TURN", 8)
    client = cluster.client()
    writer, other = [await client.create_ledger(3) for _ in range(2)]
    futures = [writer.append_nowait(b"%d" % number) for number in range(30)]
    await asyncio.sleep(0)
    futures.append(writer.append_nowait(b"30"))
    await other.append(b"between")
    assert await asyncio.gather(*futures) == [*range(31)]
    futures = [writer.append_nowait(b"%d" % number) for number in range(31, 60)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writer.abort()
    results = await asyncio.gather(*futures, return_exceptions=True)
    doubts = [isinstance(result, LedgerClosed) and result.ambiguous for result in results]
    assert doubts == sorted(doubts, reverse=True) and set(doubts) == {True, False}
    async with cluster.client(2).open_ledger(writer.id, recover=True) as reader:
        data = [entry.data async for entry in reader]
    assert data == [b"%d" % number for number in range(len(data))] and len(data) >= 31
    assert len(data) <= 31 + sum(doubts)


async def test_a_bookie_that_failed_before_an_entry_was_confirmed_can_be_taken_again(cluster: SmallCluster) -> None:
    """It was taken for as bad as one that refuses everything, for as long as the writer appended."""
    async with cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
        first, second, _ = writer.metadata.ensemble
        await cluster.down(first)
        for number in range(3):
            await writer.append(b"%d" % number)
            await asyncio.sleep(1)
        assert first not in writer.metadata.ensemble
        await cluster.up(first)
        await cluster.down(second)
        for number in range(3):
            await writer.append(b"%d" % number)
            await asyncio.sleep(1)
        assert first in writer.metadata.ensemble and second not in writer.metadata.ensemble
    assert "ledger degraded" not in cluster.kinds()


async def test_a_session_that_cannot_send_fails_what_waits_and_the_others_send(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client(1, wire="v3")
    broken, sound = [await client.create_ledger(3) for _ in range(2)]
    await broken.append(b"x")
    monkeypatch.setattr(wire_v3, "MOST_AT_ONCE", 8)  # which the session does not know
    batch = asyncio.ensure_future(broken.append_batch([b""] * 30))
    other = asyncio.ensure_future(sound.append(b"y"))
    with pytest.raises(LedgerError, match="more requests at once than have numbers") as raised:
        await batch
    assert raised.value.ambiguous, "nobody knows which bookies got it"
    assert await other == 0
    with pytest.raises(LedgerError, match="could not be sent"):
        await broken.append(b"z")
    await broken.close()
    assert (broken.metadata.last_entry, broken.metadata.length) == (0, 1)
    errors = cast("VirtualLoop", asyncio.get_running_loop()).errors
    assert len(errors) == 1 and "AssertionError" in errors.pop(), "the fault itself is not hidden"
