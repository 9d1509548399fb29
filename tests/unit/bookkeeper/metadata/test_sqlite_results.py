"""How a loop hears of what a thread did for many callers at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path

from support.sqlite_stores import store_of
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_calls import RESULTS_A_TURN, Call, Results
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


async def test_results_of_several_commits_and_reads_share_a_turn_of_the_loop() -> None:
    """Three commits were told in one turn: each was within the bound, all together were not."""
    results, loop = Results(), asyncio.get_running_loop()
    calls = [Call(lambda: None, True, 0.0, loop, loop.create_future()) for _ in range(3 * RESULTS_A_TURN)]
    for first in range(0, len(calls), RESULTS_A_TURN // 2):
        results.settle(calls[first : first + RESULTS_A_TURN // 2])
    heard = []
    for _ in range(5):
        await asyncio.sleep(0)
        heard.append(sum(call.future.done() for call in calls if call.future is not None))
    assert heard == [RESULTS_A_TURN, 2 * RESULTS_A_TURN, 3 * RESULTS_A_TURN, len(calls), len(calls)]


def test_results_for_a_closed_loop_are_dropped() -> None:
    results, closed = Results(), asyncio.new_event_loop()
    results.settle([Call(lambda: None, True, 0.0, closed, closed.create_future())])
    closed.close()
    results.settle([Call(lambda: None, True, 0.0, closed, None)])
    loop = asyncio.new_event_loop()
    future: asyncio.Future[None] = loop.create_future()
    results.settle([Call(lambda: None, True, 0.0, loop, future)])
    assert loop.run_until_complete(asyncio.wait_for(future, 1)) is None
    loop.close()


def test_a_closed_loop_is_let_go_with_all_that_it_did_not_hear() -> None:
    """A file has one thread in a process, which may call ``asyncio.run`` very often beside a client that stays."""
    results, closed = Results(), asyncio.new_event_loop()
    results.settle([Call(lambda: None, True, 0.0, closed, closed.create_future())])
    closed.close()
    reference = weakref.ref(closed)
    del closed
    loop = asyncio.new_event_loop()
    results.settle([Call(lambda: None, True, 0.0, loop, loop.create_future())])
    gc.collect()
    assert reference() is None
    loop.close()
