"""Writers that are stopped as if their process died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.errors import LedgerClosed


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


async def test_a_writer_that_is_aborted_changes_no_ensemble_any_more(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    before = await client.ledger_metadata(writer.id)
    write_ledger, asked, let_go = client.context.driver.write_ledger, asyncio.Event(), asyncio.Event()

    async def slowly(ledger: int, metadata: LedgerMetadata, version: int, **more: Any) -> int:
        asked.set()
        await let_go.wait()
        return await write_ledger(ledger, metadata, version, **more)

    monkeypatch.setattr(client.context.driver, "write_ledger", slowly)
    await cluster.down(before.ensemble[0])
    append = writer.append_nowait(b"x")
    await asked.wait()
    assert writer._session is not None and writer._session._changing is not None
    changing = writer._session._changing
    writer.abort()
    let_go.set()
    await asyncio.wait([changing])
    assert await client.ledger_metadata(writer.id) == before
    with pytest.raises(LedgerClosed, match="stopped"):
        await append


async def test_a_writer_that_is_closed_stays_closed_when_it_is_aborted(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger()
    await writer.append(b"x")
    await writer.close()
    writer.abort()
    await client.close()
    assert "closed" in repr(writer)
    with pytest.raises(LedgerClosed):
        await writer.append(b"y")
    await writer.close()
