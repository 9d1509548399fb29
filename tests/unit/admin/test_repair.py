"""What an operator asks of repair, and orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from support.fake_bookie import FakeBookie
from support.repaired import RepairedCluster
from tallystick.admin import repair
from tallystick.admin.decommission import decommission
from tallystick.bookkeeper.metadata.given_up import GivenUp, GivenUpTree
from tallystick.bookkeeper.metadata.lost_entries import LostTree
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.bookkeeper.repair.ledger_names import LedgerNames
from tallystick.bookkeeper.repair.ledger_repair import Deferred, Lost, Repaired
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import RefusedResponse, encode_response
from tallystick.errors import MetadataUnavailable, NoSuchLedger, NotFound, Unauthorized, Unavailable, UsageError

SOON = RepairSettings(open_grace_s=0.0)
WHO = "op@host"


@pytest.fixture
async def cluster() -> AsyncIterator[RepairedCluster]:
    made = await RepairedCluster().started(5)
    yield made
    await made.close()


def ignore(more: int) -> None:
    """Nobody watches the progress."""


async def audit_lines(cluster: RepairedCluster) -> list[tuple[str, str, str, str]]:
    """Who took which bookie out, by time; the status tells the same."""
    lines = (await repair.cluster_status(f"memory://{cluster.name}")).taken_out
    return [(line.bookie, line.who, line.command, line.outcome) for line in lines]


async def test_a_ledger_is_repaired_without_a_mark_and_a_mark_goes_with_it(cluster: RepairedCluster) -> None:
    ledger, client = await cluster.written(), cluster.client()
    ensemble = (await cluster.metadata(ledger)).ensemble
    await cluster.down(ensemble[0])
    del cluster.bookies[ensemble[1]].entries[ledger, 4]
    states = {report.bookie: report.state for report in await repair.explain(client, ledger)}
    assert states == {
        ensemble[0]: "not registered",
        ensemble[1]: "lacks, or has damaged, 4",
        ensemble[2]: repair.WHOLE,
    }
    await cluster.tree.mark(ledger, [ensemble[0]], 1)
    assert await repair.repair_ledger(client, ledger, open_grace_s=600) == Repaired()
    await cluster.require_whole(ledger)
    assert await cluster.marks() == [] and await cluster.tree.locks() == {}
    assert all(report.is_whole for report in await repair.explain(client, ledger))


async def test_who_has_it_in_hand_is_not_disturbed(cluster: RepairedCluster) -> None:
    ledger = await cluster.written()
    await cluster.tree.lock(ledger, "another")
    with pytest.raises(UsageError, match="in hand"):
        await repair.repair_ledger(cluster.client(), ledger, open_grace_s=600)
    with pytest.raises(NoSuchLedger):
        await repair.repair_ledger(cluster.client(), 999, open_grace_s=600)
    assert await cluster.tree.locks() == {ledger: "another"}


async def test_what_cannot_be_repaired_is_said(cluster: RepairedCluster) -> None:
    ledger, client = await cluster.written(10, ensemble=2), cluster.client()
    first, second = (await cluster.metadata(ledger)).ensemble
    del cluster.bookies[first].entries[ledger, 3]
    await cluster.down(second)
    assert await repair.repair_ledger(client, ledger, open_grace_s=600) == Lost(((3, 3),), second)
    await cluster.down(*(set(cluster.bookies) - {first, second}))
    assert isinstance(await repair.repair_ledger(client, ledger, open_grace_s=600), Deferred)


async def test_the_status_names_what_is_marked_and_since_when(cluster: RepairedCluster) -> None:
    uri, ledger = f"memory://{cluster.name}", await cluster.written()
    whole = await repair.cluster_status(uri)
    assert whole.is_well and whole.repair.since is None
    await cluster.tree.mark(ledger, ["b0"], 1_700_000_000_000)
    await cluster.limbo("b1", "7")
    assert not await repair.switch(uri, enabled=True)
    assert await repair.switch(uri, enabled=False)
    found = await repair.cluster_status(uri)
    assert not found.is_well and found.limbo == {"b1": 7} and not found.repair.is_enabled
    assert found.repair.since == "2023-11-14T22:13:20+00:00"
    assert [(mark.ledger, mark.bookies) for mark in found.repair.marks] == [(ledger, ("b0",))]


async def test_all_marks_are_counted_and_the_first_ones_are_read(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 the status said 1,000, until 9,000 of them were repaired."""
    monkeypatch.setattr(repair, "SHOWN_MARKS", 3)
    for ledger in range(8):
        await cluster.tree.mark(ledger, ["b0"], 1)
    state = await repair.status(f"memory://{cluster.name}")
    assert ([mark.ledger for mark in state.marks], state.marked) == ([0, 1, 2], 8)


