"""Copies that lie too near to each other are found by audits, and one is moved where another bookie is better (Q2)."""

from __future__ import annotations

import asyncio

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.ledger.locations import Locations
from tallystick.bookkeeper.ledger.placement import Placement
from tallystick.bookkeeper.ledger.policies import Policy
from tallystick.bookkeeper.ledger.quarantine import Quarantine
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata

pytestmark = pytest.mark.rule("Q2")


def moves(cluster: RepairedCluster) -> list[tuple[str, str]]:
    return [(moved["lost"], moved["bookie"]) for moved in cluster.heard("replica moved")]


async def test_copies_on_one_machine_are_found_and_one_is_moved(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30, ensemble=2)
    first, second = (await cluster.metadata(ledger)).ensemble
    await cluster.on_machine("m", first, second)
    cluster.repair(close_check_s=5.0)
    await asyncio.sleep(60)
    metadata = await cluster.require_whole(ledger)
    [(moved, _)] = moves(cluster)
    assert moved in (first, second) and len({first, second} & set(metadata.ensemble)) == 1
    assert await FindingTree(cluster.driver).ledgers() == []
    [found] = cluster.heard("copies at fault")
    assert found["kinds"] == ["misplaced"] and found["bookies"] == sorted([first, second])


async def test_each_fragment_of_a_wide_ensemble_comes_apart(cluster: RepairedCluster) -> None:
    """Of four places two neighbours share a machine with each other, twice."""
    ledger = await cluster.written(40, ensemble=4)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.on_machine("m", *ensemble[:2])
    cluster.repair(close_check_s=5.0)
    await asyncio.sleep(60)
    [fragment] = (await cluster.require_whole(ledger)).fragments
    neighbours = {frozenset((fragment.bookies[at], fragment.bookies[(at + 1) % 4])) for at in range(4)}
    assert frozenset(ensemble[:2]) not in neighbours and len(moves(cluster)) == 1


@pytest.mark.parametrize("open_ledger", [False, True], ids=["no machine is better", "the ledger is written"])
async def test_what_cannot_be_better_stays(cluster: RepairedCluster, open_ledger: bool) -> None:
    ledger = await cluster.written(30, ensemble=2, close=not open_ledger)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.on_machine("m", *(ensemble if open_ledger else cluster.bookies))
    cluster.repair(close_check_s=5.0)
    await asyncio.sleep(60)
    assert (await cluster.metadata(ledger)).ensemble == ensemble and not moves(cluster)
    assert not cluster.heard("copies at fault") and not (await FindingTree(cluster.driver).ledgers())


async def test_no_copy_goes_to_a_bookie_that_does_not_know_what_it_has(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30, ensemble=2)
    ensemble = (await cluster.metadata(ledger)).ensemble
    others = [name for name in cluster.bookies if name not in ensemble]
    await cluster.on_machine("m", *ensemble, *others[1:])
    await cluster.limbo(others[0], "1")
    cluster.repair(close_check_s=5.0)
    await asyncio.sleep(60)
    assert (await cluster.metadata(ledger)).ensemble == ensemble and not moves(cluster)


async def test_what_was_said_of_a_place_and_is_true_no_more_moves_nothing(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30, ensemble=2)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await FindingTree(cluster.driver).note(ledger, [CopyFault(FaultKind.MISPLACED, ensemble[0], (), 1)])
    cluster.repair(close_check_s=5.0)
    await asyncio.sleep(60)
    assert (await cluster.metadata(ledger)).ensemble == ensemble and not moves(cluster)
    assert await FindingTree(cluster.driver).ledgers() == []


async def test_racks_count_for_a_policy_that_asks_for_them(cluster: RepairedCluster) -> None:
    """A bookie of another rack is better for ``rack-aware`` alone; one of the same rack for nobody."""
    names = sorted(cluster.bookies)
    for name in names:
        await cluster._tell(name, rack="/r2" if name == names[4] else "/r1", machine=name)
    client, ensemble = cluster.client(), tuple(names[:3])
    striping = Striping.of(LedgerMetadata(3, 3, 2, (Fragment(0, ensemble),)))
    for policy, better in (("random", None), ("rack-aware", names[4])):
        quarantine = Quarantine(client.context.clock, 60.0)
        placement = Placement(
            client.placement._directory, client.context.random, quarantine, Policy(policy), Locations()
        )
        assert await placement.better(0, ensemble, striping) == better
        assert await placement.better(0, (names[0], names[1], names[4]), striping) is None
