"""The auditor's look at copies: lists of all bookies after a close, once a day and when one is back; samples."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from support.repaired import RepairedCluster, flipped
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.findings import CopyFault, FindingTree
from tallystick.bookkeeper.metadata.store import Create, Update, Znode
from tallystick.bookkeeper.repair import copy_audit
from tallystick.bookkeeper.repair.copy_check import CopyCheck
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.lost_runs import LOST_KEY
from tallystick.bookkeeper.wire.v3 import EntryListRequest
from tallystick.errors import MetadataUnavailable

DAY_S = 10_000.0  # a virtual loop ends after a real one
AUDITED = "/tallystick/ledgers/audited"


async def faults_of(cluster: RepairedCluster, ledger: int, *, samples: int = 0) -> list[tuple[str, str, object]]:
    check = CopyCheck(cluster.client().context, RepairSettings())
    metadata, bookies = await cluster.metadata(ledger), await cluster.driver.bookies()
    faults = await check.faults(ledger, metadata, bookies, samples=samples)
    return [(fault.kind.value, fault.bookie, fault.runs) for fault in faults]


def asked_lists(cluster: RepairedCluster, name: str) -> int:
    return sum(isinstance(request, EntryListRequest) for request in cluster.bookies[name].requests_v3)


@pytest.mark.parametrize("write_quorum", [2, 3])
async def test_a_missing_entry_is_found_by_lists_alone(cluster: RepairedCluster, write_quorum: int) -> None:
    ledger = await cluster.written(40, write_quorum=write_quorum)
    first, second, _ = (await cluster.metadata(ledger)).ensemble
    assert await faults_of(cluster, ledger) == []
    there = [entry for number, entry in cluster.bookies[first].entries if number == ledger]
    for entry in (there[0], there[5], there[-1]):
        del cluster.bookies[first].entries[ledger, entry]
    runs = tuple((entry, entry) for entry in (there[0], there[5], there[-1]))
    assert await faults_of(cluster, ledger) == [("missing", first, runs)]
    for entry in [entry for number, entry in cluster.bookies[second].entries if number == ledger]:
        del cluster.bookies[second].entries[ledger, entry]
    assert [fault[:2] for fault in await faults_of(cluster, ledger)] == [("missing", first), ("missing", second)]


async def test_of_a_long_ledger_that_a_bookie_lacks_no_entry_is_an_object(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(40)
    metadata, bookies = replace(await cluster.metadata(ledger), last_entry=200_000), await cluster.driver.bookies()
    for bookie in cluster.bookies.values():
        bookie.entries.clear()
    check = CopyCheck(cluster.client().context, RepairSettings())
    tracemalloc.start()
    try:
        faults = await check.faults(ledger, metadata, bookies)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(fault.kind.value, fault.bookie, fault.runs) for fault in faults] == [
        ("missing", bookie, ()) for bookie in metadata.ensemble
    ], "of so many runs the whole stripe is looked at"
    assert most_bytes < 2_000_000


async def test_a_bad_copy_is_found_by_samples(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(6, write_quorum=3)
    bookie = (await cluster.metadata(ledger)).ensemble[1]
    stored = cluster.bookies[bookie].entries
    for entry in range(6):
        stored[ledger, entry] = flipped(stored[ledger, entry])
    assert await faults_of(cluster, ledger) == []
    assert await faults_of(cluster, ledger, samples=6) == [("damaged", bookie, ((0, 5),))]


async def test_a_bookie_without_lists_is_read(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    entry = next(entry for number, entry in cluster.bookies[bookie].entries if number == ledger)
    del cluster.bookies[bookie].entries[ledger, entry]
    cluster.bookies[bookie].speaks_v3 = False
    assert await faults_of(cluster, ledger) == [("missing", bookie, ((entry, entry),))]


async def test_silence_is_no_finding(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    bookie = (await cluster.metadata(ledger)).ensemble[0]
    cluster.bookies[bookie].clear()
    cluster.bookies[bookie].speaks_v3 = False
    cluster.bookies[bookie].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.ReadFrame) else None
    assert await faults_of(cluster, ledger) == []


async def test_a_ledger_is_looked_at_soon_after_its_close_and_made_good(cluster: RepairedCluster) -> None:
    old = await cluster.written(10)
    cluster.repair()
    await asyncio.sleep(100)
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [1]
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    for _ in range(10):
        await writer.append(b"one")
    await asyncio.sleep(100)
    bookie = writer.metadata.ensemble[0]
    del cluster.bookies[bookie].entries[writer.id, 4]
    before = asked_lists(cluster, bookie)
    await writer.close()
    await asyncio.sleep(100)
    assert [(event["ledger"], event["kinds"], event["bookies"]) for event in cluster.heard("copies at fault")] == [
        (writer.id, ["missing"], [bookie])
    ]
    await cluster.require_whole(writer.id)
    assert await FindingTree(cluster.driver).ledgers() == []
    assert asked_lists(cluster, bookie) == before + 1, "each ledger once"
    await asyncio.sleep(1000)
    assert asked_lists(cluster, bookie) == before + 1
    await cluster.require_whole(old)


async def test_all_ledgers_are_looked_at_once_a_day_whoever_is_the_auditor(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(10, write_quorum=3) for _ in range(3)]
    first = cluster.repair("r0", audit_every_s=DAY_S)
    cluster.repair("r1", audit_every_s=DAY_S)
    await asyncio.sleep(1000)
    await first.close()
    await asyncio.sleep(1000)
    assert len(cluster.heard("copies audited")) == 1
    bookie = (await cluster.metadata(ledgers[1])).ensemble[2]
    del cluster.bookies[bookie].entries[ledgers[1], 3]
    await asyncio.sleep(DAY_S)
    assert len(cluster.heard("copies audited")) == 2
    assert [(event["ledger"], event["kinds"]) for event in cluster.heard("copies at fault")] == [
        (ledgers[1], ["missing"])
    ]
    await cluster.require_whole(ledgers[1])


async def test_all_ledgers_are_looked_at_slowly_and_what_is_closed_meanwhile_soon(cluster: RepairedCluster) -> None:
    old = [await cluster.written(2) for _ in range(40)]
    cluster.repair(audit_ledgers_per_s=0.1, close_check_s=10.0)
    await asyncio.sleep(100)
    new = await cluster.written(10)
    del cluster.bookies[(await cluster.metadata(new)).ensemble[0]].entries[new, 0]
    await asyncio.sleep(60)
    assert [event["ledger"] for event in cluster.heard("copies at fault")] == [new]
    assert cluster.heard("copies audited") == []
    await asyncio.sleep(400)
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [len(old)]


async def test_all_ledgers_are_looked_at_in_a_quarter_of_the_time_until_the_next_look(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(2) for _ in range(40)]
    cluster.repair(audit_ledgers_per_s=0.001, audit_every_s=DAY_S, close_check_s=10.0)
    await asyncio.sleep(DAY_S / 4 + 100)
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [len(ledgers)]


async def test_a_look_goes_on_where_a_fault_ended_it(cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_audit, "AT_ONCE", 2)
    old = [await cluster.written(1, ensemble=3, write_quorum=3) for _ in range(6)]
    bookie = (await cluster.metadata(old[0])).ensemble[0]
    before, failing = asked_lists(cluster, bookie), FailingReads(monkeypatch, most=2)
    cluster.repair(close_check_s=10.0)
    failing.next = [old[4]] * 2  # for what is closed now, and for all
    await asyncio.sleep(100)
    assert "audit put off" in [event.kind for event in cluster.events] and failing.next == []
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [len(old)]
    assert asked_lists(cluster, bookie) - before == len(old), "each ledger once"


async def test_what_was_closed_is_looked_at_after_a_fault(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.repair(close_check_s=10.0)
    await asyncio.sleep(100)
    failing = FailingReads(monkeypatch)
    client = cluster.client()
    writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=2) for _ in range(2)]
    for writer in writers:
        await writer.append(b"one")
    await asyncio.sleep(100)
    late = await cluster.written(1, ensemble=3, write_quorum=3)
    for writer in writers:
        await writer.close()
    ledgers = [*(writer.id for writer in writers), late]
    for ledger in ledgers:
        del cluster.bookies[(await cluster.metadata(ledger)).ensemble[0]].entries[ledger, 0]
    failing.next = list(ledgers)
    await asyncio.sleep(200)
    assert failing.next == []
    assert sorted(event["ledger"] for event in cluster.heard("copies at fault")) == ledgers


async def test_a_ledger_that_is_deleted_meanwhile_has_no_fault(cluster: RepairedCluster) -> None:
    old = [await cluster.written(1) for _ in range(20)]
    cluster.repair(audit_ledgers_per_s=0.1, close_check_s=10.0)
    await asyncio.sleep(50)
    await cluster.client().delete_ledger(old[-1])
    for bookie in cluster.bookies.values():
        bookie.entries.pop((old[-1], 0), None)
    await asyncio.sleep(400)
    assert len(cluster.heard("copies audited")) == 1 and cluster.heard("copies at fault") == []


@pytest.mark.parametrize("what", ["metadata", "finding"])
async def test_what_nobody_can_read_of_a_ledger_hinders_no_other(cluster: RepairedCluster, what: str) -> None:
    """Each look ended at that ledger, and began there again."""
    bad, good = [await cluster.written(3, ensemble=3, write_quorum=3) for _ in range(2)]
    if what == "metadata":
        versioned = await cluster.driver.read_ledger(bad)
        unreadable = replace(versioned.value, custom=MappingProxyType({LOST_KEY: b"of a later version"}))
        await cluster.driver.write_ledger(bad, unreadable, versioned.version)
    else:
        await cluster.store.change(Create(f"/tallystick/ledgers/findings/F{bad:010d}", b"of a later version"))
    for ledger in (bad, good):
        del cluster.bookies[(await cluster.metadata(ledger)).ensemble[0]].entries[ledger, 1]
    cluster.repair(close_check_s=10.0, audit_every_s=1000.0, ledgers_at_once=1)
    await asyncio.sleep(500)
    assert [event["ledger"] for event in cluster.heard("copies at fault")] == [good]
    assert [(event["ledgers"], event["unknown"]) for event in cluster.heard("copies audited")] == [(2, 1)]
    assert cluster.heard("audit put off") == []


async def test_a_fault_ends_all_that_a_look_has_under_way(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of its workers went on beside the next look."""
    old = [await cluster.written(1, ensemble=3, write_quorum=3) for _ in range(12)]
    bookie = (await cluster.metadata(old[0])).ensemble[0]
    del cluster.bookies[bookie].entries[old[0], 0]
    before, note = asked_lists(cluster, bookie), FindingTree.note

    async def fails(tree: FindingTree, ledger: int, faults: Sequence[CopyFault]) -> None:
        monkeypatch.setattr(FindingTree, "note", note)
        raise MetadataUnavailable("away")

    monkeypatch.setattr(FindingTree, "note", fails)
    cluster.repair(close_check_s=100.0, audit_every_s=1000.0, audit_ledgers_per_s=0.1, ledgers_at_once=2)
    await asyncio.sleep(190)
    assert len(cluster.heard("audit put off")) == 1
    assert asked_lists(cluster, bookie) - before <= 4