@pytest.mark.parametrize("ctime_ms", [(1 << 63) - 1, 1 << 55, -(1 << 63)])
async def test_a_mark_of_no_date_hides_no_other(cluster: RepairedCluster, ctime_ms: int) -> None:
    """Others write these marks, too."""
    await cluster.tree.mark(1, ["b0"], ctime_ms)
    await cluster.tree.mark(2, ["b0"], 1_700_000_000_000)
    state = await repair.status(f"memory://{cluster.name}")
    assert [mark.since for mark in state.marks] == [None, "2023-11-14T22:13:20+00:00"]


async def test_what_nobody_can_read_is_told_and_hides_nothing_else(cluster: RepairedCluster) -> None:
    uri, root = f"memory://{cluster.name}", cluster.driver.root
    for ledger in (7, 8):
        await cluster.tree.mark(ledger, ["b0"], 1_700_000_000_000)
        assert await cluster.tree.lock(ledger, "holder")
        await LostTree(cluster.driver).note(ledger, [(0, 1)], "b1", 1)
        await GivenUpTree(cluster.driver).note(GivenUp(ledger, WHO, 1, 5, "0-1", ("b1",)))
    await cluster.tree.begin_recovery_delay(5)
    await cluster.tree.vote("auditor")
    paths = [
        f"{root}/underreplication/ledgers/0000/0000/0000/0007/urL0000000007",
        f"{root}/underreplication/locks/urL0000000007",
        f"{root}/underreplication/lostBookieRecoveryDelay",
        f"{root}/underreplication/auditorelection/V_0000000000",
        f"/tallystick{root}/lost/L0000000007",
        f"/tallystick{root}/given-up/G0000000007-1",
    ]
    for path in paths:
        node = await cluster.store.get(path)
        assert node is not None
        await cluster.store.change(Update(path, b"{", node.version))
    for path in (f"/tallystick{root}/taken-out/1-b9", f"/tallystick{root}/restored"):
        await cluster.store.change(Create(path, b"{"))
        paths.append(path)
    health = await repair.cluster_status(uri)
    assert all(any(path in reason for reason in health.repair.unreadable) for path in paths)
    assert len(health.repair.unreadable) == len(paths) and not health.is_well
    assert [(mark.ledger, mark.bookies) for mark in health.repair.marks] == [(7, ()), (8, ("b0",))]
    assert health.repair.in_hand == {8: "holder"} and list(health.repair.lost) == [8]
    assert [line.ledger for line in health.repair.given_up] == [8] and health.taken_out == ()
    assert (health.repair.delay_s, health.repair.auditor, health.is_held) == (None, None, True)
    assert len((await repair.status(uri)).unreadable) == 6


async def test_an_audit_names_ledgers_of_bookies_that_are_gone(cluster: RepairedCluster) -> None:
    uri, ledger, looked_at = f"memory://{cluster.name}", await cluster.written(), list[int]()
    assert (await repair.cluster_audit(uri, looked_at.append)).findings == ()
    gone = (await cluster.metadata(ledger)).ensemble[1]
    await cluster.down(gone)
    found = await repair.cluster_audit(uri, looked_at.append)
    assert [(each.ledger, each.bookies) for each in found.findings] == [(ledger, (gone,))]
    assert found.ledgers == 1 and looked_at == [1, 1] and await cluster.marks() == []


