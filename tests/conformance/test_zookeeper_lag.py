"""Three servers, and clients of one that lags behind its leader: what such a server does not know says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.bookies import Home, adds, read, talking
from support.waiting import until
from support.zookeeper import LaggingEnsemble, missing
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.metadata.driver import BookiePresence, MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import NoSuchLedger

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b0",)),))


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaggingEnsemble]:
    made = LaggingEnsemble(tmp_path_factory.mktemp("ensemble"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
async def drivers(ensemble: LaggingEnsemble, tmp_path: Path) -> AsyncIterator[tuple[MetadataDriver, MetadataDriver]]:
    """Of a server that is up to date, and of the one that can be made to lag."""
    made = [await open_driver(uri(address, tmp_path)) for address in (ensemble.leading, ensemble.lagging)]
    await made[0].init_cluster()
    await made[1].sync()
    yield made[0], made[1]
    ensemble.release()
    for driver in made:
        await driver.close()


def uri(address: str, tmp_path: Path) -> str:
    return f"zk+hierarchical://{address}/{tmp_path.name}/ledgers"


async def listed(driver: MetadataDriver) -> list[int]:
    return [ledger async for ledger in driver.ledgers()]


async def test_a_synced_listing_waits_for_what_the_leader_has(
    ensemble: LaggingEnsemble, drivers: tuple[MetadataDriver, MetadataDriver]
) -> None:
    leading, lagging = drivers
    ensemble.hold()
    ledger = (await leading.create_ledger(METADATA)).value
    await leading.write_cookie("b0", b"cookie", None)
    await leading.register("b0", BookieInfo.at("127.0.0.1", 3181))
    assert ledger not in await listed(lagging), "it does not lag: this test shows nothing"
    assert (await lagging.look_up([ledger]))[ledger] is None
    synced = asyncio.ensure_future(lagging.sync())
    creation = asyncio.ensure_future(lagging.bookie_creation("b0"))
    presence = asyncio.ensure_future(lagging.bookie_presence("b0"))
    await leading.sync()
    assert not synced.done() and not creation.done() and not presence.done()
    ensemble.release()
    before = await synced
    assert ledger in await listed(lagging)
    assert (await lagging.look_up([ledger]))[ledger] is not None
    assert await lagging.sync() == before
    assert await creation is not None
    assert await presence == BookiePresence(await creation, ("127.0.0.1", 3181))


async def test_only_a_synced_read_says_that_a_ledger_is_not_there(
    ensemble: LaggingEnsemble, drivers: tuple[MetadataDriver, MetadataDriver]
) -> None:
    leading, lagging = drivers
    ensemble.hold()
    ledger = (await leading.create_ledger(METADATA)).value
    reading = asyncio.ensure_future(lagging.read_ledger(ledger))
    await leading.sync()
    assert not reading.done()
    ensemble.release()
    assert (await reading).value == METADATA
    with pytest.raises(NoSuchLedger):
        await lagging.read_ledger(ledger + 1)


async def test_a_bookie_at_a_server_that_lags_deletes_nothing_that_is_new(
    ensemble: LaggingEnsemble, drivers: tuple[MetadataDriver, MetadataDriver], tmp_path: Path
) -> None:
    leading, _ = drivers
    async with Home(tmp_path).running(metadata_uri=uri(ensemble.lagging, tmp_path), scrub_bytes_per_s=0) as bookie:
        no_wait(bookie)
        await bookie.driver.sync()  # behind its own at the start: whether the metadata was restored
        ensemble.hold()
        ledger = (await leading.create_ledger(METADATA)).value
        async with talking(bookie) as peer:
            assert await peer.code(adds(ledger, [0])) == Code.OK
        assert ledger not in await listed(bookie.driver), "it does not lag: this test shows nothing"
        running = asyncio.ensure_future(bookie.collection.run())
        await leading.sync()
        assert not running.done()
        ensemble.release()
        assert await running == 0
        async with talking(bookie) as peer:
            assert await peer.code(read(ledger, 0)) == Code.OK
        await leading.delete_ledger(ledger)
        assert await bookie.collection.run() == 1


async def test_a_bookie_at_a_server_that_lags_refuses_no_writer(
    ensemble: LaggingEnsemble, drivers: tuple[MetadataDriver, MetadataDriver], tmp_path: Path
) -> None:
    """It looks at a ledger that its server does not know yet."""
    leading, _ = drivers
    home = Home(tmp_path, looks=True)
    async with (
        home.running(metadata_uri=uri(ensemble.lagging, tmp_path), scrub_bytes_per_s=0) as bookie,
        talking(bookie) as peer,
    ):
        ensemble.hold()
        ledger = (await leading.create_ledger(METADATA)).value
        peer.writer.write(adds(ledger, [5]))
        await until(lambda: bookie.counts.looks == 1)
        ensemble.release()
        frame = await peer.frame()
        assert frame is not None
        assert int.from_bytes(frame[8:12], "big") == v2.NUMBERS[Code.OK]
        assert (bookie.counts.looks_refused, bookie.counts.looks_failed) == (0, 0)


def no_wait(bookie: Bookie) -> None:
    core = bookie.collection._core
    core._rules = replace(core._rules, gap_s=0.0)
