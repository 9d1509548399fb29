"""A bookie answers at an address once nobody else is registered there: requests do not say whom they are for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.bookies import Home
from support.lagging import Lagging
from support.ports import free_port
from support.waiting import until
from tallystick.bookkeeper.bookie.address import wait_for_address
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore, forget
from tallystick.bookkeeper.wire.values import BookieInfo
from tallystick.errors import MetadataConflict
from tallystick.testing import virtual_time

HERE = ("10.0.0.1", 3181)


@contextlib.asynccontextmanager
async def cluster(name: str) -> AsyncIterator[ClusterMetadata]:
    driver = ClusterMetadata(MemoryStore(name))
    await driver.init_cluster()
    try:
        yield driver
    finally:
        await driver.close()
        forget(name)


async def test_others_elsewhere_and_the_bookie_itself_are_no_hindrance() -> None:
    async with cluster("address-alone") as driver:
        await driver.register("b0", BookieInfo.at(*HERE))
        await driver.register("b1", BookieInfo.at("10.0.0.1", 3182))
        await driver.register("b2", BookieInfo.at("10.0.0.2", 3181), read_only=True)
        told: list[list[str]] = []
        await wait_for_address(driver, "b0", HERE, 60, told.append)
        assert told == []


@pytest.mark.parametrize("read_only", [False, True])
async def test_one_that_left_is_waited_for_until_its_registration_ends(read_only: bool) -> None:
    async with cluster("address-left") as driver:
        old = await driver.register("b1", BookieInfo.at(*HERE), read_only=read_only)
        told: list[list[str]] = []
        waiting = asyncio.create_task(wait_for_address(driver, "b0", HERE, 60, told.append))
        await until(lambda: bool(told))
        assert told == [["b1"]] and not waiting.done()
        await old.close()
        await waiting
        assert told == [["b1"]]


async def test_one_that_a_server_which_lags_does_not_list_yet_is_waited_for() -> None:
    async with cluster("address-lags") as driver:
        old = await driver.register("b1", BookieInfo.at(*HERE))
        told: list[list[str]] = []
        lagging = ClusterMetadata(Lagging("address-lags"))
        waiting = asyncio.create_task(wait_for_address(lagging, "b0", HERE, 60, told.append))
        await until(lambda: bool(told) or waiting.done())
        assert told == [["b1"]] and not waiting.done()
        await old.close()
        await waiting


@virtual_time
async def test_one_that_stays_registered_has_the_address_too() -> None:
    async with cluster("address-shared") as driver:
        await driver.register("b1", BookieInfo.at(*HERE))
        with pytest.raises(MetadataConflict, match="b1"):
            await wait_for_address(driver, "b0", HERE, 60, lambda _: None)


async def test_a_bookie_at_the_address_of_another_answers_when_that_one_is_listed_no_more(tmp_path: Path) -> None:
    """What is sent to the other one meanwhile is refused: an entry would be where nobody looks for it (P1)."""
    home, port = Home(tmp_path), free_port()
    driver = await home.found()
    old = await driver.register("old", BookieInfo.at("127.0.0.1", port))
    starting = asyncio.create_task(home.start(port=port))
    await until(lambda: bool(home.heard("address not free")))
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert "b0" not in (await driver.bookies()).writable
    await old.close()
    bookie = await starting
    assert list((await driver.bookies()).writable) == ["b0"]
    await bookie.stop()
    await driver.close()
