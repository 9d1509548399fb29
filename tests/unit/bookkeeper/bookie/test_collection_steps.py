"""A collection looks at very many ledgers in steps, between which they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.bookies import Home
from support.collecting import asking, quick, write
from support.stores import Store
from tallystick.bookkeeper.bookie import identities
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Moment
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.codec.steps import finished

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))


@pytest.fixture
async def bookie(home: Home) -> AsyncIterator[Bookie]:
    """Its own runs are far away."""
    async with home.running() as made:
        quick(made)
        yield made


async def test_creations_of_the_metadata_that_was_copied_make_no_ledger_ahead_of_the_copy(
    home: Home, bookie: Bookie
) -> None:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    await driver.create_ledger(METADATA, 1)
    await write(bookie, 1)
    bookie.storage.identities.looked(1, 1_000_000, written=True)
    cookie = await driver.read_cookie("b0")
    assert cookie is not None
    await driver.delete_cookie("b0", cookie.version)
    await driver.write_cookie("b0", cookie.value, None)
    asking(bookie, driver)
    assert await bookie.collection.run() == 0


async def test_a_run_over_very_many_ledgers_takes_many_turns_of_the_loop(
    home: Home, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 300,000 of them others waited for 0.1 s again and again."""
    await write(bookie, *range(40))
    monkeypatch.setattr(identities, "STEP_LEDGERS", 2)
    driver = ClusterMetadata(MemoryStore(home.cluster))
    for ledger in range(40):
        await driver.create_ledger(METADATA, ledger)
    asking(bookie, driver)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await bookie.collection.run() == 0
    counting.cancel()
    assert turns >= 2 * 40 / 2, "creations are read to compare them, and to find those that lack"
    assert UNKNOWN not in dict(finished(bookie.storage.identities.creations())).values()


def test_ledgers_may_come_and_go_while_their_creations_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "STEP_LEDGERS", 2)
    store = Store()
    for ledger in range(6):
        store.fill(ledger, [0])
    creations, unknown = store.storage.identities.creations(), store.storage.identities.doubtful()
    next(creations)
    next(unknown)
    store.storage.collect([0, 5], ())
    store.fill(9, [0])
    assert finished(creations) == [(ledger, UNKNOWN) for ledger in range(5)]
    assert finished(unknown) == list(range(5))


async def test_creations_of_metadata_that_was_copied_while_they_were_read_say_nothing(
    home: Home, bookie: Bookie
) -> None:
    """They would be later than all that the copy has."""

    class Copied(ClusterMetadata):
        async def sync(self) -> Moment:
            finished(bookie.storage.identities.anchored(await self.bookie_creation("b0") or UNKNOWN))  # as a look does
            return await super().sync()

    await write(bookie, 1)
    finished(bookie.storage.identities.anchored(5))
    bookie.storage.identities.note(1, 1 << 60)
    asking(bookie, Copied(MemoryStore(home.cluster)))
    await bookie.collection.compare()
    assert not home.heard("metadata is older than the ledgers") and bookie.counts.ledgers_ahead == 0
