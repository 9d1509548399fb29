"""Bookies with several journals and ledger folders, killed again and again under load: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import tallystick
from support.appending import Load
from support.peers import Bookie
from tallystick.bookkeeper.metadata.open import open_driver

ROUNDS = 2


def bookie(uri: str, folder: Path, name: str) -> Bookie:
    own = folder / name
    settings = {
        "journalDirectories": f"{own}/journal-a,{own}/journal-b",
        "ledgerDirectories": f"{own}/ledgers-a,{own}/ledgers-b,{own}/ledgers-c",
    }
    return Bookie.ours(uri, folder, id=name, settings=settings)


def folders_with_logs(folder: Path) -> set[str]:
    return {path.relative_to(folder).parts[1] for path in folder.rglob("*.log") if "ledgers-" in str(path)}


@pytest.mark.rule("P1", "Q15")
@pytest.mark.timeout(300)
async def test_bookies_with_several_folders_are_killed_under_load(tmp_path: Path) -> None:
    """One after the other, some in order; then all at once, in the middle of everything."""
    uri, seed = f"sqlite://{tmp_path}/metadata.db", random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    driver = await open_driver(uri)
    await driver.init_cluster()
    await driver.close()
    bookies = [bookie(uri, tmp_path, f"b{number}") for number in range(4)]
    try:
        await asyncio.gather(*(each.start() for each in bookies))
        async with tallystick.connect(uri) as bk:
            load = Load(bk, size=3000)
            async with load.running():
                for _ in range(ROUNDS):
                    for each in rng.sample(bookies, 4):
                        await load.moves()
                        each.leave() if rng.random() < 0.3 else each.kill()
                        await each.start()
                await load.moves()
            for each in bookies:
                each.kill()
            await asyncio.gather(*(each.start() for each in bookies))
            await load.require_all()
            assert load.count > 4 * ROUNDS * 50
        for each in bookies:
            each.leave()  # what memory and journals have goes into logs
        assert folders_with_logs(tmp_path) == {"ledgers-a", "ledgers-b", "ledgers-c"}
    finally:
        for each in bookies:
            each.kill()
