"""A bookie's folders and cluster, the bookie, and one that talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.bookies import Home, Peer, talking
from support.watched import Watched
from tallystick.bookkeeper.bookie.bookie import Bookie


@pytest.fixture
def looks() -> bool:
    """Whether bookies look at the metadata of ledgers; modules that test it say yes."""
    return False


@pytest.fixture
async def home(tmp_path: Path, looks: bool) -> Home:
    made = Home(tmp_path, looks=looks)
    await made.found()
    return made


@pytest.fixture
async def driver(home: Home) -> Watched:
    return Watched(home.cluster)


@pytest.fixture
async def bookie(home: Home, driver: Watched) -> AsyncIterator[Bookie]:
    async with home.running() as made:
        made.looks._metadata = driver
        yield made


@pytest.fixture
async def peer(bookie: Bookie) -> AsyncIterator[Peer]:
    async with talking(bookie) as made:
        yield made
