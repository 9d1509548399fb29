"""A bookie is registered and answers nothing: it takes its time-out now and then, and not for each ledger or batch."""

from __future__ import annotations

import asyncio

from support.repaired import RepairedCluster
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.repair.ledger_repair import Deferred, Repaired
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings

SILENT, GONE = "b1", "b0"


def silence(cluster: RepairedCluster) -> None:
    bookie = cluster.bookies[SILENT]
    bookie.script = lambda request: None
    bookie.script_v3 = lambda request: None


async def test_what_a_lost_bookie_had_is_on_others_soon(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(2, write_quorum=3) for _ in range(60)]
    marked = [ledger for ledger in ledgers if GONE in (await cluster.metadata(ledger)).ensemble]
    silence(cluster)
    await cluster.down(GONE)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(120)
    assert len(cluster.heard("ledger repaired")) == len(marked) and await cluster.marks() == []


async def test_a_long_ledger_asks_it_once_a_minute(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(60, ensemble=4, write_quorum=4, ack_quorum=4)
    silence(cluster)
    asked = len(cluster.bookies[SILENT].requests)
    replicator = Replicator(cluster.client(), "r", RepairSettings(batch_entries=1))
    began = asyncio.get_running_loop().time()
    gone = next(name for name in (await cluster.metadata(ledger)).ensemble if name != SILENT)
    await cluster.down(gone)
    assert isinstance(await replicator.repair_now(ledger, (gone,)), Repaired)
    assert asyncio.get_running_loop().time() - began < 30
    assert len(cluster.bookies[SILENT].requests) - asked < 10


async def test_all_copies_are_looked_at_soon(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(2, ensemble=4, write_quorum=4, ack_quorum=4) for _ in range(60)]
    lacking = ledgers[-1]
    other = next(name for name in (await cluster.metadata(lacking)).ensemble if name != SILENT)
    del cluster.bookies[other].entries[lacking, 1]
    silence(cluster)
    cluster.repair(audit_ledgers_per_s=1000.0, ledgers_at_once=1)
    await asyncio.sleep(120)
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [len(ledgers)]
    assert [event["ledger"] for event in cluster.heard("copies at fault")] == [lacking]


async def test_findings_of_it_keep_no_other_ledger_waiting(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(2, ensemble=4, write_quorum=4, ack_quorum=4) for _ in range(60)]
    silence(cluster)
    findings = FindingTree(cluster.driver)
    for ledger in ledgers:
        await findings.note(ledger, [CopyFault(FaultKind.MISSING, SILENT, (), 1)])
    other = await cluster.written(2, ensemble=3, write_quorum=3)
    await findings.note(other, [CopyFault(FaultKind.MISSING, (await cluster.metadata(other)).ensemble[0], (), 1)])
    cluster.repair(ledgers_at_once=1)
    await asyncio.sleep(60)
    assert other not in await findings.ledgers()


async def test_what_it_alone_has_is_never_lost_also_where_it_is_not_asked(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(2, ensemble=4, write_quorum=4, ack_quorum=4) for _ in range(2)]
    for name, bookie in cluster.bookies.items():
        if name not in (SILENT, GONE):
            bookie.entries.clear()
    silence(cluster)
    await cluster.down(GONE)
    replicator = Replicator(cluster.client(), "r", RepairSettings())
    for ledger in ledgers:
        assert isinstance(await replicator.repair_now(ledger, (GONE,)), Deferred)
