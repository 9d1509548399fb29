"""A replicator whose session ended while it hung: nobody keeps for it what it copied."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.repair.copying import Copying
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.errors import MetadataUncertain


async def test_who_lost_its_lock_while_it_hung_names_no_bookie(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookie that got the copies may take the lock then, see that no metadata names it, and drop them
    (``surplus.py``). It was named, and denied what it had dropped."""
    ledger, dropped = await cluster.written(20), list[str]()
    ensemble, require = (await cluster.metadata(ledger)).ensemble, Copying.require

    async def hangs_behind(copying: Copying, bookie: str, pieces: Callable[[], Iterable[Sequence[int]]]) -> None:
        await require(copying, bookie, pieces)
        if not dropped:
            dropped.append(bookie)
            for path in await cluster.tree.locks():
                await cluster.driver.store.change(Delete(cluster.tree._lock_path(path)))
            for entry in itertools.chain.from_iterable(pieces()):
                del cluster.bookies[bookie].entries[ledger, entry]

    monkeypatch.setattr(Copying, "require", hangs_behind)
    await cluster.down(ensemble[0])
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    assert dropped and "lock" in str(cluster.heard("ledger not repaired"))
    assert ensemble[0] not in (await cluster.require_whole(ledger)).ensemble
    assert await cluster.marks() == [] and await cluster.tree.locks() == {}


async def test_nor_does_one_whose_change_got_no_answer_then(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very same change was sent again once the service was back, whoever had the lock meanwhile."""
    ledger, dropped = await cluster.written(20), list[str]()
    gone, *others = (await cluster.metadata(ledger)).ensemble
    write = ClusterMetadata.write_ledger

    async def write_ledger(
        driver: ClusterMetadata, id: int, metadata: LedgerMetadata, version: int, **more: Any
    ) -> int:
        new = set(metadata.ensemble) - {gone, *others}
        if new and not dropped:
            dropped.extend(new)
            await cluster.driver.store.change(Delete(cluster.tree._lock_path(ledger)))
            for key in [key for key in cluster.bookies[dropped[0]].entries if key[0] == ledger]:
                del cluster.bookies[dropped[0]].entries[key]
            raise MetadataUncertain("the answer was lost")
        return await write(driver, id, metadata, version, **more)

    monkeypatch.setattr(ClusterMetadata, "write_ledger", write_ledger)
    await cluster.down(gone)
    cluster.repair(grace_s=0.0)
    await asyncio.sleep(60)
    assert dropped and gone not in (await cluster.require_whole(ledger)).ensemble
    assert await cluster.marks() == [] and await cluster.tree.locks() == {}
