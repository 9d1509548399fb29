"""Findings of ours, which an original's worker would drop, and what the replicator makes of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.repaired import RepairedCluster, flipped
from tallystick.bookkeeper.ledger.add_session import LATE_ACKS_S
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.metadata.store import Update
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import Fragment


async def test_a_finding_is_made_good_in_place_and_dropped(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    ensemble = (await cluster.metadata(ledger)).ensemble
    stored = cluster.bookies[ensemble[0]].entries
    del stored[ledger, 5]
    stored[ledger, 12] = flipped(stored[ledger, 12])
    tree = FindingTree(cluster.driver)
    await tree.note(ledger, [CopyFault(FaultKind.MISSING, ensemble[0], ((5, 5),), 1)])
    await tree.note(ledger, [CopyFault(FaultKind.DAMAGED, ensemble[0], ((12, 12),), 1)])
    cluster.repair()
    await asyncio.sleep(20)
    assert (await cluster.require_whole(ledger)).ensemble == ensemble
    assert await tree.ledgers() == [] and await cluster.marks() == []


async def test_only_the_entries_of_a_finding_are_read(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    read = list[int]()

    def note(request: object) -> Code | None:
        if isinstance(request, v2.ReadFrame):
            read.append(request.entry)
        return None

    cluster.bookies[bookie].misbehave = note
    await FindingTree(cluster.driver).note(ledger, [CopyFault(FaultKind.MISSING, bookie, ((5, 6), (9, 9)), 1)])
    cluster.repair()
    await asyncio.sleep(20)
    placed = [entry for entry in (5, 6, 9) if (ledger, entry) in cluster.bookies[bookie].entries]
    assert sorted(read) == placed != []
    assert await FindingTree(cluster.driver).ledgers() == []


async def test_a_finding_stays_while_its_entry_cannot_be_read(cluster: RepairedCluster) -> None:
    """A bookie that does not say is not one that has it."""
    ledger = await cluster.written(30)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    cluster.bookies[bookie].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.ReadFrame) else None
    tree = FindingTree(cluster.driver)
    await tree.note(ledger, [CopyFault(FaultKind.MISSING, bookie, ((3, 3),), 1)])
    cluster.repair()
    await asyncio.sleep(100)
    assert await tree.ledgers() == [ledger] and cluster.heard("ledger not repaired")
    cluster.bookies[bookie].misbehave = None
    await asyncio.sleep(700)
    assert await tree.ledgers() == []


async def test_a_ledger_that_an_original_has_in_hand_is_left_alone(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    tree = FindingTree(cluster.driver)
    await tree.note(ledger, [CopyFault(FaultKind.MISSING, bookie, ((3, 3),), 1)])
    await cluster.tree.lock(ledger, "an original")
    cluster.repair()
    await asyncio.sleep(60)
    assert await tree.ledgers() == [ledger]
    await cluster.tree.unlock(ledger)
    await asyncio.sleep(20)
    assert await tree.ledgers() == []


async def test_what_is_found_while_it_is_repaired_stays(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await cluster.written(30, write_quorum=3)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    tree, drops = FindingTree(cluster.driver), list[bool]()
    fault = CopyFault(FaultKind.MISSING, bookie, ((3, 3),), 1)
    drop = FindingTree.drop

    async def late(self: FindingTree, ledger: int, version: int) -> bool:
        if not drops:
            del cluster.bookies[bookie].entries[ledger, 3]
            await tree.note(ledger, [fault])
        drops.append(await drop(self, ledger, version))
        return drops[-1]

    monkeypatch.setattr(FindingTree, "drop", late)
    await tree.note(ledger, [fault])
    cluster.repair()
    await asyncio.sleep(60)
    assert drops[:2] == [False, True] and await tree.ledgers() == []
    await cluster.require_whole(ledger)


async def test_two_copies_on_one_bookie_become_copies_on_two(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30, ensemble=2)
    node = (await cluster.driver.read_ledgers([ledger]))[ledger]
    metadata = await cluster.metadata(ledger)
    bookie = metadata.ensemble[0]
    doubled = wire.encode(replace(metadata, fragments=(Fragment(0, (bookie, bookie)),)))
    await cluster.store.change(Update(f"/ledgers/00/0000/L{ledger:04d}", doubled, node.version))
    await FindingTree(cluster.driver).note(ledger, [CopyFault(FaultKind.DOUBLE, bookie, (), 1)])
    cluster.repair()
    await asyncio.sleep(30)
    assert len(set((await cluster.require_whole(ledger)).ensemble)) == 2
    assert await FindingTree(cluster.driver).ledgers() == []


async def test_a_finding_at_a_bookie_that_is_gone_begins_no_copying(cluster: RepairedCluster) -> None:
    """Whether it is lost says the auditor, after the grace."""
    ledger = await cluster.written(30, write_quorum=3)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    tree = FindingTree(cluster.driver)
    await tree.note(ledger, [CopyFault(FaultKind.MISSING, bookie, ((3, 3),), 1)])
    del cluster.bookies[bookie].entries[ledger, 3]
    await cluster.down(bookie)
    cluster.repair()
    await asyncio.sleep(300)
    assert cluster.heard("replica moved") == [] and await tree.ledgers() == [ledger]
    await cluster.up(bookie)
    await asyncio.sleep(300)
    assert await tree.ledgers() == [] and cluster.heard("replica moved") == []
    await cluster.require_whole(ledger)


async def test_a_finding_at_a_bookie_that_was_replaced_is_dropped(cluster: RepairedCluster) -> None:
    ledger, tree = await cluster.written(30), FindingTree(cluster.driver)
    other = next(iter(set(cluster.bookies) - set((await cluster.metadata(ledger)).ensemble)))
    await tree.note(ledger, [CopyFault(FaultKind.MISSING, other, ((3, 3),), 1)])
    await tree.note(999, [CopyFault(FaultKind.MISSING, other, ((3, 3),), 1)])
    await cluster.down(other)
    cluster.repair()
    await asyncio.sleep(30)
    assert await tree.ledgers() == []


async def test_a_writer_says_what_it_left_without_a_copy(cluster: RepairedCluster) -> None:
    """A degraded ledger is made good as soon as the bookie is back, whoever wrote it."""
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"one")
    bookie = writer.metadata.ensemble[0]
    spare = set(cluster.bookies) - set(writer.metadata.ensemble)
    await cluster.down(bookie, *spare)
    for _ in range(5):
        await writer.append(b"more")
    await writer.close()
    noted = await FindingTree(cluster.driver).read(writer.id)
    assert noted is not None
    assert [(fault.kind, fault.bookie, fault.runs) for fault in noted.value] == [(FaultKind.UNSENT, bookie, ())]
    cluster.repair(audit_every_s=1e6)
    await cluster.up(bookie)
    await asyncio.sleep(30)
    assert bookie in (await cluster.require_whole(writer.id)).ensemble
    assert await FindingTree(cluster.driver).ledgers() == []


async def unsent(cluster: RepairedCluster, ledger: int) -> list[str]:
    noted = await FindingTree(cluster.driver).read(ledger)
    if noted is None:
        return []
    assert {fault.kind for fault in noted.value} == {FaultKind.UNSENT}
    return [fault.bookie for fault in noted.value]


@pytest.mark.parametrize("is_idle", [False, True])
async def test_so_it_does_of_a_bookie_that_failed_behind_the_ack_quorum(
    cluster: RepairedCluster, is_idle: bool
) -> None:
    """The next append would have replaced it, and none came."""
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"one")
    await asyncio.sleep(1)
    bookie = writer.metadata.ensemble[2]
    cluster.bookies[bookie].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    await writer.append(b"two")
    await asyncio.sleep(1)
    cluster.bookies[bookie].misbehave = None
    if is_idle:
        writer.drop_session()
        assert writer._session is None
    await writer.close()
    assert await unsent(cluster, writer.id) == [bookie]
    cluster.repair(audit_every_s=1e6, close_check_s=1e6)
    await asyncio.sleep(30)
    await cluster.require_whole(writer.id)


@pytest.mark.parametrize("is_late", [False, True])
async def test_so_it_does_of_a_bookie_that_has_not_answered_in_a_moment(
    cluster: RepairedCluster, is_late: bool
) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"one")
    await asyncio.sleep(1)
    bookie = writer.metadata.ensemble[1]
    cluster.bookies[bookie].held = []
    await writer.append(b"two")
    if is_late:
        asyncio.get_running_loop().call_later(LATE_ACKS_S / 2, cluster.bookies[bookie].release)
    began_at = asyncio.get_running_loop().time()
    await writer.close()
    took_s = asyncio.get_running_loop().time() - began_at
    assert await unsent(cluster, writer.id) == ([] if is_late else [bookie])
    assert took_s == pytest.approx(LATE_ACKS_S / 2 if is_late else LATE_ACKS_S, abs=LATE_ACKS_S / 4), "of virtual time"


async def test_a_ledger_without_an_entry_is_closed_without_a_word(cluster: RepairedCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await cluster.down(writer.metadata.ensemble[0])
    await writer.close()
    assert await unsent(cluster, writer.id) == []


async def test_a_whole_ledger_is_closed_without_a_word(cluster: RepairedCluster) -> None:
    await cluster.written(30, write_quorum=3, ack_quorum=2)
    assert await FindingTree(cluster.driver).ledgers() == []
