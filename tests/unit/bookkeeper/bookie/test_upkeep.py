"""Deleted ledgers give their space back; nothing else is ever deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.bookies import Home, adds, read, talking
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.metadata.memory import MemoryDriver
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import MetadataError

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.found()
    return made


@pytest.fixture
async def bookie(home: Home) -> AsyncIterator[Bookie]:
    async with home.running() as made:
        yield made


async def stored(bookie: Bookie, *ledgers: int) -> list[int]:
    async with talking(bookie) as peer:
        return [ledger for ledger in ledgers if await peer.code(read(ledger, 0)) == Code.OK]


async def write(bookie: Bookie, *ledgers: int) -> None:
    async with talking(bookie) as peer:
        for ledger in ledgers:
            assert await peer.code(adds(ledger, [0])) == Code.OK


async def test_a_ledger_without_metadata_is_deleted_and_others_stay(home: Home, bookie: Bookie) -> None:
    driver = MemoryDriver(home.cluster)
    await driver.create_ledger(METADATA, 2)
    await write(bookie, 1, 2, 3)
    assert await bookie.upkeep.collect(driver) == 2
    assert await stored(bookie, 1, 2, 3) == [2]
    async with talking(bookie) as peer:
        assert await peer.code(adds(1, [1])) == Code.FENCED  # its old writer cannot bring it back


class Listing(MemoryDriver):
    """Does something in the middle of the listing."""

    bookie: Bookie

    def __init__(self, cluster: str, fails: bool) -> None:
        super().__init__(cluster)
        self.fails = fails

    async def ledgers(self) -> AsyncIterator[int]:
        yield 2
        if self.fails:
            raise MetadataError("the service went away")
        await self.create_ledger(METADATA, 1)
        await write(self.bookie, 1)


async def test_a_listing_that_fails_deletes_nothing(home: Home, bookie: Bookie) -> None:
    await write(bookie, 1, 2)
    with pytest.raises(MetadataError):
        await bookie.upkeep.collect(Listing(home.cluster, fails=True))
    assert await stored(bookie, 1, 2) == [1, 2]


async def test_a_ledger_that_is_created_during_the_listing_stays(home: Home, bookie: Bookie) -> None:
    driver = Listing(home.cluster, fails=False)
    driver.bookie = bookie
    await write(bookie, 2)
    assert await bookie.upkeep.collect(driver) == 0
    assert await stored(bookie, 1, 2) == [1, 2]


async def test_a_checkpoint_happens_when_it_is_due(home: Home, bookie: Bookie) -> None:
    await write(bookie, 1)
    await bookie.upkeep.checkpoint()
    assert bookie.counts.checkpoints == 1
    assert bookie.storage.stats().memtable_bytes == 0
    assert await stored(bookie, 1) == [1]
