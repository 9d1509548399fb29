"""What is said of lost entries, in every coordination service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystick.bookkeeper.metadata.lost_entries import LostEntries, LostTree
from tallystick.bookkeeper.metadata.store import Create
from tallystick.errors import MetadataError

if TYPE_CHECKING:
    from conformance.conftest import Place


async def test_lost_entries_keep_their_first_time_until_they_are_found(cluster: Place) -> None:
    tree = LostTree(await cluster.connect())
    assert await tree.all() == {}
    await tree.note(7, [(3, 4), (9, 9)], "b:1", 100)
    await tree.note(1 << 40, [(0, 0)], "b2", 150)
    await tree.note(7, [(3, 9)], "b:1", 200)
    assert await tree.all() == {7: LostEntries(((3, 9),), "b:1", 100), 1 << 40: LostEntries(((0, 0),), "b2", 150)}
    await tree.forget(7)
    await tree.forget(7)
    assert list(await tree.all()) == [1 << 40]


async def test_it_is_no_ledger_of_the_cluster(cluster: Place) -> None:
    driver = await cluster.connect()
    await LostTree(driver).note(7, [(0, 1)], "b1", 1)
    assert [ledger async for ledger in driver.ledgers()] == []


async def test_damaged_nodes_are_refused(cluster: Place) -> None:
    driver = await cluster.connect()
    await driver.store.change(Create(f"/tallystick{driver.root}/lost/L0000000007", b"some"))
    with pytest.raises(MetadataError, match="cannot be read"):
        await LostTree(driver).all()
