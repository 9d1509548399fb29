"""Replicators that are held back, and metadata that cannot be read beside what is repaired."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.repair import replicator
from tallystick.bookkeeper.repair.ledger_repair import Repaired
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.shortfall import Place
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import Fragment


@pytest.mark.parametrize("settings", [{"bytes_per_s": 1000.0}, {"batch_entries": 1}])
async def test_a_limit_makes_it_slower_and_no_less_whole(cluster: RepairedCluster, settings: dict[str, Any]) -> None:
    ledger = await cluster.written(60)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    cluster.repair(grace_s=0.0, **settings)
    await asyncio.sleep(60)
    assert (await cluster.require_whole(ledger)).last_entry == 59


async def test_what_was_looked_at_is_passed_over_without_comparing_it_with_all_else(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await cluster.written(40, write_quorum=3)
    version, metadata = (await cluster.driver.read_ledger(ledger)).version, await cluster.metadata(ledger)
    fragments = tuple(Fragment(entry, metadata.ensemble) for entry in range(40))
    data = wire.encode(replace(metadata, fragments=fragments))
    await cluster.store.change(Update(f"/ledgers/00/0000/L{ledger:04d}", data, version))
    compared = 0

    def equal(one: Place, other: object) -> bool:
        nonlocal compared
        compared += 1
        return isinstance(other, Place) and (one.first, one.slot) == (other.first, other.slot)

    monkeypatch.setattr(Place, "__eq__", equal)
    repaired = await Replicator(cluster.client(), "r", RepairSettings()).repair_now(ledger)
    assert isinstance(repaired, Repaired)
    assert compared <= 120 * 120, "in each step once with each of those that were looked at"


async def test_very_many_that_wait_keep_no_other_ledger_from_its_turn(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator, "MOST_LOOKED_AT", 2)
    waiting = [await cluster.written(close=False) for _ in range(3)]
    ledger, found = await cluster.written(), await cluster.written()
    for each in waiting:  # what they lack is known when they are closed
        await cluster.tree.mark(each, [(await cluster.metadata(each)).ensemble[0]], 1)
    lost, lacks = (await cluster.metadata(ledger)).ensemble[0], (await cluster.metadata(found)).ensemble[1]
    del cluster.bookies[lacks].entries[found, next(e for of, e in cluster.bookies[lacks].entries if of == found)]
    await FindingTree(cluster.driver).note(found, [CopyFault(FaultKind.MISSING, lacks, (), 1)])
    await cluster.tree.mark(ledger, [lost], 1)
    cluster.repair(grace_s=3600.0)
    await asyncio.sleep(60)
    assert await cluster.marks() == waiting and await FindingTree(cluster.driver).ledgers() == []
    await cluster.require_whole(found)


async def test_what_the_metadata_has_damaged_hinders_no_other_ledger(cluster: RepairedCluster) -> None:
    damaged, unmarked, ledger = [await cluster.written() for _ in range(3)]
    version = (await cluster.driver.read_ledger(damaged)).version
    lost = (await cluster.metadata(ledger)).ensemble[0]
    await cluster.tree.mark(damaged, [lost], 1)
    await cluster.store.change(Update(f"/ledgers/00/0000/L{damaged:04d}", b"damaged", version))
    path = f"/ledgers/underreplication/ledgers/0000/0000/0000/{unmarked:04x}/urL{unmarked:010d}"
    await cluster.store.change(Create(path, b"damaged"))
    await cluster.down(lost)
    running = cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)
    assert await cluster.marks() == [damaged, unmarked] and not running.failure.done()


@pytest.mark.parametrize("number", ["9" * 5000, "0" * 5000 + "1", "several"])
async def test_a_registration_of_no_number_ends_no_repair(cluster: RepairedCluster, number: str) -> None:
    """Python makes no number of so many digits, and what it says of them ended the repair of the whole cluster."""
    ledger = await cluster.written()
    ensemble = (await cluster.metadata(ledger)).ensemble
    strange = next(name for name in cluster.bookies if name not in ensemble)
    await cluster.limbo(strange, number)
    await cluster.down(ensemble[0])
    running = cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    assert strange not in (await cluster.require_whole(ledger)).ensemble and not running.failure.done()


async def test_what_was_written_of_the_last_audit_and_is_no_time_is_no_audit(cluster: RepairedCluster) -> None:
    await cluster.written()
    await cluster.store.change(Create("/tallystick/ledgers/audited", b"9" * 5000))
    running = cluster.repair()
    await asyncio.sleep(200)
    assert len(cluster.heard("copies audited")) == 1 and not running.failure.done()
