"""Writer, recovery and reader on real bookies of this process: their own disks, sockets and registrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import tallystick
from support.small_cluster import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.ledgers import UNKNOWN, Kept
from tallystick.bookkeeper.metadata.memory import MemoryDriver
from tallystick.errors import LedgerExists, LedgerFenced
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

    async def collect(self) -> None:
        for bookie in self.running.values():
            bookie.collection._core._rules = replace(bookie.collection._core._rules, gap_s=0.0)
            await bookie.collection.run()

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


@pytest.mark.rule("Q7", "Q13", "Q15")
@pytest.mark.parametrize("written", [2, 0])
async def test_a_bookie_that_slept_while_an_id_changed_hands_gives_nothing_of_the_old_ledger(
    cluster: RealCluster, written: int
) -> None:
    """It takes a place of the new one, and is given ``written`` entries of it before its writer dies."""
    async with tallystick.connect(cluster.uri) as bk:
        async with await bk.create_ledger(3, 3, 2, ledger_id=777) as old:
            await old.append_batch([b"old"] * 10)
        sleeper = old.metadata.ensemble[2]
        await until(lambda: cluster.running[sleeper].storage.kept(777) != Kept(UNKNOWN, False))
        await cluster.stop(sleeper)
        await bk.delete_ledger(777)
        await cluster.collect()
        with pytest.raises(LedgerExists, match=sleeper):
            await bk.create_ledger(3, 3, 2, ledger_id=777)
        new = await bk.create_ledger(3, 3, 2, ledger_id=777, accept_silent_bookies=True)
        await new.append_batch([b"new"] * 3)
        await cluster.start(sleeper)
        if written:
            [lost] = set(new.metadata.ensemble) - set(old.metadata.ensemble)
            await cluster.stop(lost)
            await new.append_batch([b"new"] * written)
            assert sleeper in new.metadata.ensemble
        else:  # the metadata names it, and nothing came
            stored = await bk.context.driver.read_ledger(777)
            ensemble = (sleeper, *[name for name in new.metadata.ensemble if name != sleeper][1:])
            await bk.context.driver.write_ledger(777, stored.value.with_fragment(3, ensemble), stored.version)
            [lost] = set(new.metadata.ensemble) - set(ensemble)
            await cluster.stop(lost)
        new.abort()
    async with tallystick.connect(cluster.uri) as bk:
        reader = await bk.open_ledger(777, recover=True)
        found = [entry.data async for entry in reader.read(0, reader.last_entry)]
        assert found == [b"new"] * (3 + written)
