"""Who hears of what in a SQLite file: changes of this process and others, leases that end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from functools import partial

import pytest

from support.sqlite_stores import at, store_of
from support.waiting import until
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_leases import Lease
from tallystick.bookkeeper.metadata.sqlite_tree import Sight, SqliteTree
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.bookkeeper.wire.metadata import encode
from tallystick.bookkeeper.wire.registration import encode as encode_info
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import (
    MetadataConflict,
)

INFO = BookieInfo.at("127.0.0.1", 3181)
PLACE = Create("/ledgers/available/bookie-1", encode_info(INFO), ephemeral=True)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


async def test_watchers_hear_of_what_other_processes_change(driver: ClusterMetadata, stranger: SqliteTree) -> None:
    ledgers = [(await driver.create_ledger(METADATA)).value for _ in range(3)]
    heard: list[object] = []
    for ledger in ledgers:
        driver.watch_ledger(ledger, partial(heard.append, ledger))
    driver.watch_ledger(77, lambda: heard.append(77))
    driver.watch_bookies(lambda: heard.append("bookies"))
    await driver.bookies()
    stranger.change([Update(at(ledgers[1]), b"x", 0)], "")
    await until(lambda: heard == [ledgers[1]])
    stranger.change([Delete(at(ledgers[0]))], "")
    await until(lambda: heard == [ledgers[1], ledgers[0]])
    stranger.change([Create(at(77))], "")
    await until(lambda: heard[2:] == [77])
    owner = stranger.leases.new_owner()
    stranger.leases.renew(Lease(owner, 3600.0))
    stranger.change([PLACE], owner)
    await until(lambda: heard[3:] == ["bookies"])
    stranger.leases.renew(Lease(owner, 0.2))
    stranger.change([Create("/any")], "")
    await until(lambda: heard[4:] == ["bookies"])  # nobody renewed it again
    assert not (await driver.bookies()).writable
    stranger.leases.remove(owner)


async def test_a_change_before_a_second_watch_is_told_to_the_first(
    driver: ClusterMetadata, stranger: SqliteTree
) -> None:
    ledger, heard = (await driver.create_ledger(METADATA)).value, []
    driver.watch_ledger(ledger, lambda: heard.append(1))
    await driver.bookies()
    stranger.change([Update(at(ledger), encode(METADATA.closed(0, 1)), 0)], "")
    driver.watch_ledger(ledger, lambda: heard.append(2))
    await until(lambda: 1 in heard)
    assert heard.count(1) == 1, "one change is one call"
    assert (await driver.read_ledger(ledger)).value == METADATA.closed(0, 1)


async def test_what_thousands_watch_costs_a_change_nothing(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = [each.value for each in await asyncio.gather(*(driver.create_ledger(METADATA) for _ in range(2000)))]
    heard: list[int] = []
    for ledger in ledgers:
        driver.watch_ledger(ledger, partial(heard.append, ledger))
    await driver.bookies()
    looked: list[int] = []
    tree = store_of(driver)._tree
    sights = tree.sights

    def counted(keys: Sequence[str]) -> dict[str, Sight]:
        looked.append(len(keys))
        return sights(keys)

    monkeypatch.setattr(tree, "sights", counted)
    await driver.create_ledger(METADATA)
    await driver.write_ledger(ledgers[7], METADATA, 0)
    await until(lambda: heard == [ledgers[7]])
    assert looked == [1]


async def test_what_is_watched_no_more_is_forgotten(driver: ClusterMetadata) -> None:
    heard: list[int] = []
    kept = (await driver.create_ledger(METADATA)).value
    driver.watch_ledger(kept, lambda: heard.append(kept))
    for ledger in range(kept + 1, kept + 3001):
        driver.watch_ledger(ledger, partial(heard.append, ledger)).cancel()
    watch = driver.watch_bookies(lambda: None)
    await until(lambda: len(store_of(driver)._thread._last_states) < 1500)
    watch.cancel()
    assert (await driver.create_ledger(METADATA)).value == kept + 1
    await driver.write_ledger(kept, METADATA, 0)
    await until(lambda: heard == [kept])


async def test_leases_are_looked_after_under_constant_load(driver: ClusterMetadata, path: str) -> None:
    """A thread that looks around only when it has nothing to do would notice neither loss nor commits."""
    bookie, heard = ClusterMetadata(SqliteStore(path, session_timeout_s=0.2)), []
    registration, ended = await bookie.register("bookie-1", INFO), False

    async def load() -> None:
        while not ended:
            await asyncio.gather(*(driver.bookies() for _ in range(50)))

    loads = [asyncio.ensure_future(load()) for _ in range(2)]
    stranger = SqliteTree(path)
    owner = stranger.leases.new_owner()
    driver.watch_bookies(lambda: heard.append(1))
    try:
        await driver.bookies()
        stranger.leases.renew(Lease(owner, 3600.0))
        stranger.change([Delete(PLACE.path), PLACE], owner)
        async with asyncio.timeout(20):
            await registration.loss.wait()
        await until(lambda: bool(heard))
        assert (await driver.bookies()).find("bookie-1") == INFO, "it is the stranger's now"
        with pytest.raises(MetadataConflict):
            await registration.set_read_only(True)
    finally:
        ended = True
        await asyncio.gather(*loads)
        stranger.leases.remove(owner)
        stranger.close()
        await bookie.close()


async def test_a_place_that_somebody_cleared_is_taken_again(driver: ClusterMetadata, path: str) -> None:
    bookie = ClusterMetadata(SqliteStore(path, session_timeout_s=0.2))
    registration = await bookie.register("bookie-1", INFO)
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM nodes WHERE owner IS NOT NULL")
    other.close()

    async def is_back() -> bool:
        return (await driver.bookies()).find("bookie-1") is not None

    await until(is_back)
    assert not registration.loss.is_set()
    await bookie.close()


async def test_nodes_whose_lease_was_renewed_too_late_are_told_as_new_ones(
    driver: ClusterMetadata, stranger: SqliteTree, path: str
) -> None:
    """Who watched saw them vanish; a renewal alone is no commit, and nobody would look again."""
    paused, heard = SqliteStore(path), []
    await paused.change(Create("/place", b"x", ephemeral=True))
    before = await driver.store.get("/place")
    driver.store.watch("/place", lambda: heard.append(1))
    await driver.store.get("/place")
    keeper, owner = paused._thread._keeper, paused.owners[-1]
    with keeper._condition:  # no renewal meanwhile
        stranger.leases.renew(Lease(owner, -1.0))
        stranger.change([Create("/any")], "")
        await until(lambda: len(heard) == 1)
        assert await driver.store.get("/place") is None
        keeper._held_leases[owner].end = 0.0
        keeper._condition.notify_all()
    await until(lambda: len(heard) >= 2)
    after = await driver.store.get("/place")
    assert before is not None and after is not None
    assert after.data == b"x" and after.creation != before.creation
    await paused.close()