class FailingReads:
    """Reads of these ledgers' metadata fail, once for each time that one is named."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = copy_audit.AT_ONCE) -> None:
        """A read of more than ``most`` ledgers is somebody else's."""
        self.next = list[int]()
        read = ClusterMetadata.read_ledgers

        async def fails(driver: ClusterMetadata, ledgers: Sequence[int]) -> Mapping[int, Znode]:
            met = [ledger for ledger in self.next if ledger in ledgers]
            if met and len(ledgers) <= most:
                self.next.remove(met[0])
                raise MetadataUnavailable("away")
            return await read(driver, ledgers)

        monkeypatch.setattr(ClusterMetadata, "read_ledgers", fails)


async def test_the_ledgers_of_a_bookie_that_is_back_are_looked_at(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, write_quorum=3)
    bookie, other, _ = (await cluster.metadata(ledger)).ensemble
    cluster.repair()
    await asyncio.sleep(100)
    await cluster.down(bookie)
    await asyncio.sleep(100)
    del cluster.bookies[bookie].entries[ledger, 4]
    del cluster.bookies[other].entries[ledger, 5]
    await cluster.up(bookie)
    await asyncio.sleep(100)
    assert [(event["ledger"], event["bookies"]) for event in cluster.heard("copies at fault")] == [(ledger, [bookie])]
    assert (ledger, 4) in cluster.bookies[bookie].entries and (ledger, 5) not in cluster.bookies[other].entries
    before = asked_lists(cluster, bookie)
    await asyncio.sleep(500)
    assert asked_lists(cluster, bookie) == before, "once"


