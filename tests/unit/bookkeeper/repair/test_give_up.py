"""Entries without a good copy are given up by an operator, and readers hear of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from support.old_ledgers import rewrite_as_format_1
from support.repaired import RepairedCluster, flipped
from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.metadata.given_up import GivenUp, GivenUpTree
from tallystick.bookkeeper.metadata.lost_entries import LostTree
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.repair.give_up import GivingUp, Loss
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.errors import EntryLost, LedgerFenced, MetadataError, RecoveryIncomplete, Unavailable, UsageError


def giving_up(cluster: RepairedCluster, ledger: int) -> GivingUp:
    return GivingUp(cluster.client(), ledger, RepairSettings())


async def read_all(client: LedgerClient, ledger: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Read a closed ledger. Returns the entries that could be read, and the runs that are lost."""
    reader = await client.open_ledger(ledger)
    entries, lost, first = list[int](), list[tuple[int, int]](), 0
    while first <= reader.last_entry:
        try:
            async with aclosing(reader.read(first, reader.last_entry)) as read:
                async for entry in read:
                    entries.append(entry.id)
                    first = entry.id + 1
        except EntryLost as error:
            assert error.entry == first and error.last is not None
            lost.append((error.entry, error.last))
            first = error.last + 1
    return entries, lost


@pytest.mark.rule("N14")
@pytest.mark.parametrize("ensemble", [2, 3])
async def test_lost_entries_of_a_closed_ledger_are_told_and_the_rest_is_read(
    cluster: RepairedCluster, ensemble: int
) -> None:
    ledger = await cluster.written(30, ensemble=ensemble)
    metadata = await cluster.metadata(ledger)
    damaged, gone = metadata.ensemble[:2]
    holds = [(entry, [metadata.ensemble[(entry + i) % ensemble] for i in range(2)]) for entry in (3, 4, 5, 9, 10)]
    lost = [entry for entry, holders in holds if set(holders) == {damaged, gone}]
    for entry in lost[1:]:
        del cluster.bookies[damaged].entries[ledger, entry]
    stored = cluster.bookies[damaged].entries
    stored[ledger, lost[0]] = flipped(stored[ledger, lost[0]])
    await cluster.down(gone)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(30)
    assert list(await LostTree(cluster.driver).all()) == [ledger]
    opened_before = await cluster.client().open_ledger(ledger)
    loss = await giving_up(cluster, ledger).look()
    assert [entry for first, last in loss.lost for entry in range(first, last + 1)] == lost
    assert (loss.closes, loss.last_entry, loss.absent) == (False, 29, (gone,))
    assert (await cluster.metadata(ledger)) == metadata, "a look changes nothing"
    assert await giving_up(cluster, ledger).give_up(loss, "op@host") == loss
    entries, told = await read_all(cluster.client(), ledger)
    assert tuple(told) == loss.lost and sorted([*entries, *lost]) == list(range(30))
    with pytest.raises(EntryLost):
        await anext(opened_before.read(lost[0], lost[0]))
    assert await LostTree(cluster.driver).all() == {}
    (line,) = await GivenUpTree(cluster.driver).all()
    assert (line.ledger, line.who, line.last_entry, line.bookies) == (ledger, "op@host", 29, (gone,))
    await asyncio.sleep(700)  # what is left gets its copies
    assert gone not in (await cluster.metadata(ledger)).ensemble and await cluster.marks() == []
    assert (await read_all(cluster.client(), ledger))[1] == list(loss.lost)
    (event,) = cluster.heard("entries given up")
    assert (event["who"], event["lost"]) == ("op@host", list(loss.lost))


@pytest.mark.parametrize(
    ("missing", "last_entry", "lost"),
    [
        ((), 9, ()),
        ((7,), 9, ((7, 7),)),  # the highest one says that it was confirmed
        ((9,), 8, ()),  # nothing says that it was
        ((8, 9), 7, ()),
        (tuple(range(10)), -1, ()),
    ],
)
async def test_an_open_ledger_is_closed_before_the_first_that_was_not_confirmed(
    cluster: RepairedCluster, missing: tuple[int, ...], last_entry: int, lost: tuple[tuple[int, int], ...]
) -> None:
    ledger = await cluster.written(10, close=False, write_quorum=3)
    left, *gone = (await cluster.metadata(ledger)).ensemble
    for entry in missing:
        del cluster.bookies[left].entries[ledger, entry]
    await cluster.down(*gone)
    with pytest.raises(RecoveryIncomplete):
        await cluster.client().open_ledger(ledger, recover=True)
    loss = await giving_up(cluster, ledger).look()
    assert (loss.closes, loss.last_entry, loss.lost, loss.absent) == (True, last_entry, lost, tuple(gone))
    await giving_up(cluster, ledger).give_up(loss, "op")
    metadata = await cluster.metadata(ledger)
    assert metadata.is_closed and metadata.last_entry == last_entry
    entries, told = await read_all(cluster.client(), ledger)
    assert tuple(told) == lost
    assert entries == [entry for entry in range(last_entry + 1) if entry not in missing]


async def test_a_damaged_last_entry_is_no_hindrance(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, close=False, ensemble=1, write_quorum=1, ack_quorum=1)
    (bookie,) = (await cluster.metadata(ledger)).ensemble
    stored = cluster.bookies[bookie].entries
    stored[ledger, 9] = flipped(stored[ledger, 9])
    with pytest.raises(RecoveryIncomplete):
        await cluster.client().open_ledger(ledger, recover=True)
    loss = await giving_up(cluster, ledger).look()
    assert (loss.last_entry, loss.top, loss.lost, loss.is_any) == (8, 9, (), True)
    await giving_up(cluster, ledger).give_up(loss, "op")
    assert (await cluster.metadata(ledger)).last_entry == 8


