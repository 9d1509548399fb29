"""What is said of faulty copies, in every coordination service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.metadata.store import Create
from tallystick.errors import MetadataError

if TYPE_CHECKING:
    from conformance.conftest import Place

MISSING, DAMAGED = FaultKind.MISSING, FaultKind.DAMAGED


async def test_findings_add_up_until_they_are_dropped(cluster: Place) -> None:
    tree = FindingTree(await cluster.connect())
    assert await tree.ledgers() == [] and await tree.read(7) is None
    await tree.note(7, [CopyFault(MISSING, "b:1", ((3, 4), (9, 9)), 100), CopyFault(DAMAGED, "b:1", ((3, 3),), 100)])
    await tree.note(1 << 40, [CopyFault(FaultKind.UNSENT, "b2", (), 150)])
    await tree.note(7, [CopyFault(MISSING, "b:1", ((5, 8),), 200)])
    assert await tree.ledgers() == [7, 1 << 40]
    noted = await tree.read(7)
    assert noted is not None
    assert noted.value == (CopyFault(MISSING, "b:1", ((3, 9),), 100), CopyFault(DAMAGED, "b:1", ((3, 3),), 100))
    assert await tree.drop(7, noted.version) and not await tree.drop(7, noted.version)
    assert await tree.ledgers() == [1 << 40]


async def test_what_is_said_again_is_not_dropped_by_who_looked_before(cluster: Place) -> None:
    tree = FindingTree(await cluster.connect())
    fault = CopyFault(MISSING, "b1", ((3, 4),), 100)
    await tree.note(7, [fault])
    noted = await tree.read(7)
    assert noted is not None
    await tree.note(7, [fault])
    assert not await tree.drop(7, noted.version)
    again = await tree.read(7)
    assert again is not None and again.value == (fault,)


async def test_of_a_fault_with_very_many_runs_the_whole_stripe_is_looked_at(cluster: Place) -> None:
    tree = FindingTree(await cluster.connect())
    runs = tuple((entry, entry) for entry in range(0, 202, 2))
    await tree.note(7, [CopyFault(MISSING, "b1", runs, 100)])
    await tree.note(7, [CopyFault(MISSING, "b1", ((999, 999),), 100)])
    noted = await tree.read(7)
    assert noted is not None and noted.value == (CopyFault(MISSING, "b1", (), 100),)


async def test_damaged_findings_are_refused(cluster: Place) -> None:
    driver = await cluster.connect()
    await driver.store.change(Create(f"/tallystick{driver.root}/findings/F0000000007", b"gone b1 3-4 7\n"))
    assert await FindingTree(driver).ledgers() == [7]
    with pytest.raises(MetadataError, match="cannot be read"):
        await FindingTree(driver).read(7)
