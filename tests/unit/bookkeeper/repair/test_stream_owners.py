"""Owners of streams beside a replicator that closes their ledgers: they go on in the next one, and lose nothing."""

from __future__ import annotations

import asyncio

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position

NAME = "public/default/persistent/events"
RAW = StreamSettings(ensemble=3, write_quorum=3, ack_quorum=2, entry_format="raw")


def repair(cluster: RepairedCluster) -> None:
    cluster.repair(grace_s=0.0, open_grace_s=60.0, retry_s=1.0, poll_s=1.0)


async def read(cluster: RepairedCluster) -> list[bytes]:
    await asyncio.sleep(1)  # until the LAC is told
    async with cluster.client(9).read_stream(NAME, entry_format="raw") as reader:
        return [message.data async for message in reader]


async def lose_one(cluster: RepairedCluster, stream: Stream) -> int:
    """Lose a bookie of the open ledger, until a replicator has closed that. Returns the ledger."""
    ledger = stream._owner.ledger
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    for _ in range(1000):
        await asyncio.sleep(1)
        if (await cluster.metadata(ledger)).is_closed:
            return ledger
    raise AssertionError("no replicator closed it")


@pytest.mark.rule("Q19")
async def test_q19_an_idle_owner_goes_on_in_the_next_ledger(cluster: RepairedCluster) -> None:
    stream = await cluster.client(absent_bookie_s=0.0).open_stream(NAME, settings=RAW)
    stored = [await stream.append(b"%d" % number) for number in range(5)]
    repair(cluster)
    ledger = await lose_one(cluster, stream)
    assert {position.ledger for position in stored} == {ledger}
    later = await asyncio.gather(*(stream.append(b"%d" % number) for number in range(5, 9)))
    assert [position.entry for position in later] == [0, 1, 2, 3] and {each.ledger for each in later} != {ledger}
    assert await read(cluster) == [b"%d" % number for number in range(9)]
    assert [each["look"] for each in cluster.heard("fenced stream looked at")] == ["it is closed"]
    await asyncio.sleep(100)
    await cluster.require_whole(ledger)
    await stream.close()


async def test_what_was_under_way_is_stored_once(cluster: RepairedCluster) -> None:
    """Its bookies have it, and nobody said so: what the replicator found counts, and the rest is sent on."""
    stream = await cluster.client(absent_bookie_s=0.0, add_timeout_s=1e6).open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    ledger = stream._owner.ledger
    _first, *others = (await cluster.metadata(ledger)).ensemble
    for name in others:
        cluster.bookies[name].held = []
    futures = [stream.append_nowait(b"%d" % number) for number in range(1, 4)]
    await asyncio.sleep(0.1)
    repair(cluster)
    assert await lose_one(cluster, stream) == ledger
    for name in others:
        cluster.bookies[name].held = None
    futures += [stream.append_nowait(b"%d" % number) for number in range(4, 6)]
    positions = await asyncio.gather(*futures)
    end = (await cluster.metadata(ledger)).last_entry
    assert [each for each in positions if each.ledger == ledger] == [Position(ledger, n) for n in range(1, end + 1)]
    assert await read(cluster) == [b"%d" % number for number in range(6)]
    await stream.close()


async def test_a_second_repair_after_the_grace_is_one_again(cluster: RepairedCluster) -> None:
    stream = await cluster.client(absent_bookie_s=0.0).open_stream(NAME, settings=RAW)
    repair(cluster)
    for number in range(3):
        await stream.append(b"%d" % number)
        before = set(cluster.bookies)
        await lose_one(cluster, stream)
        assert await stream.append(b"%d behind" % number)
        (gone,) = before - set(cluster._registrations)
        await cluster.up(gone)
        await asyncio.sleep(60)
    assert len(await read(cluster)) == 6
    await stream.close()


async def test_an_owner_that_watches_keeps_its_ledger(cluster: RepairedCluster) -> None:
    """With the client's own settings no replicator gets to it."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    ledger = stream._owner.ledger
    cluster.repair(grace_s=600.0, open_grace_s=600.0)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    await asyncio.sleep(2000)
    assert await stream.append(b"1") == Position(ledger, 1)
    assert not cluster.heard("open ledger recovered for repair") and not cluster.heard("fenced stream looked at")
    await stream.close()