async def test_an_order_is_the_delay_written_anew(cluster: RepairedCluster) -> None:
    uri = f"memory://{cluster.name}"
    await cluster.tree.vote("an auditor")
    assert await repair.order_audit(uri)
    first = await cluster.tree.recovery_delay()
    await cluster.tree.disable()
    assert not await repair.order_audit(uri)
    second = await cluster.tree.recovery_delay()
    assert first is not None and second is not None
    assert first.value == second.value == 600 and second.version == first.version + 1


async def test_an_order_that_no_auditor_would_take_is_refused(cluster: RepairedCluster) -> None:
    vote = await cluster.tree.vote("an auditor")
    await cluster.tree.withdraw(vote)
    with pytest.raises(Unavailable, match="no auditor runs"):
        await repair.order_audit(f"memory://{cluster.name}")
    assert await cluster.tree.recovery_delay() is None


async def test_a_dead_bookie_is_decommissioned_at_once(cluster: RepairedCluster) -> None:
    ledgers = [await cluster.written(20) for _ in range(4)] + [await cluster.written(20, close=False)]
    dead = (await cluster.metadata(ledgers[-1])).ensemble[0]
    await cluster.down(dead)
    found = await decommission(cluster.client(), dead, SOON, ignore, WHO)
    assert found.is_done and found.left == {}
    for ledger in ledgers:
        if (await cluster.metadata(ledger)).is_closed:
            await cluster.require_whole(ledger)
    assert dead not in await cluster.driver.cookies()
    with pytest.raises(NotFound):
        await decommission(cluster.client(), dead, SOON, ignore, WHO)


async def test_a_living_bookie_is_drained_copied_from_and_stopped(cluster: RepairedCluster) -> None:
    """It alone has some entries: those are copied from it."""
    ledger, client = await cluster.written(20, ensemble=1, write_quorum=1, ack_quorum=1), cluster.client()
    (leaving,) = (await cluster.metadata(ledger)).ensemble
    with pytest.raises(UsageError, match="drain"):
        await decommission(client, leaving, SOON, ignore, WHO)
    await cluster.set_read_only(leaving)
    found = await decommission(client, leaving, SOON, ignore, WHO)
    assert (found.moved, found.left, found.is_registered, found.is_done) == (1, {}, True, False)
    assert leaving not in (await cluster.require_whole(ledger)).ensemble
    assert (await decommission(client, leaving, SOON, ignore, WHO)).moved == 0, "asked for again, before it is stopped"
    await cluster.down(leaving)
    assert (await decommission(client, leaving, SOON, ignore, WHO)).is_done
    assert await audit_lines(cluster) == [
        (leaving, WHO, "decommission", "ledgers moved: 1, left: 0"),
        (leaving, WHO, "decommission", "its cookie is deleted"),
    ]


