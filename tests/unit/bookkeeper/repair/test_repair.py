"""Auditors and replicators over scripted bookies."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import pytest

from support.repaired import RepairedCluster, flipped
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.ledger_names import LedgerNames
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerState

GRACE_S = 600.0


async def test_what_a_lost_bookie_had_is_copied_to_another(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(count) for count in (0, 1, 30, 700)]
    lost = (await cluster.metadata(ledgers[2])).ensemble[1]
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.down(lost)
    await asyncio.sleep(GRACE_S - 1)
    assert await cluster.marks() == []
    await asyncio.sleep(30)
    for ledger in ledgers:
        metadata = await cluster.require_whole(ledger)
        assert all(lost not in fragment.bookies for fragment in metadata.fragments)
    assert await cluster.marks() == [] and await cluster.tree.locks() == {}


async def test_a_restart_within_the_grace_marks_nothing(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    cluster.repair()
    for bookie in tuple(cluster.bookies) * 2:
        await cluster.down(bookie)
        await asyncio.sleep(GRACE_S - 10)
        await cluster.up(bookie)
        await asyncio.sleep(1)
    assert cluster.heard("ledgers marked") == []
    await cluster.require_whole(ledger)


async def test_many_that_go_at_once_are_marked_after_a_second_grace(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    cluster.repair()
    await asyncio.sleep(5)
    gone = (await cluster.metadata(ledger)).ensemble[:2]
    await cluster.down(*gone)
    await asyncio.sleep(GRACE_S + 10)
    assert await cluster.marks() == []
    assert [event["reason"] for event in cluster.heard("audit held back")] == ["too many bookies went at once"]
    await asyncio.sleep(GRACE_S)
    assert await cluster.marks() == [ledger]


async def test_an_order_marks_them_at_once(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.down(*(await cluster.metadata(ledger)).ensemble[:2])
    await asyncio.sleep(1)
    await cluster.tree.set_recovery_delay(int(GRACE_S))
    await asyncio.sleep(1)
    assert await cluster.marks() == [ledger]


async def test_another_delay_is_no_order(cluster: RepairedCluster) -> None:
    await cluster.written()
    running = cluster.repair()
    await asyncio.sleep(5)
    await cluster.down("b0")
    await cluster.tree.set_recovery_delay(50)
    await asyncio.sleep(1)
    assert list(running.auditor.core.lost) == [] and running.auditor.core.grace_s == 50
    await asyncio.sleep(50)
    assert list(running.auditor.core.lost) == ["b0"]


async def test_one_that_comes_back_while_ledgers_are_listed_is_not_marked(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = (await cluster.metadata(await cluster.written())).ensemble[0]
    read = LedgerNames.read

    async def late(self: LedgerNames, bookies: Collection[str] = ()) -> list[int]:
        found = await read(self, bookies)
        if bookies:
            await cluster.up(lost)
        return found

    monkeypatch.setattr(LedgerNames, "read", late)
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.down(lost)
    await asyncio.sleep(GRACE_S + 10)
    assert [(event["named"], event["marked"]) for event in cluster.heard("ledgers marked")] == [(1, 0)]
    assert await cluster.marks() == [] and cluster.heard("replica moved") == []


async def test_an_auditor_whose_session_ended_begins_anew(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    await asyncio.sleep(GRACE_S - 10)
    (vote,) = await cluster.tree.votes()
    await cluster.tree.withdraw(vote)
    await asyncio.sleep(GRACE_S - 10)
    assert cluster.heard("ledgers marked") == []
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)


async def test_while_disabled_nothing_is_marked_or_repaired(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    lost = (await cluster.metadata(ledger)).ensemble[0]
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.tree.disable()
    await cluster.down(lost)
    await cluster.tree.mark(ledger, [lost], 1)
    await asyncio.sleep(3 * GRACE_S)
    assert lost in (await cluster.metadata(ledger)).ensemble
    await cluster.tree.enable()
    await asyncio.sleep(20)
    await cluster.require_whole(ledger)


async def test_the_next_candidate_audits_when_the_auditor_ends(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    lost = (await cluster.metadata(ledger)).ensemble[0]
    first, second = cluster.repair("r0"), cluster.repair("r1")
    await asyncio.sleep(5)
    assert [each.auditor.is_elected for each in (first, second)] == [True, False]
    await first.close()
    await cluster.down(lost)
    await asyncio.sleep(GRACE_S + 20)
    assert second.auditor.is_elected
    await cluster.require_whole(ledger)


async def test_two_replicators_share_the_work(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(20) for _ in range(20)]
    lost = (await cluster.metadata(ledgers[0])).ensemble[0]
    for name in ("r0", "r1"):
        cluster.repair(name)
    await asyncio.sleep(5)
    await cluster.down(lost)
    await asyncio.sleep(GRACE_S + 60)
    for ledger in ledgers:
        await cluster.require_whole(ledger)
    moved = cluster.heard("replica moved")
    assert len({(event["ledger"], event["first"]) for event in moved}) == len(moved)


async def test_a_ledger_that_another_has_in_hand_is_left_alone_for_a_while(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried again and again, in no time."""
    ledger, tries = await cluster.written(), list[int]()
    await cluster.tree.mark(ledger, ["b0"], 1)
    await cluster.tree.lock(ledger, "another")
    lock = Underreplication.lock

    async def counted(self: Underreplication, ledger: int, holder: str) -> bool:
        tries.append(ledger)
        return await lock(self, ledger, holder)

    monkeypatch.setattr(Underreplication, "lock", counted)
    cluster.repair(poll_s=10.0)
    await asyncio.sleep(100)
    assert 5 < len(tries) < 15
    await cluster.tree.unlock(ledger)
    await asyncio.sleep(20)
    assert await cluster.marks() == []


