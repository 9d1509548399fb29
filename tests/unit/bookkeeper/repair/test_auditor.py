"""The auditor's shell: what of a fault, of an election and of damaged nodes is left behind for the next look."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.metadata.cluster import DECODED_A_TURN
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair import auditor
from tallystick.bookkeeper.repair.ledger_names import LedgerNames
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import MetadataUnavailable

GRACE_S = 600.0


class FailingListings:
    """Listings for ledgers that name lost bookies fail while ``active``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active = True
        read = LedgerNames.read

        async def fails(names: LedgerNames, bookies: Collection[str] = ()) -> list[int]:
            if self.active and bookies:
                raise MetadataUnavailable("away")
            return await read(names, bookies)

        monkeypatch.setattr(LedgerNames, "read", fails)


async def lost_in_vain(cluster: RepairedCluster, failing: FailingListings) -> tuple[int, str]:
    """A ledger, and a bookie of it that is lost, and whose ledgers could not be marked."""
    assert failing.active
    ledger = await cluster.written()
    lost = (await cluster.metadata(ledger)).ensemble[0]
    cluster.repair()
    await asyncio.sleep(5)
    await cluster.down(lost)
    await asyncio.sleep(GRACE_S + 10)
    return ledger, lost


async def test_who_was_lost_before_an_election_is_not_lost_by_that(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ledgers were marked at once, without a grace: they still were to be when the session ended."""
    failing = FailingListings(monkeypatch)
    ledger, _ = await lost_in_vain(cluster, failing)
    assert cluster.heard("bookies lost") and not cluster.heard("ledgers marked")
    (vote,) = await cluster.tree.votes()
    await cluster.tree.withdraw(vote)
    failing.active = False
    await asyncio.sleep(GRACE_S - 20)
    assert cluster.heard("ledgers marked") == []
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)


async def test_who_came_back_before_its_ledgers_could_be_marked_has_a_new_grace(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingListings(monkeypatch)
    ledger, lost = await lost_in_vain(cluster, failing)
    await cluster.up(lost)
    await asyncio.sleep(10)
    await cluster.down(lost)
    failing.active = False
    await asyncio.sleep(GRACE_S - 20)
    assert [event["marked"] for event in cluster.heard("ledgers marked") if event["marked"]] == []
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)


async def test_a_damaged_mark_hinders_no_mark_of_another_ledger(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditor, "AT_ONCE", 1)
    damaged, ledger = [await cluster.written(3, ensemble=5, write_quorum=2) for _ in range(2)]
    path = f"/ledgers/underreplication/ledgers/0000/0000/0000/{damaged:04x}/urL{damaged:010d}"
    await cluster.store.change(Create(path, b"damaged"))
    await cluster.add()
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    running = cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)
    assert len(told := cluster.heard("ledgers marked")) < 5, "it is not tried again all the time"
    assert {event["unreadable"] for event in told} == {1}
    assert await cluster.marks() == [damaged] and not running.failure.done()


async def test_metadata_that_went_away_amid_marks_leaves_them_to_be_made(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not marked for that is no mark that nobody can read: it would be left until the next day."""
    ledger, mark, failures = await cluster.written(), Underreplication.mark, [MetadataUnavailable("away")]

    async def fails(tree: Underreplication, *arguments: Any) -> bool:
        if failures:
            raise failures.pop()
        return await mark(tree, *arguments)

    monkeypatch.setattr(Underreplication, "mark", fails)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    await cluster.require_whole(ledger)
    assert not failures and [event["unreadable"] for event in cluster.heard("ledgers marked")] == [0]


@pytest.mark.parametrize("named", [0, 1])
async def test_the_metadata_of_many_ledgers_are_decoded_over_several_turns(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    """After the first one that named a bookie there was no other turn until the 128th that did."""
    metadata = await cluster.metadata(await cluster.written(1))
    other = replace(metadata, fragments=(Fragment(0, ("x", "y", "z")),))
    ledgers = [(await cluster.driver.create_ledger(each)).value for each in [metadata] * named + [other] * 500]
    decoded = most = 0
    decode = wire.decode

    def counting(*args: Any, **named: Any) -> LedgerMetadata:
        nonlocal decoded
        decoded += 1
        return decode(*args, **named)

    async def turns() -> None:
        nonlocal decoded, most
        while True:
            most, decoded = max(most, decoded), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(wire, "decode", counting)
    ticking = asyncio.create_task(turns())
    found = await LedgerNames(cluster.driver).missing(ledgers, [metadata.ensemble[0]])
    await asyncio.sleep(0)
    ticking.cancel()
    assert len(found) == named and 0 < most <= DECODED_A_TURN
