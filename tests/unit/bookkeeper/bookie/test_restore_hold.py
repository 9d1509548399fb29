"""Over metadata that was restored no collection deletes anything until an operator has confirmed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from support.bookies import Home
from support.collecting import asking, quick, write
from support.lagging import Lagging
from support.waiting import until
from tallystick.bookkeeper.bookie.restore_hold import _runs
from tallystick.bookkeeper.metadata import restored
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.restored import MOST_RUNS, BookieSurvey, RestoredMetadata, RestoredTree
from tallystick.bookkeeper.metadata.store import Create, Update
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.codec.steps import finished
from tallystick.errors import MetadataError

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))
RESTORED = RestoredMetadata(3, 1_700_000_000_000, 70, True, (5,), (1, 2), ("t/n/persistent/s",), (), ())


async def put_back(driver: ClusterMetadata, what: RestoredMetadata = RESTORED) -> None:
    await driver.store.change(Create(restored.restored_path(driver.root), restored.encode(what)))


async def confirm(driver: ClusterMetadata) -> None:
    tree = RestoredTree(driver)
    held = await tree.read()
    assert held is not None
    await tree.confirm(held.value, held.version, 1, "op")


@pytest.fixture
async def metadata(home: Home) -> AsyncIterator[ClusterMetadata]:
    driver = ClusterMetadata(MemoryStore(home.cluster))
    yield driver
    await driver.close()


async def test_nothing_is_deleted_until_an_operator_confirmed_over_restarts_and_by_no_order(
    home: Home, metadata: ClusterMetadata
) -> None:
    async with home.running() as bookie:
        await write(bookie, 1, 2, 3)
    await metadata.create_ledger(METADATA, 2)
    await put_back(metadata)
    for override in (False, True):
        async with home.running() as bookie:
            quick(bookie)
            assert await bookie.collection.run(override=override) == 0
            assert set(bookie.storage.ledger_ids()) == {1, 2, 3} and bookie.counts.collections_held == 1
    survey = (await RestoredTree(metadata).surveys())["b0"]
    assert (survey.epoch, survey.ahead, survey.missing, survey.more) == (3, (), ((1, 1), (3, 3)), 0)
    async with home.running() as bookie:
        quick(bookie)
        await bookie.collection.run()
        await confirm(metadata)
        assert await bookie.collection.run() == 2
        assert bookie.storage.ledger_ids() == [2] and bookie.counts.collections_held == 0
    assert home.heard("collections stand still") and home.heard("collections go on")


async def test_a_bookie_says_what_it_has_when_it_starts(home: Home, metadata: ClusterMetadata) -> None:
    await put_back(metadata)
    async with home.running():
        await until(lambda: home.heard("collections stand still"))
    assert (await RestoredTree(metadata).surveys())["b0"].missing == ()


async def test_a_server_that_lags_hides_no_restore(home: Home, metadata: ClusterMetadata) -> None:
    await put_back(metadata)
    assert await RestoredTree(ClusterMetadata(Lagging(home.cluster))).held() == RESTORED
    await confirm(metadata)
    assert await RestoredTree(ClusterMetadata(Lagging(home.cluster))).held() is None


async def test_what_cannot_be_read_of_a_restore_deletes_nothing(home: Home, metadata: ClusterMetadata) -> None:
    path = restored.restored_path(metadata.root)
    async with home.running() as bookie:
        quick(bookie)
        await write(bookie, 1)
        await metadata.store.change(Create(path, b"{}"))
        for version, damaged in enumerate((b"", b"[]", b"{", restored.encode(RESTORED)[:-9])):
            await metadata.store.change(Update(path, damaged, version))
            with pytest.raises(MetadataError, match="restore cannot be read"):
                await bookie.collection.run(override=True)
        assert bookie.storage.ledger_ids() == [1]


async def test_metadata_that_is_restored_while_it_is_looked_through_deletes_nothing(
    home: Home, metadata: ClusterMetadata
) -> None:
    class Restoring(ClusterMetadata):
        async def ledgers(self) -> AsyncIterator[int]:
            if await RestoredTree(self).read() is None:
                await put_back(self)
            async for ledger in super().ledgers():
                yield ledger

    async with home.running() as bookie:
        quick(bookie)
        await write(bookie, 1)
        asking(bookie, Restoring(MemoryStore(home.cluster)))
        with pytest.raises(MetadataError, match="restored while"):
            await bookie.collection.run()
        assert bookie.storage.ledger_ids() == [1]


async def test_ledgers_whose_entries_were_deleted_before_are_named(home: Home, metadata: ClusterMetadata) -> None:
    async with home.running() as bookie:
        quick(bookie)
        await write(bookie, 1, 2)
        await metadata.create_ledger(METADATA, 2)
        assert await bookie.collection.run() == 1
        await metadata.create_ledger(METADATA, 1)
        await put_back(metadata)
        await bookie.collection.run()
    assert (await RestoredTree(metadata).surveys())["b0"].deleted == ((1, 1),)


async def test_what_is_newer_than_the_metadata_is_named_apart(home: Home, metadata: ClusterMetadata) -> None:
    async with home.running() as bookie:
        quick(bookie)
        await write(bookie, 1, 2, 3)
        bookie.storage.identities.looked(2, 1_000_000, written=True)
        await put_back(metadata)
        await bookie.collection.run()
    survey = (await RestoredTree(metadata).surveys())["b0"]
    assert (survey.ahead, survey.missing) == (((2, 2),), ((1, 1), (3, 3)))


def test_a_survey_has_a_bound_and_counts_what_is_beyond_it() -> None:
    spread = range(0, 4 * MOST_RUNS, 2)
    runs, more = finished(_runs(spread, without={0}))
    assert len(runs) == MOST_RUNS and runs[0] == (2, 2) and more == len(spread) - 1 - MOST_RUNS
    assert finished(_runs([1, 2, 3, 7, 8, 10])) == (((1, 3), (7, 8), (10, 10)), 0)


async def test_what_a_bookie_says_of_very_many_ledgers_is_no_work_for_each(metadata: ClusterMetadata) -> None:
    """30,000 runs stopped its loop for 90 ms."""
    runs = tuple((ledger, ledger) for ledger in range(0, 2 * MOST_RUNS, 2))
    survey, calls = BookieSurvey(3, 1, runs, runs, runs, 7), 0
    await put_back(metadata)

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        await RestoredTree(metadata).report("b0", survey)
    finally:
        sys.setprofile(before)
    assert calls < MOST_RUNS
    assert await RestoredTree(metadata).surveys() == {"b0": survey}