async def test_while_disabled_a_ledger_that_waits_is_left_alone(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it was due, the switch was read again and again, in no time."""
    ledger = await cluster.written(ensemble=5, write_quorum=5)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(5)
    assert cluster.heard("ledger not repaired")
    await cluster.tree.disable()
    is_enabled, reads = Underreplication.is_enabled, list[None]()

    async def counted(self: Underreplication) -> bool:
        reads.append(None)
        return await is_enabled(self)

    monkeypatch.setattr(Underreplication, "is_enabled", counted)
    await asyncio.sleep(600)
    assert len(reads) < 150


async def test_an_open_ledger_that_is_closed_is_repaired_soon(cluster: RepairedCluster) -> None:
    """It was left alone for as long as if it had stayed open."""
    client = cluster.client(absent_bookie_s=0.0)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"one")
    lost = writer.metadata.ensemble[0]
    await cluster.down(lost)
    cluster.repair(grace_s=0.0, open_grace_s=100_000.0, retry_s=30.0)
    await asyncio.sleep(1000)
    assert await cluster.marks() == [writer.id]
    await writer.close()
    await asyncio.sleep(40)
    assert lost not in (await cluster.require_whole(writer.id)).ensemble


async def test_a_bad_copy_is_never_copied(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30, write_quorum=3)
    first, second, third = (await cluster.metadata(ledger)).ensemble
    for entry in (0, 7, 29):
        cluster.bookies[first].entries[ledger, entry] = flipped(cluster.bookies[first].entries[ledger, entry])
    await cluster.down(second)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(30)
    metadata = await cluster.metadata(ledger)
    (new,) = set(metadata.ensemble) - {first, second, third}
    for entry in range(30):
        assert cluster.bookies[new].entries[ledger, entry] == cluster.bookies[third].entries[ledger, entry]


async def test_silence_is_unknown_and_never_missing(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=2)
    silent, lost = (await cluster.metadata(ledger)).ensemble
    cluster.bookies[silent].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.ReadFrame) else None
    await cluster.down(lost)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(100)
    assert all("did not say" in event["reason"] for event in cluster.heard("ledger not repaired"))
    assert cluster.heard("ledger not repaired") and lost in (await cluster.metadata(ledger)).ensemble
    cluster.bookies[silent].misbehave = None
    await asyncio.sleep(700)
    await cluster.require_whole(ledger)


async def test_damage_on_a_living_bookie_is_made_good_in_place(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(30)
    ensemble = (await cluster.metadata(ledger)).ensemble
    stored = cluster.bookies[ensemble[0]].entries
    del stored[ledger, 5]
    stored[ledger, 12] = flipped(stored[ledger, 12])
    await cluster.tree.mark(ledger, [ensemble[0]], 1)
    cluster.repair()
    await asyncio.sleep(20)
    assert (await cluster.require_whole(ledger)).ensemble == ensemble
    mended = [run for event in cluster.heard("replica mended") for run in event["entries"]]
    assert mended == [(5, 5), (12, 12)]
    assert await cluster.marks() == []


async def test_a_bookie_in_limbo_gets_no_copy(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10)
    ensemble = (await cluster.metadata(ledger)).ensemble
    spare = sorted(set(cluster.bookies) - set(ensemble))
    await cluster.limbo(spare[0], "12")
    await cluster.limbo(spare[1], "0")
    await cluster.down(ensemble[0])
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(20)
    assert (await cluster.require_whole(ledger)).ensemble[0] == spare[1]


async def test_a_copy_that_cannot_be_read_back_is_in_no_metadata(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10)
    ensemble = (await cluster.metadata(ledger)).ensemble
    for name in set(cluster.bookies) - set(ensemble):
        cluster.bookies[name].misbehave = lambda request: Code.NO_ENTRY if isinstance(request, v2.ReadFrame) else None
    await cluster.down(ensemble[0])
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    assert (await cluster.metadata(ledger)).ensemble == ensemble and await cluster.marks() == [ledger]
    assert all("acknowledged" in event["reason"] for event in cluster.heard("ledger not repaired"))


@pytest.mark.parametrize("has_lists", [True, False])
async def test_who_lost_what_was_copied_first_is_in_no_metadata(cluster: RepairedCluster, has_lists: bool) -> None:
    """A bookie that no metadata names is in no limbo: it would deny what it lost."""
    ledger, lost_all = await cluster.written(40, write_quorum=3), list[str]()
    ensemble = (await cluster.metadata(ledger)).ensemble

    def loses(name: str, request: v2.Request) -> None:
        bookie = cluster.bookies[name]
        if isinstance(request, v2.ReadFrame) and request.entry == 39 and name not in lost_all:
            lost_all.append(name)
            for entry in range(20):
                del bookie.entries[ledger, entry]

    for name in set(cluster.bookies) - set(ensemble):
        cluster.bookies[name].misbehave = partial(loses, name)
        cluster.bookies[name].speaks_v3 = has_lists
    await cluster.down(ensemble[0])
    cluster.repair(grace_s=0.0, batch_entries=4)
    await asyncio.sleep(150)  # each of them loses it once
    assert lost_all and "does not have" in str(cluster.heard("ledger not repaired"))
    assert (await cluster.require_whole(ledger)).ensemble[0] in set(cluster.bookies) - set(ensemble)


async def test_an_open_ledger_is_closed_only_when_it_stood_still(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, close=False, write_quorum=3)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.down(ensemble[0])
    cluster.repair(grace_s=0.0, open_grace_s=300.0)
    await asyncio.sleep(290)
    assert (await cluster.metadata(ledger)).state is LedgerState.OPEN and not cluster.bookies[ensemble[1]].fenced
    await asyncio.sleep(60)
    metadata = await cluster.require_whole(ledger)
    assert metadata.last_entry == 9 and await cluster.marks() == []


async def test_an_open_ledger_is_not_fenced_without_a_place_for_a_copy(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, close=False, write_quorum=3)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.down(ensemble[0], *(set(cluster.bookies) - set(ensemble)))
    cluster.repair(grace_s=0.0, open_grace_s=5.0)
    await asyncio.sleep(2000)
    assert (await cluster.metadata(ledger)).state is LedgerState.OPEN
    assert not any(cluster.bookies[name].fenced for name in ensemble[1:])


async def test_an_open_ledger_that_no_recovery_can_fence_is_left_to_its_writer(cluster: RepairedCluster) -> None:
    """With one ack each bookie alone may have the newest entry: without the lost one nobody can say how far it goes."""
    client = cluster.client(absent_bookie_s=0.0)
    writer = await client.create_ledger(2, write_quorum=2, ack_quorum=1)
    await writer.append(b"one")
    lost, other = writer.metadata.ensemble
    await cluster.down(lost)
    cluster.repair(grace_s=0.0, open_grace_s=5.0)
    await asyncio.sleep(500)
    assert (await cluster.metadata(writer.id)).state is LedgerState.OPEN and not cluster.bookies[other].fenced
    assert await cluster.marks() == [writer.id]
    assert [await writer.append(b"more") for _ in range(2)] == [1, 2], "it takes another bookie by itself"
    await writer.close()
    await asyncio.sleep(700)
    assert lost not in {name for each in (await cluster.require_whole(writer.id)).fragments for name in each.bookies}


async def test_older_fragments_of_an_open_ledger_are_repaired_beside_its_writer(cluster: RepairedCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    for _ in range(10):
        await writer.append(b"one")
    lost = writer.metadata.ensemble[0]
    await cluster.down(lost)
    for _ in range(10):
        await writer.append(b"two")
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(20)
    assert lost not in (await cluster.metadata(writer.id)).fragments[0].bookies
    await writer.append(b"three")
    await writer.close()
    await cluster.require_whole(writer.id)


async def test_a_deleted_ledger_is_marked_no_more(cluster: RepairedCluster) -> None:
    await cluster.tree.mark(77, ["b0"], 1)
    cluster.repair()
    await asyncio.sleep(5)
    assert await cluster.marks() == []


async def test_new_damage_keeps_the_mark(cluster: RepairedCluster) -> None:
    """What is marked while it is repaired is looked at again."""
    ledger = await cluster.written(10)
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.tree.mark(ledger, [ensemble[0]], 1)
    found = await cluster.tree.read_mark(ledger)
    assert found is not None
    await cluster.tree.mark(ledger, [ensemble[2]], 2)
    assert not await cluster.tree.unmark(ledger, found.version)
    cluster.repair()
    await asyncio.sleep(30)
    assert await cluster.marks() == []