async def test_who_is_not_the_auditor_looks_at_nothing(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10)
    await cluster.tree.prepare()
    await cluster.tree.vote("another")
    del cluster.bookies[(await cluster.metadata(ledger)).ensemble[0]].entries[ledger, 0]
    cluster.repair()
    await asyncio.sleep(1000)
    assert cluster.heard("copies audited") == [] and cluster.heard("copies at fault") == []


@pytest.mark.parametrize(("since_s", "is_due"), [(DAY_S + 1.0, True), (DAY_S / 2, False), (-3600.0, True)])
async def test_all_ledgers_are_looked_at_a_day_after_the_last_look_and_if_that_is_still_to_come(
    cluster: RepairedCluster, since_s: float, is_due: bool
) -> None:
    """The clock may have been set back."""
    await cluster.written(1)
    now_ms = cluster.client().context.clock.wall_ms()
    await cluster.store.change(Create(AUDITED, b"%d" % (now_ms - since_s * 1000)))
    cluster.repair(audit_every_s=DAY_S)
    await asyncio.sleep(200)
    assert len(cluster.heard("copies audited")) == is_due


async def test_a_slow_look_counts_from_its_begin_and_a_ledger_that_nobody_can_read_was_not_looked_at(
    cluster: RepairedCluster,
) -> None:
    ledgers = [await cluster.written(1) for _ in range(21)]
    (path,) = [path for path in cluster.store._tree.nodes if path.endswith(f"/L{ledgers[0]:04d}")]
    await cluster.store.change(
        Update(path, b"damaged", (await cluster.driver.read_ledgers(ledgers))[ledgers[0]].version)
    )
    began_ms = cluster.client().context.clock.wall_ms()
    cluster.repair(audit_ledgers_per_s=0.1, audit_every_s=DAY_S, close_check_s=10.0)
    await asyncio.sleep(500)
    assert [event["ledgers"] for event in cluster.heard("copies audited")] == [len(ledgers) - 1]
    node = await cluster.store.get(AUDITED)
    assert node is not None and int(node.data) - began_ms < 100_000
