"""A recovery that replaces a bookie: what it wrote back is on bookies that the closed metadata name (Q14, Q16)."""

from __future__ import annotations

import asyncio

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerState


@pytest.mark.rule("Q14", "Q16")
async def test_q14_a_replacement_that_the_quorum_needs_has_the_entries_before_the_ledger_is_closed() -> None:
    """The new ensemble is stored with the end, in one: not with the change, and not before Qa of it acknowledged."""
    cluster = await SmallCluster().start(4)
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    for number in range(6):
        await writer.append(b"%03d" % number)
    writer.abort()
    failing, *good = writer.metadata.ensemble
    (spare,) = set(cluster.bookies) - set(writer.metadata.ensemble)
    cluster.bookies[failing].misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) else None
    cluster.bookies[spare].held = []

    async def recovered() -> LedgerReader:
        return await cluster.client().open_ledger(writer.id, recover=True)

    opening = asyncio.create_task(recovered())
    await until(lambda: bool(cluster.bookies[spare].held))
    for _ in range(50):
        await asyncio.sleep(0)
    stored = (await cluster.driver.read_ledger(writer.id)).value
    assert stored.state is LedgerState.IN_RECOVERY and spare not in stored.ensemble and not opening.done()

    cluster.bookies[spare].release()
    reader = await opening
    assert reader.last_entry == 5 and set(reader.metadata.ensemble) == {spare, *good}
    first = reader.metadata.fragments[-1].first
    assert all(cluster.holders(writer.id, entry) >= {spare, *good} for entry in range(first, 6))
    assert [entry.data async for entry in reader.read(0, 5)] == [b"%03d" % number for number in range(6)]
    await cluster.close()
