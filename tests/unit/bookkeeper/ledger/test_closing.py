"""Closing a ledger while others use it, or its metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire.values import Fragment
from tallystick.errors import LedgerClosed, NotEnoughBookies


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


@pytest.mark.parametrize("seed", range(60))
async def test_an_append_beside_a_close_is_in_the_ledger_or_fails(cluster: SmallCluster, seed: int) -> None:
    chance = random.Random(seed)
    writer = await cluster.client().create_ledger(3, write_quorum=2, ack_quorum=2)
    outcomes: list[int | None] = []

    async def append() -> None:
        while True:
            await asyncio.sleep(chance.random() * 0.002)
            try:
                outcomes.append(await writer.append(b"x"))
            except LedgerClosed as error:
                assert not error.ambiguous
                return

    appending = [asyncio.create_task(append()) for _ in range(chance.randint(1, 4))]
    await asyncio.sleep(chance.random() * 0.01)
    await writer.close()
    await asyncio.gather(*appending)
    assert outcomes == list(range(writer.metadata.last_entry + 1)), "told in order, and nothing beyond the end"
    assert writer.metadata.length == len(outcomes)


@pytest.mark.rule("P3", "Q6")
@pytest.mark.parametrize("wire", ["v2", "v3"])
async def test_p3_a_batch_that_is_confirmed_in_part_counts_in_the_length_so_far(
    cluster: SmallCluster, wire: str
) -> None:
    writer = await cluster.client(wire=wire, no_quorum_s=1.0).create_ledger(1, write_quorum=1, ack_quorum=1)
    await writer.append(b"x" * 100)
    bookie = cluster.bookies[writer.metadata.ensemble[0]]
    bookie.held = []
    sizes = [1, 20, 300, 4000, 50000]
    batch = asyncio.ensure_future(writer.append_batch([b"y" * size for size in sizes]))
    for confirmed, length in ((2, 121), (3, 421)):
        await asyncio.sleep(1)
        for send in bookie.held[: confirmed - writer.lac]:
            send()
        del bookie.held[: confirmed - writer.lac]
        await asyncio.sleep(1)
        assert (writer.lac, writer.length) == (confirmed, length)
    await cluster.down(*cluster.bookies)
    with pytest.raises(NotEnoughBookies):
        await batch
    await writer.close()
    assert (writer.metadata.last_entry, writer.metadata.length) == (3, 421)


async def test_a_second_close_waits_for_the_first(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    slow = cluster.bookies[writer.metadata.ensemble[0]]
    slow.held = []
    writer.append_nowait(b"x")
    closes = [asyncio.create_task(writer.close()) for _ in range(2)]
    await asyncio.sleep(1)
    assert not any(close.done() for close in closes)
    slow.release()
    await asyncio.gather(*closes)
    assert writer.metadata.is_closed and cluster.kinds().count("ledger closed") == 1


async def test_a_close_keeps_what_others_changed_in_older_fragments(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"a")
    await cluster.down(writer.metadata.ensemble[0])
    await writer.append(b"b")
    stored = await cluster.driver.read_ledger(writer.id)
    first, second = stored.value.fragments
    repaired = Fragment(first.first, (*first.bookies[1:], second.bookies[0]))
    edited = replace(stored.value, fragments=(repaired, second))
    await cluster.driver.write_ledger(writer.id, edited, stored.version)
    await writer.close()
    closed = (await cluster.driver.read_ledger(writer.id)).value
    assert closed.is_closed and closed.fragments == (repaired, second) and closed.last_entry == 1
