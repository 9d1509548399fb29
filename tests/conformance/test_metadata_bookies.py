"""Registrations, cookies and the cluster itself in every coordination service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.driver import BookiePresence, BookieRegistration, RegisteredBookies
from tallystick.bookkeeper.wire.values import BookieInfo, Endpoint
from tallystick.errors import MetadataConflict, MetadataError, UsageError

if TYPE_CHECKING:
    from conformance.conftest import Place

INFO = BookieInfo.at("127.0.0.1", 3181)
HEALTH_ALONE = BookieInfo((Endpoint("httpserver", "127.0.0.1", 8080, "http"),))


async def test_without_a_cluster_everything_says_so(place: Place) -> None:
    driver = await place.connect()
    for call in (
        driver.instance_id(),
        driver.sync(),
        driver.bookies(),
        driver.cookies(),
        driver.register("bookie-1", INFO),
    ):
        with pytest.raises(MetadataError, match="there is no cluster"):
            await call
    with pytest.raises(MetadataError, match="there is no cluster"):
        async for _ in driver.ledgers():
            pass


async def test_a_cluster_is_made_once_and_keeps_its_identity(place: Place) -> None:
    one, other = await place.connect(), await place.connect()
    instance = await one.init_cluster()
    assert await one.instance_id() == await other.instance_id() == instance
    for driver in (one, other):
        with pytest.raises(UsageError):
            await driver.init_cluster()
    assert await other.instance_id() == instance


async def test_one_of_many_makes_the_cluster(place: Place) -> None:
    clients = [await place.connect() for _ in range(4)]
    results = await asyncio.gather(*(client.init_cluster() for client in clients), return_exceptions=True)
    made = [result for result in results if isinstance(result, str)]
    assert len(made) == 1
    assert await clients[0].instance_id() == made[0]


async def test_after_close_nothing_works(cluster: Place) -> None:
    driver = await cluster.connect()
    await driver.close()
    with pytest.raises(MetadataError):
        await driver.instance_id()
    await driver.close()


async def test_a_registered_bookie_is_listed_until_it_leaves(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    info = BookieInfo((*INFO.endpoints, Endpoint("http", "127.0.0.1", 8080, "http")), {"rack": "r1"})
    registration = await one.register("bookie-1", info)
    await one.register("bookie-0", INFO)
    found = await other.bookies()
    assert found.writable == {"bookie-0": INFO, "bookie-1": info}
    assert not found.read_only
    assert found.find("bookie-1") == info
    await registration.close()
    assert list((await one.bookies()).writable) == ["bookie-0"]
    await registration.close()


@pytest.mark.parametrize("bookie", ["", "readonly", "..", "a/b", "a b"])
async def test_ids_that_are_none_are_refused(cluster: Place, bookie: str) -> None:
    driver = await cluster.connect()
    with pytest.raises(UsageError):
        await driver.register(bookie, INFO)
    with pytest.raises(UsageError):
        await driver.write_cookie(bookie, b"5\n", None)


async def test_a_closing_client_takes_its_bookies_along(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    await one.register("bookie-1", INFO)
    await other.register("bookie-2", INFO)
    assert list((await other.bookies()).writable) == ["bookie-1", "bookie-2"]
    await one.close()

    async def gone() -> bool:
        return (await other.bookies()).find("bookie-1") is None

    await until(gone)
    assert await other.bookies() == RegisteredBookies({"bookie-2": INFO}), "of others' bookies none goes along"
    taken = await other.register("bookie-1", INFO)  # the place is free
    assert not taken.loss.is_set()


async def test_read_only_and_back(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    registration = await one.register("bookie-1", INFO)
    for read_only in (True, True, False, True):
        await registration.set_read_only(read_only)
        found = await other.bookies()
        assert (list(found.read_only), list(found.writable)) == (
            (["bookie-1"], []) if read_only else ([], ["bookie-1"])
        )
    assert not registration.loss.is_set()
    await registration.close()
    assert (await other.bookies()).find("bookie-1") is None


async def test_what_is_told_about_a_bookie_changes_in_place(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    registration = await one.register("bookie-1", INFO)
    told = BookieInfo(INFO.endpoints, {"deletionsWaiting": "7"})
    await registration.set_info(told)
    assert (await other.bookies()).writable == {"bookie-1": told}
    await registration.set_read_only(True)
    assert (await other.bookies()).read_only == {"bookie-1": told}
    await registration.set_info(INFO)
    assert (await other.bookies()).read_only == {"bookie-1": INFO}
    taken = await other.register("bookie-1", INFO, replace=True)
    async with asyncio.timeout(20):
        await registration.loss.wait()
    with pytest.raises(MetadataConflict):
        await registration.set_info(told)
    assert (await other.bookies()).find("bookie-1") == INFO
    await taken.close()


async def test_a_bookie_never_vanishes_while_it_moves_between_the_lists(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    registration = await one.register("bookie-1", INFO)
    moving = asyncio.ensure_future(_move(registration))
    while not moving.done():
        assert (await other.bookies()).find("bookie-1")
    await moving


async def _move(registration: BookieRegistration) -> None:
    for turn in range(20):
        await registration.set_read_only(turn % 2 == 0)


async def test_a_bookie_can_start_read_only(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    await one.register("bookie-1", INFO, read_only=True)
    found = await other.bookies()
    assert (list(found.read_only), list(found.writable)) == (["bookie-1"], [])


async def test_a_living_bookie_keeps_its_place(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect(session_timeout_s=0.6)
    registration = await one.register("bookie-1", INFO)
    for read_only in (False, True):
        with pytest.raises(MetadataConflict):
            await other.register("bookie-1", BookieInfo.at("127.0.0.1", 1), read_only=read_only)
    assert (await other.bookies()).find("bookie-1") == INFO
    assert not registration.loss.is_set()


async def test_a_place_that_becomes_free_is_taken(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    registration = await one.register("bookie-1", INFO)
    waiting = asyncio.ensure_future(other.register("bookie-1", BookieInfo.at("127.0.0.1", 2)))
    await other.bookies()
    await registration.close()
    async with asyncio.timeout(20):
        await waiting
    found = (await one.bookies()).find("bookie-1")
    assert found is not None
    assert found.address == ("127.0.0.1", 2)


@pytest.mark.parametrize("read_only", [False, True])
async def test_replacing_ends_the_other_registration(cluster: Place, read_only: bool) -> None:
    one, other = await cluster.connect(session_timeout_s=1.0), await cluster.connect(session_timeout_s=1.0)
    old = await one.register("bookie-1", INFO, read_only=read_only)
    newer = BookieInfo.at("127.0.0.1", 2)
    new = await other.register("bookie-1", newer, replace=True)
    async with asyncio.timeout(20):
        await old.loss.wait()

    async def alone() -> bool:
        return await one.bookies() == RegisteredBookies({"bookie-1": newer})

    await until(alone)
    with pytest.raises(MetadataConflict):
        await old.set_read_only(not read_only)
    await old.close()
    assert (await one.bookies()).find("bookie-1") == newer, "the old one must not take the new one along"
    assert not new.loss.is_set()


async def test_watchers_hear_of_bookies(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    calls = {"one": 0, "other": 0}

    def count(name: str) -> None:
        calls[name] += 1

    async def seen_after(change: Awaitable[object]) -> list[RegisteredBookies]:
        """What both see when both have been called."""
        before = dict(calls)
        await change
        await until(lambda: calls["one"] > before["one"] and calls["other"] > before["other"])
        return [await one.bookies(), await other.bookies()]

    one.watch_bookies(lambda: count("one"))
    other.watch_bookies(lambda: count("other"))
    await other.bookies()
    registering = asyncio.ensure_future(one.register("bookie-1", INFO))
    assert await seen_after(registering) == [RegisteredBookies({"bookie-1": INFO})] * 2
    registration = await registering
    assert await seen_after(registration.set_read_only(True)) == [RegisteredBookies({}, {"bookie-1": INFO})] * 2
    assert await seen_after(registration.close()) == [RegisteredBookies()] * 2


async def test_cookies_are_compared_and_set(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    assert await one.read_cookie("bookie-1") is None
    assert await one.cookies() == []
    await one.write_cookie("bookie-1", b"first", None)
    with pytest.raises(MetadataConflict):
        await other.write_cookie("bookie-1", b"second", None)
    found = await other.read_cookie("bookie-1")
    assert found is not None
    assert found.value == b"first"
    await other.write_cookie("bookie-1", b"third", found.version)
    with pytest.raises(MetadataConflict):
        await one.write_cookie("bookie-1", b"fourth", found.version)
    again = await one.read_cookie("bookie-1")
    assert again is not None
    assert again.value == b"third"
    await one.write_cookie("bookie-0", b"other", None)
    assert await other.cookies() == ["bookie-0", "bookie-1"]
    with pytest.raises(MetadataConflict):
        await other.delete_cookie("bookie-1", found.version)
    assert await one.read_cookie("bookie-1") == again
    await other.delete_cookie("bookie-1", again.version)
    await other.delete_cookie("bookie-1", again.version)
    assert await one.cookies() == ["bookie-0"]
    with pytest.raises(MetadataConflict):
        await one.write_cookie("bookie-1", b"fifth", 1)


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_cookie_of_a_bookie_that_is_to_be_down_stays_while_it_is_registered(
    cluster: Place, read_only: bool
) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    await one.write_cookie("bookie-1", b"first", None)
    found = await one.read_cookie("bookie-1")
    assert found is not None
    registration = await one.register(
        "bookie-1", BookieInfo.at("127.0.0.1", 1), read_only=read_only, joined=found.creation
    )
    seen = await other.read_cookie("bookie-1")
    assert seen is not None and (seen.value, seen.creation) == (b"first", found.creation)
    with pytest.raises(MetadataConflict, match="came back"):
        await other.delete_cookie("bookie-1", seen.version, is_down=True)
    await registration.close()
    with pytest.raises(MetadataConflict, match="changed this cookie"):  # it was there meanwhile
        await other.delete_cookie("bookie-1", found.version, is_down=True)
    assert await other.cookies() == ["bookie-1"]
    await other.delete_cookie("bookie-1", seen.version, is_down=True)
    assert await other.cookies() == []
    with pytest.raises(MetadataConflict, match="taken out"):
        await one.register("bookie-1", BookieInfo.at("127.0.0.1", 1), joined=found.creation)
    assert not (await other.bookies()).writable


async def test_how_far_a_bookie_is_is_compared_and_set_and_lies_beside_the_ledgers(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    assert await one.read_progress("b:1") is None
    await one.write_progress("b:1", b"1", None)
    with pytest.raises(MetadataConflict):
        await other.write_progress("b:1", b"2", None)
    found = await other.read_progress("b:1")
    assert found is not None and (found.value, found.version) == (b"1", 0)
    await other.write_progress("b:1", b"2", 0)
    with pytest.raises(MetadataConflict):
        await one.write_progress("b:1", b"3", 0)
    found = await one.read_progress("b:1")
    assert found is not None and (found.value, found.version) == (b"2", 1)
    assert [ledger async for ledger in one.ledgers()] == [] and await one.cookies() == []
    assert "tallystick" not in (await one.store.children(one.root) or []), "an original lists all that is there"
    with pytest.raises(UsageError):
        await one.write_progress("../b", b"1", None)


async def test_a_cookie_made_again_has_another_creation(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    assert await other.bookie_creation("bookie-1") is None
    creations = []
    for _ in range(3):
        await one.write_cookie("bookie-1", b"same", None)
        creations.append(await other.bookie_creation("bookie-1"))
        found = await one.read_cookie("bookie-1")
        assert found is not None
        await one.write_cookie("bookie-1", b"changed", found.version)
        assert await other.bookie_creation("bookie-1") == creations[-1], "a change is no creation"
        await one.delete_cookie("bookie-1", found.version + 1)
        assert await other.bookie_creation("bookie-1") is None
    assert None not in creations
    assert len(set(creations)) == 3
    await one.write_cookie("bookie-0", b"same", None)
    assert await other.bookie_creation("bookie-0") not in creations


async def test_the_presence_of_a_bookie_is_its_cookie_and_its_address(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    assert await other.bookie_presence("host:3181") == BookiePresence(None, None)
    await one.write_cookie("host:3181", b"cookie", None)
    creation = await one.bookie_creation("host:3181")
    assert await other.bookie_presence("host:3181") == BookiePresence(creation, None)
    registration = await one.register("host:3181", HEALTH_ALONE)
    assert await other.bookie_presence("host:3181") == BookiePresence(creation, None), "no address"
    await registration.set_info(BookieInfo.at("127.0.0.1", 3182))
    assert await other.bookie_presence("host:3181") == BookiePresence(creation, ("127.0.0.1", 3182))
    await registration.set_read_only(True)
    assert await other.bookie_presence("host:3181") == BookiePresence(creation, ("127.0.0.1", 3182))
    await registration.close()
    assert await other.bookie_presence("host:3181") == BookiePresence(creation, None)
