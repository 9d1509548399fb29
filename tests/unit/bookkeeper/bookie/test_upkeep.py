"""Checkpoints happen when they are due; space is given back on a bad or full disk, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.bookies import SMALL, Home, SpyDisk, adds, read, talking
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire.v2 import Code
from tallystick.errors import DiskFull, StorageError


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    await made.found()
    return made


async def stored(bookie: Bookie, *ledgers: int) -> list[int]:
    async with talking(bookie) as peer:
        return [ledger for ledger in ledgers if await peer.code(read(ledger, 0)) == Code.OK]


async def write(bookie: Bookie, *ledgers: int) -> None:
    async with talking(bookie) as peer:
        for ledger in ledgers:
            assert await peer.code(adds(ledger, [0])) == Code.OK


async def test_a_checkpoint_happens_when_it_is_due(home: Home) -> None:
    async with home.running() as bookie:
        await write(bookie, 1)
        await bookie.upkeep.checkpoint()
        assert bookie.counts.checkpoints == 1
        assert bookie.storage.stats().memtable_bytes == 0
        assert await stored(bookie, 1) == [1]


async def test_a_log_that_cannot_be_read_is_kept_and_the_bookie_goes_on_also_after_a_restart(home: Home) -> None:
    def before(action: str, path: str) -> None:
        if action == "read" and path.endswith("2.log"):
            raise StorageError("cannot read: Input/output error", path=path)

    home.disk, home.storage = SpyDisk(before), replace(SMALL, merge_logs=3)
    for round in range(1, 3):
        async with home.running() as bookie:
            if round == 1:
                for entry in range(3):
                    async with talking(bookie) as peer:
                        assert await peer.code(adds(1, [entry])) == Code.OK
                    await bookie.upkeep.checkpoint()
            for _ in range(3):
                assert await bookie.upkeep.collect(list, ()) == 0
            (told,) = home.heard("entry log not rewritten")[round - 1 :]
            assert told.fields["log"] == 2 and "Input/output error" in told.fields["reason"]
            assert bookie.storage.stats().damaged_logs == 1
            async with talking(bookie) as peer:
                found = [await peer.code(read(1, entry)) for entry in range(3)]
                assert found == [Code.IO_ERROR, Code.OK, Code.OK]
                assert await peer.code(adds(1, [3])) == Code.OK
            assert not bookie.failure.done()
            if round == 1:  # another small log: after the start there are enough of them again
                await bookie.upkeep.checkpoint()


async def test_deleted_ledgers_free_a_full_disk_though_no_entry_can_be_written(home: Home) -> None:
    full = False

    def before(action: str, path: str) -> None:
        if full and action == "write" and not path.endswith("state.spare"):
            raise DiskFull("cannot write: No space left on device", path=path)

    home.disk = SpyDisk(before)
    async with home.running() as bookie:
        await write(bookie, 1)
        await bookie.upkeep.checkpoint()
        await write(bookie, 2)
        full = True
        assert await bookie.upkeep.collect(lambda: [1], ()) == 1
        assert bookie.storage.stats().entry_logs == 0
        assert len(home.heard("entry logs not rewritten")) == 1
        assert await stored(bookie, 1, 2) == [2]
        full = False
