"""Writer, recovery and reader on real bookies of this process: their own disks, sockets and registrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import tallystick
from support.small_cluster import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.metadata.memory import MemoryDriver
from tallystick.errors import LedgerFenced
from tallystick.node import real_world


@dataclass
class RealCluster:
    """Bookies ``b0`` … over one folder and one metadata cluster in memory."""

    uri: str
    folder: Path
    running: dict[str, Bookie]

    async def start(self, name: str) -> None:
        home = str(self.folder / name)
        settings = BookieSettings(self.uri, home, home, port=0, bookie_id=name)
        self.running[name] = await start_bookie(settings, real_world())

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    driver = MemoryDriver(tmp_path.name)
    await driver.init_cluster()
    made = RealCluster(f"memory://{tmp_path.name}", tmp_path, {})
    for number in range(4):
        await made.start(f"b{number}")
    yield made
    for name in tuple(made.running):
        await made.stop(name)
    await driver.close()


@pytest.mark.rule("Q5", "Q7", "Q8", "Q16")
async def test_a_bookie_goes_and_comes_back_under_a_writer(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk:
        async with await bk.create_ledger(3, 2, 2) as writer:
            await writer.append_batch([b"%d" % number for number in range(500)])
            lost = writer.metadata.ensemble[0]
            await cluster.stop(lost)
            await writer.append_batch([b"%d" % number for number in range(500, 1000)])
            await cluster.start(lost)
            await writer.append_batch([b"%d" % number for number in range(1000, 1100)])
            assert len(writer.metadata.fragments) == 2 and lost not in writer.metadata.ensemble
        reader = await bk.open_ledger(writer.id)
        assert [entry.data async for entry in reader.read(0, 1099)] == [b"%d" % number for number in range(1100)]


@pytest.mark.rule("Q10", "Q11", "Q14", "P1", "P2")
async def test_a_running_writer_is_taken_over_and_nothing_acknowledged_is_lost(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger(3, 3, 2)
        acked: list[int] = []

        async def write() -> None:
            with suppress(LedgerFenced):
                while True:
                    acked.extend(await writer.append_batch([b"x" * 100] * 20))

        writing = asyncio.ensure_future(write())
        await until(lambda: len(acked) >= 400)
        reader = await rival.open_ledger(writer.id, recover=True)
        await writing
        assert reader.is_closed and reader.last_entry >= acked[-1] and acked == list(range(len(acked)))
        with pytest.raises(LedgerFenced):
            await writer.close()
        assert [entry.id async for entry in reader.read(0, reader.last_entry)] == list(range(reader.last_entry + 1))


@pytest.mark.rule("Q11")
async def test_a_fence_survives_a_restart_of_every_bookie(cluster: RealCluster) -> None:
    async with tallystick.connect(cluster.uri) as bk, tallystick.connect(cluster.uri) as rival:
        writer = await bk.create_ledger()
        await writer.append(b"x")
        await rival.open_ledger(writer.id, recover=True)
        for name in tuple(cluster.running):
            await cluster.stop(name)
            await cluster.start(name)
        with pytest.raises(LedgerFenced, match="recovers"):  # a bookie said so, not the metadata
            await writer.append(b"y")
