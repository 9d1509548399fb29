"""The list as its owner keeps it: responses that are lost, and other owners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.small_cluster import SmallCluster
from support.streams import DOUBT, LOSE, NAME, REFUSE, StoreFaults, read_list
from tallystick.bookkeeper.metadata.store import Delete, Update
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.owned_list import ListChange, OwnedList, rolled, terminated
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.errors import MetadataUnavailable, StreamFenced

OPEN = StreamLedger(5, has_counts=False, properties={"kept": "yes"})
PATH = f"/managed-ledgers/{NAME}"


async def owned(bk: BookKeeper) -> OwnedList:
    catalog = bk.stream_context.catalog
    one = OwnedList(catalog, NAME, await catalog.create(NAME))
    await bk.context.driver.store.change(catalog.note(NAME, 5))
    await one.change(lambda info: ListChange(replace(info, ledgers=(OPEN,)), settled=(5,)))
    await bk.context.driver.store.change(catalog.note(NAME, 6))
    return one


ROLLED = rolled(StreamLedger(5, 3, 30, 99), 6)
EXPECTED = (StreamLedger(5, 3, 30, 99, properties={"kept": "yes"}), StreamLedger(6, has_counts=False))


def test_an_empty_ledger_leaves_the_list_with_a_note() -> None:
    change = rolled(StreamLedger(5, 0, 0, 99), 6)(StreamInfo((StreamLedger(2, 1, 1, 1), OPEN)))
    assert [each.ledger for each in change.info.ledgers] == [2, 6]
    assert (change.noted, change.settled) == ((5,), (6,))


@pytest.mark.parametrize("fault", [None, REFUSE, LOSE, DOUBT])
@pytest.mark.parametrize("is_away", [False, True])
async def test_a_change_is_made_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, fault: str | None, is_away: bool
) -> None:
    """``is_away``: after the fault nobody can tell for a while what became of it."""
    bk = cluster.client()
    faults, one = StoreFaults(bk, monkeypatch), await owned(bk)

    def script(changes: object) -> str | None:
        faults.is_away = is_away and fault is not None
        faults.script = lambda changes: None
        return fault

    faults.script = script
    if fault == REFUSE or (fault in (LOSE, DOUBT) and is_away):
        for _ in range(2):
            with pytest.raises(MetadataUnavailable):
                await one.change(ROLLED)
            if not is_away:
                break
        faults.is_away = False
    await one.change(ROLLED)
    assert await one.is_unchanged()
    assert (await read_list(cluster)).ledgers == EXPECTED == one.info.ledgers and one.version == 2


async def test_of_a_lost_response_the_next_change_is_decided_on_what_is_stored(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults, one = StoreFaults(bk, monkeypatch), await owned(bk)

    def script(changes: object) -> str:
        faults.is_away = True
        return LOSE

    faults.script = script
    with pytest.raises(MetadataUnavailable):
        await one.change(ROLLED)
    faults.is_away, faults.script = False, lambda changes: None
    await one.change(terminated(Position(6, -1)))
    assert await read_list(cluster) == StreamInfo(EXPECTED, Position(6, -1))


@pytest.mark.parametrize("others", ["wrote it", "wrote it twice", "deleted it"])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_another_owner_fences(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, others: str, is_lost: bool
) -> None:
    bk = cluster.client()
    faults, one = StoreFaults(bk, monkeypatch), await owned(bk)
    node = await cluster.store.get(PATH)
    assert node is not None
    if others == "deleted it":
        await cluster.store.change(Delete(PATH))
    for version in range(1, {"wrote it": 2, "wrote it twice": 3}.get(others, 1)):
        await cluster.store.change(Update(PATH, node.data, version))
    if is_lost:
        one._doubtful = StreamInfo(EXPECTED)
    assert not await one.is_unchanged()
    with pytest.raises(StreamFenced):
        await one.change(ROLLED)
    assert not faults.is_away


async def test_a_ledger_whose_note_is_gone_is_not_listed(cluster: SmallCluster) -> None:
    """Another owner found the note and deleted the ledger."""
    bk = cluster.client()
    one = await owned(bk)
    await bk.stream_context.catalog.gone(NAME, [6])
    with pytest.raises(StreamFenced):
        await one.change(ROLLED)
    assert (await read_list(cluster)).ledgers == (OPEN,)


async def test_a_stream_that_was_made_anew_is_another_one(cluster: SmallCluster) -> None:
    """Its list has the version that the one before had."""
    bk = cluster.client()
    one, catalog = await owned(bk), bk.stream_context.catalog
    assert await catalog.delete(NAME, one.version)
    made = await catalog.create(NAME)
    stored = StreamInfo((StreamLedger(9, has_counts=False),))
    assert await catalog.write(NAME, stored, made.version) == one.version
    with pytest.raises(StreamFenced):
        await one.change(terminated(Position(5, -1)))
    assert not await one.is_unchanged()
    assert await read_list(cluster) == stored


async def test_what_was_noted_for_a_stream_before_is_listed_in_no_other(cluster: SmallCluster) -> None:
    bk = cluster.client()
    one, catalog = await owned(bk), bk.stream_context.catalog
    assert await catalog.delete(NAME, one.version)
    made = await catalog.create(NAME)
    with pytest.raises(StreamFenced):
        await catalog.write(NAME, StreamInfo((StreamLedger(6, has_counts=False),)), made.version, settled=[6])
