"""What a replicator can do nothing for: what is lost, and what has to wait."""

from __future__ import annotations

import asyncio

from support.repaired import RepairedCluster, flipped
from tallystick.bookkeeper.metadata.lost_entries import LostTree

GRACE_S = 600.0


async def test_without_a_good_copy_the_lost_bookie_keeps_its_place(cluster: RepairedCluster) -> None:
    """It alone may have the entry: when it comes back it is there, and makes the other one good."""
    ledger = await cluster.written(30, ensemble=2)
    damaged, lost = (await cluster.metadata(ledger)).ensemble
    for entry in (3, 4, 9):
        cluster.bookies[damaged].entries[ledger, entry] = flipped(cluster.bookies[damaged].entries[ledger, entry])
    await cluster.down(lost)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(30)
    assert lost in (await cluster.metadata(ledger)).ensemble and await cluster.marks() == [ledger]
    assert [event["reason"] for event in cluster.heard("ledger not repaired")] == [
        "no bookie that answers has a good copy of entries 3-4, 9"
    ]
    tree = LostTree(cluster.driver)
    found = (await tree.all())[ledger]
    assert (found.runs, found.bookie) == (((3, 4), (9, 9)), lost)
    await asyncio.sleep(700)
    assert (await tree.all())[ledger] == found
    await cluster.up(lost)
    await cluster.tree.mark(ledger, [damaged], 2)
    await asyncio.sleep(700)
    await cluster.require_whole(ledger)
    assert await cluster.marks() == [] and await tree.all() == {}


async def test_a_lost_entry_keeps_no_other_place_of_its_ledger_from_its_repair(cluster: RepairedCluster) -> None:
    """One entry without a good copy left all other places of the ledger as they were, one with a last copy too."""
    ledger = await cluster.written(3)  # entry 0 on the first two, 1 on the last two, 2 on the last and the first
    first, second, third = (await cluster.metadata(ledger)).ensemble
    for entry in (0, 1):
        cluster.bookies[second].entries[ledger, entry] = flipped(cluster.bookies[second].entries[ledger, entry])
    await cluster.down(first)
    await cluster.tree.mark(ledger, [first, second], 1)
    cluster.repair(grace_s=1000.0)
    await asyncio.sleep(30)
    stored = {bookie: cluster.bookies[bookie].entries[ledger, 1] for bookie in (second, third)}
    assert stored[second] == stored[third]
    assert first in (await cluster.metadata(ledger)).ensemble and await cluster.marks() == [ledger]
    assert (await LostTree(cluster.driver).all())[ledger].runs == ((0, 0),)


async def test_a_bookie_without_a_substitute_keeps_no_other_place_of_its_ledger_from_its_repair(
    cluster: RepairedCluster,
) -> None:
    """While nobody could take the place of one that is gone, a damaged copy of another stayed as it was, and a loss
    behind it was not told."""
    ledger = await cluster.written(3)  # entry 0 on the first two, 1 on the last two, 2 on the last and the first
    first, second, third = (await cluster.metadata(ledger)).ensemble
    for bookie in list(cluster.bookies):
        if bookie not in (second, third):
            await cluster.down(bookie)
    cluster.bookies[second].entries[ledger, 1] = flipped(cluster.bookies[second].entries[ledger, 1])
    await cluster.tree.mark(ledger, [first, second], 1)
    cluster.repair(grace_s=1000.0)
    await asyncio.sleep(30)
    assert cluster.bookies[second].entries[ledger, 1] == cluster.bookies[third].entries[ledger, 1]
    assert await cluster.marks() == [ledger] and first in (await cluster.metadata(ledger)).ensemble
    for bookie in (second, third):
        cluster.bookies[bookie].entries[ledger, 1] = flipped(cluster.bookies[third].entries[ledger, 1])
    await asyncio.sleep(1200)
    assert (await LostTree(cluster.driver).all())[ledger].runs == ((1, 1),)


async def test_a_lost_entry_keeps_no_other_lost_bookie_in_its_place(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(2)
    first, second, third = (await cluster.metadata(ledger)).ensemble
    cluster.bookies[second].entries[ledger, 0] = flipped(cluster.bookies[second].entries[ledger, 0])
    await cluster.down(first)
    await cluster.down(third)
    await cluster.tree.mark(ledger, [first, third], 1)
    cluster.repair(grace_s=1000.0)
    await asyncio.sleep(30)
    ensemble = (await cluster.metadata(ledger)).ensemble
    assert ensemble[:2] == (first, second) and ensemble[2] != third
    assert cluster.bookies[ensemble[2]].entries[ledger, 1] == cluster.bookies[second].entries[ledger, 1]


async def test_all_that_is_lost_of_a_ledger_is_told(cluster: RepairedCluster) -> None:
    first, second, third = (await cluster.metadata(ledger := await cluster.written(3))).ensemble
    for bookie, entry in ((second, 0), (second, 1), (third, 1)):
        cluster.bookies[bookie].entries[ledger, entry] = flipped(cluster.bookies[bookie].entries[ledger, entry])
    await cluster.down(first)
    await cluster.tree.mark(ledger, [first, third], 1)
    cluster.repair(grace_s=1000.0)
    await asyncio.sleep(30)
    assert (await LostTree(cluster.driver).all())[ledger].runs == ((0, 1),)