async def test_what_it_alone_has_keeps_a_dead_bookie(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(20, ensemble=1, write_quorum=1, ack_quorum=1)
    (dead,) = (await cluster.metadata(ledger)).ensemble
    await cluster.down(dead)
    found = await decommission(cluster.client(), dead, SOON, ignore, WHO)
    assert not found.is_done and list(found.left) == [ledger]
    assert await audit_lines(cluster) == [], "nothing was done"
    assert list((await decommission(cluster.client(), dead, SOON, ignore, WHO, force=True)).left) == [ledger]
    assert await audit_lines(cluster) == [(dead, WHO, "decommission --force", "ledgers moved: 0, left: 1")]
    assert dead in await cluster.driver.cookies() and (await cluster.metadata(ledger)).ensemble == (dead,)


async def test_too_few_are_never_left(cluster: RepairedCluster) -> None:
    await cluster.written(5, ensemble=5, write_quorum=5)
    await cluster.down("b0")
    with pytest.raises(UsageError, match="fewer bookies would stay"):
        await decommission(cluster.client(), "b0", SOON, ignore, WHO)
    assert "b0" in await cluster.driver.cookies()


async def test_one_bookie_is_taken_out_at_a_time(cluster: RepairedCluster) -> None:
    await cluster.written(500)
    await cluster.down("b0", "b1")
    outcomes = await asyncio.gather(
        *(decommission(cluster.client(), bookie, SOON, ignore, WHO) for bookie in ("b0", "b1")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes].count(UsageError) == 1


async def test_whose_session_ended_meanwhile_asks_again_and_lets_the_next_one_be(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = "/tallystick/ledgers/decommission", MemoryStore(cluster.name)
    ledger = await cluster.written()
    dead = (await cluster.metadata(ledger)).ensemble[0]
    await cluster.down(dead)
    read = LedgerNames.read

    async def read_late(names: LedgerNames, bookies: Collection[str] = ()) -> list[int]:
        await cluster.store.change(Delete(path))  # as with its session
        await other.change(Create(path, b"b1", ephemeral=True))
        return await read(names, bookies)

    monkeypatch.setattr(LedgerNames, "read", read_late)
    with pytest.raises(MetadataUnavailable, match="ask again"):
        await decommission(cluster.client(), dead, SOON, ignore, WHO)
    node = await cluster.store.get(path)
    assert node is not None and node.owner in other.owners
    assert await cluster.driver.read_cookie(dead) is not None


@pytest.mark.rule("N14")
async def test_who_is_an_administrator_takes_a_bookie_out_though_too_few_stay(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=4, write_quorum=4, ack_quorum=3)
    ensemble = (await cluster.metadata(ledger)).ensemble
    dead, away = ensemble[0], ensemble[1]
    await cluster.down(dead, away)
    client = cluster.client()
    with pytest.raises(UsageError, match="fewer bookies would stay"):
        await decommission(client, dead, SOON, ignore, WHO)
    assert await audit_lines(cluster) == [], "it was refused"
    assert (await decommission(client, dead, SOON, ignore, WHO, force=True)).is_done
    assert await audit_lines(cluster) == [(dead, WHO, "decommission --force", "its cookie is deleted")]
    await cluster.up(away)
    assert dead not in (await cluster.require_whole(ledger)).ensemble


async def test_while_another_is_taken_out_an_administrator_may(cluster: RepairedCluster) -> None:
    path = "/tallystick/ledgers/decommission"
    await cluster.store.change(Create(path, b"b1"))
    await cluster.down("b0")
    assert (await decommission(cluster.client(), "b0", SOON, ignore, WHO, force=True)).is_done
    assert await cluster.store.get(path) is not None, "it is the other one's"


@pytest.mark.rule("N4", "N14")
async def test_n4_who_is_no_administrator_forces_nothing(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=4, write_quorum=4, ack_quorum=3)
    ensemble = (await cluster.metadata(ledger)).ensemble
    dead = ensemble[0]
    await cluster.down(dead, ensemble[1])

    def refuse(request: v3.Request) -> bytes | None:
        if not isinstance(request, v3.BookieInfoRequest) or not request.requested & v3.ADMINISTRATOR:
            return FakeBookie.USUAL
        number, operation = request.header.request_id, request.OPERATION
        return encode_response(RefusedResponse(number, operation, Code.UNAUTHORIZED))

    (no,) = set(cluster.bookies) - set(ensemble)
    cluster.bookies[no].script_v3 = refuse
    with pytest.raises(Unauthorized, match="administrators") as told:
        await decommission(cluster.client(), dead, SOON, ignore, WHO, force=True)
    assert told.value.bookie == no and dead in (await cluster.metadata(ledger)).ensemble
    await cluster.down(*(set(cluster.bookies) - {dead, ensemble[1]}))
    with pytest.raises(Unavailable, match="no bookie said"):
        await decommission(cluster.client(), dead, SOON, ignore, WHO, force=True)