async def test_the_writer_of_a_ledger_that_is_given_up_is_fenced(cluster: RepairedCluster) -> None:
    client = cluster.client(degraded_writes=False)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"one")
    await cluster.down(writer.metadata.ensemble[0])
    await giving_up(cluster, writer.id).give_up(await giving_up(cluster, writer.id).look(), "op")
    with pytest.raises(LedgerFenced):
        await writer.append(b"two")


async def test_a_bookie_that_does_not_say_ends_it(cluster: RepairedCluster) -> None:
    """Silence is unknown, and never lost."""
    ledger = await cluster.written(10, ensemble=2)
    silent, gone = (await cluster.metadata(ledger)).ensemble
    await cluster.down(gone)
    cluster.bookies[silent].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.ReadFrame) else None
    with pytest.raises(Unavailable, match="does not say"):
        await giving_up(cluster, ledger).look()
    cluster.bookies[silent].misbehave = None
    assert not (await giving_up(cluster, ledger).look()).lost


async def test_a_bookie_that_may_have_an_unconfirmed_entry_is_waited_for(cluster: RepairedCluster) -> None:
    """One is gone and one says no: the entry may be at the third one, and acknowledged."""
    ledger = await cluster.written(10, close=False, write_quorum=3)
    gone, empty, silent = (await cluster.metadata(ledger)).ensemble
    del cluster.bookies[empty].entries[ledger, 9]
    await cluster.down(gone)
    loss = await giving_up(cluster, ledger).look()
    assert loss.last_entry == 9
    cluster.bookies[silent].misbehave = lambda request: (
        Code.IO_ERROR if isinstance(request, v2.ReadFrame) and request.entry == 9 else None
    )
    with pytest.raises((Unavailable, RecoveryIncomplete)):
        await giving_up(cluster, ledger).give_up(loss, "op")
    assert (await cluster.metadata(ledger)).state is not LedgerState.CLOSED


async def test_nothing_is_given_up_once_a_bookie_is_back(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=2)
    damaged, gone = (await cluster.metadata(ledger)).ensemble
    del cluster.bookies[damaged].entries[ledger, 3]
    await cluster.down(gone)
    loss = await giving_up(cluster, ledger).look()
    await cluster.up(gone)
    with pytest.raises(UsageError, match="is back"):
        await giving_up(cluster, ledger).give_up(loss, "op")
    assert (await cluster.metadata(ledger)).custom == {} and await cluster.tree.locks() == {}


@pytest.mark.parametrize("is_open", [False, True])
async def test_nor_once_one_came_back_while_the_ledger_was_looked_at_again(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """The look reads all of the ledger. What the bookie alone has was given up, and cut off, beside it."""
    ledger = await cluster.written(10, close=not is_open, ensemble=2, ack_quorum=1)
    damaged, gone = (await cluster.metadata(ledger)).ensemble
    for entry in (3, 9):
        del cluster.bookies[damaged].entries[ledger, entry]
    await cluster.down(gone)
    shown = await giving_up(cluster, ledger).look()
    look = GivingUp._loss

    async def takes_its_time(one: GivingUp, *args: Any) -> Loss:
        loss = await look(one, *args)
        await cluster.up(gone)
        return loss

    monkeypatch.setattr(GivingUp, "_loss", takes_its_time)
    with pytest.raises(UsageError, match="is back"):
        await giving_up(cluster, ledger).give_up(shown, "op")
    assert await GivenUpTree(cluster.driver).all() == []
    assert (await cluster.metadata(ledger)).state is (LedgerState.OPEN if is_open else LedgerState.CLOSED)
    reader = await cluster.client().open_ledger(ledger, recover=is_open)
    assert reader.last_entry == 9
    assert (await read_all(cluster.client(), ledger)) == (list(range(10)), [])


async def test_no_more_is_given_up_than_was_shown(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=2)
    damaged, gone = (await cluster.metadata(ledger)).ensemble
    del cluster.bookies[damaged].entries[ledger, 3]
    await cluster.down(gone)
    loss = await giving_up(cluster, ledger).look()
    del cluster.bookies[damaged].entries[ledger, 4]
    with pytest.raises(UsageError, match="more would be given up"):
        await giving_up(cluster, ledger).give_up(loss, "op")
    assert (await cluster.metadata(ledger)).custom == {}


async def test_what_another_has_in_hand_is_left_alone(cluster: RepairedCluster) -> None:
    ledger = await cluster.written(10, ensemble=2)
    await cluster.down((await cluster.metadata(ledger)).ensemble[0])
    await cluster.tree.lock(ledger, "an original")
    with pytest.raises(UsageError, match="in hand"):
        await giving_up(cluster, ledger).give_up(Loss(ledger, False, 9, 9, ((3, 3),), ()), "op")


async def test_a_ledger_whose_digest_type_nobody_stored_is_not_given_up(cluster: RepairedCluster) -> None:
    """All of its copies would look damaged."""
    ledger = await cluster.written(10, close=False)
    await rewrite_as_format_1(cluster.driver, ledger)
    with pytest.raises(UsageError, match="no digest type"):
        await giving_up(cluster, ledger).look()
    assert not (await cluster.metadata(ledger)).is_closed


async def test_a_line_that_cannot_be_read_is_refused(cluster: RepairedCluster) -> None:
    tree = GivenUpTree(cluster.driver)
    await tree.note(GivenUp(7, "op", 100, 9, "3-4", ("b1",)))
    await tree.note(GivenUp(7, "op", 50, 9, "", ()))
    assert [line.at_ms for line in await tree.all()] == [50, 100]
    await cluster.store.change(Create("/tallystick/ledgers/given-up/G0000000008-1", b"[]"))
    with pytest.raises(MetadataError, match="cannot be read"):
        await tree.all()
