"""How a loop hears of what a thread did for many callers at once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from support.sqlite_stores import store_of
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_calls import RESULTS_A_TURN
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


async def test_the_results_of_a_commit_are_told_over_several_turns_of_the_loop(tmp_path: Path) -> None:
    driver = ClusterMetadata(SqliteStore(str(tmp_path / "metadata.db")))
    await driver.init_cluster()
    await driver.instance_id()  # from now on it is known that there is a cluster: each creation is one call
    count, together = 4 * RESULTS_A_TURN, threading.Event()
    blocked = asyncio.create_task(store_of(driver)._thread.call(together.wait))
    told = most = 0

    async def ask() -> None:
        nonlocal told
        await driver.create_ledger(METADATA)
        told += 1

    async def turns() -> None:
        nonlocal most
        while told < count:
            before = told
            await asyncio.sleep(0)
            most = max(most, told - before)

    asked = [asyncio.create_task(ask()) for _ in range(count)]
    await asyncio.sleep(0)
    together.set()
    await asyncio.gather(turns(), blocked, *asked)
    assert 0 < most <= RESULTS_A_TURN
    await driver.close()
