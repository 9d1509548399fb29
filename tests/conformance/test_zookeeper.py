"""What only ZooKeeper has: sessions that expire, connections that break, and a tree that the original shares."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.between import carried, listening_between
from support.ports import free_port
from support.waiting import until
from support.zookeeper import ZooKeeperServer, missing, running
from support.zookeeper_stores import session_of, store_of
from tallystick.bookkeeper.metadata import layout
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Change
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import (
    MetadataError,
    MetadataUnavailable,
    MetadataUncertain,
    UsageError,
)

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


@pytest.fixture
def raw(zookeeper: str) -> Iterator[KazooClient]:
    """A client without our rules."""
    client = KazooClient(zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def expire(client: KazooClient, servers: str) -> None:
    """End a session at the server, as its time-out does: whoever names a session can close it."""
    twin = KazooClient(servers, client_id=client.client_id)
    twin.start()
    twin.stop()
    twin.close()


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_an_expired_session_registers_its_bookies_again(
    driver: ClusterMetadata, raw: KazooClient, root: str
) -> None:
    for read_only in (False, True):
        path = f"{root}/available{'/readonly' if read_only else ''}/bookie-1"
        registration = await driver.register("bookie-1", INFO, read_only=read_only)
        before = raw.exists(path).ephemeralOwner
        await asyncio.to_thread(expire, session_of(driver)._client, session_of(driver).servers)

        def again(path: str = path, before: int = before) -> bool:
            stat = raw.exists(path)
            return stat is not None and stat.ephemeralOwner != before

        await until(again)
        assert not registration.loss.is_set()
        await registration.close()
        assert raw.exists(path) is None


async def test_a_place_that_another_session_took_is_lost(driver: ClusterMetadata, raw: KazooClient, root: str) -> None:
    registration = await driver.register("bookie-1", INFO)
    change = raw.transaction()
    change.delete(f"{root}/available/bookie-1")
    change.create(f"{root}/available/bookie-1", b"", ephemeral=True)
    assert not any(isinstance(result, Exception) for result in change.commit())
    async with asyncio.timeout(20):
        await registration.loss.wait()
    await registration.close()
    assert raw.exists(f"{root}/available/bookie-1") is not None


async def test_a_node_that_an_operator_deleted_comes_back(driver: ClusterMetadata, raw: KazooClient, root: str) -> None:
    registration = await driver.register("bookie-1", INFO)
    raw.delete(f"{root}/available/bookie-1")
    await until(lambda: raw.exists(f"{root}/available/bookie-1") is not None)
    assert not registration.loss.is_set()


async def test_watchers_are_told_after_a_lost_session(driver: ClusterMetadata, raw: KazooClient) -> None:
    ledger = (await driver.create_ledger(METADATA)).value
    heard_ledger, heard_bookies = asyncio.Event(), asyncio.Event()
    driver.watch_ledger(ledger, heard_ledger.set)
    driver.watch_bookies(heard_bookies.set)
    await driver.bookies()
    await asyncio.to_thread(expire, session_of(driver)._client, session_of(driver).servers)
    async with asyncio.timeout(20):
        await heard_ledger.wait()
        await heard_bookies.wait()
    heard_ledger.clear()
    read = await driver.read_ledger(ledger)
    assert read.value == METADATA
    await driver.write_ledger(ledger, METADATA.in_recovery(), read.version)
    async with asyncio.timeout(20):
        await heard_ledger.wait()
    assert (await driver.read_ledger(ledger)).value == METADATA.in_recovery()


async def test_a_killed_server_that_comes_back_costs_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        driver = await open_driver(f"zk://{server.address}/ledgers", session_timeout_s=20.0)
        instance = await driver.init_cluster()
        created = await driver.create_ledger(METADATA)
        registration = await driver.register("bookie-1", INFO)
        heard = asyncio.Event()
        driver.watch_ledger(created.value, heard.set)
        await driver.read_ledger(created.value)
        server.stop()
        pending = asyncio.ensure_future(driver.write_ledger(created.value, METADATA.in_recovery(), created.version))
        await asyncio.to_thread(server.start)
        assert await pending == created.version + 1
        async with asyncio.timeout(20):
            await heard.wait()
        assert await driver.instance_id() == instance
        assert (await driver.read_ledger(created.value)).value == METADATA.in_recovery()

        async def listed() -> bool:
            return (await driver.bookies()).find("bookie-1") == INFO

        await until(listed)
        assert not registration.loss.is_set()
        await driver.close()


async def test_a_server_that_accepts_and_never_answers_does_not_cost_the_session(zookeeper: str) -> None:
    host, _, port = zookeeper.rpartition(":")
    ends = asyncio.Event()
    visits = 0

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        if visits == 1:  # it waits for an answer for ever
            await ends.wait()
            return
        there, back = await asyncio.open_connection(host, int(port))
        with contextlib.closing(back):
            await carried((reader, back), (there, writer))

    async with listening_between(visit) as gate:
        driver = await open_driver(f"zk://127.0.0.1:{gate}/ledgers", session_timeout_s=6.0)
        assert visits == 2
        await driver.close()
        ends.set()


async def test_a_service_that_does_not_answer_is_named(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(MetadataUnavailable, match="is it running") as caught:
        await open_driver(f"zk://127.0.0.1:{port}/ledgers", session_timeout_s=0.4)
    assert caught.value.retriable and not caught.value.ambiguous
    assert caught.value.fields["servers"] == f"127.0.0.1:{port}"


async def test_calls_fail_when_the_service_stays_away(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path)
    try:
        await asyncio.to_thread(server.start)
        driver = await open_driver(f"zk://{server.address}/ledgers", session_timeout_s=20.0)
        assert isinstance(driver, ClusterMetadata)
        await driver.init_cluster()
        registration = await driver.register("bookie-1", INFO)
        server.stop()
        session_of(driver).timeout_s = 0.2  # enough where nobody can answer
        with pytest.raises(MetadataUncertain, match="does not answer") as caught:
            await driver.create_ledger(METADATA)
        assert caught.value.retriable and caught.value.ambiguous
        assert not registration.loss.is_set()
        await driver.close()
    finally:
        server.stop()


# -- the tree ---------------------------------------------------------------------------------------------------------


async def test_other_ledger_managers_are_refused_by_name(
    driver: ClusterMetadata, uri: str, raw: KazooClient, root: str
) -> None:
    flat = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
    for text in (f"2\n{flat}:1", "1\nflat:1", f"2\n{layout.Manager.HIERARCHICAL.value}:2", "3\nx:1", "junk"):
        raw.set(f"{root}/LAYOUT", text.encode())
        other = await open_driver(uri)
        with pytest.raises(MetadataError, match=r"FlatLedgerManagerFactory|flat|version 2|cannot be read"):
            await other.bookies()
        await other.close()
    raw.set(f"{root}/LAYOUT", b"1\nhierarchical:1")
    other = await open_driver(uri.replace("zk+hierarchical", "zk+null"))
    await other.bookies()
    await other.close()


async def test_a_cluster_is_as_its_uri_says(uri: str, raw: KazooClient, root: str) -> None:
    long_uri = uri.replace("zk+hierarchical", "zk+longhierarchical")
    made = await open_driver(long_uri)
    await made.init_cluster()
    await made.close()
    assert raw.get(f"{root}/LAYOUT")[0].decode() == layout.Manager.LONG_HIERARCHICAL.layout_text
    other = await open_driver(uri)
    with pytest.raises(MetadataError, match="LongHierarchicalLedgerManagerFactory; the URI asks for another"):
        await other.bookies()
    await other.close()


async def test_an_existing_root_is_refused(uri: str, raw: KazooClient, root: str) -> None:
    raw.create(root, b"", makepath=True)
    driver = await open_driver(uri)
    with pytest.raises(UsageError):
        await driver.init_cluster()
    assert raw.get_children(root) == []
    await driver.close()


async def test_deleting_prunes_empty_folders(driver: ClusterMetadata, raw: KazooClient, root: str) -> None:
    for ledger in (1, 2, 10_000, 1 << 40):
        await driver.create_ledger(METADATA, ledger)
    assert raw.exists(f"{root}/000/0001/0995/1162/L7776")
    await driver.delete_ledger(1)
    assert raw.get_children(f"{root}/00/0000") == ["L0002"]
    await driver.delete_ledger(2)
    assert raw.get_children(f"{root}/00") == ["0001"]
    await driver.delete_ledger(10_000)
    await driver.delete_ledger(1 << 40)
    assert sorted(raw.get_children(root)) == ["INSTANCEID", "LAYOUT", "available"]


async def test_listings_pass_over_what_is_no_ledger(driver: ClusterMetadata, raw: KazooClient, root: str) -> None:
    await driver.create_ledger(METADATA, 3)
    for name in ("underreplication/ledgers", "00/0000/locks", "00/x", "01/0000", "000/0000/0000", "idgen/ID-1", "5"):
        raw.ensure_path(f"{root}/{name}")
    assert [ledger async for ledger in driver.ledgers()] == [3]


async def test_a_listing_goes_on_when_a_folder_is_pruned_under_it(driver: ClusterMetadata) -> None:
    for ledger in (1, 10_000, 20_000, 100_000_000):
        await driver.create_ledger(METADATA, ledger)
    found = []
    async for ledger in driver.ledgers():
        found.append(ledger)
        if ledger == 1:
            await driver.delete_ledger(10_000)
            await driver.delete_ledger(100_000_000)
    assert found == [1, 20_000]


async def test_a_listing_without_a_root_is_an_error(driver: ClusterMetadata, raw: KazooClient, root: str) -> None:
    await driver.bookies()
    raw.delete(root, recursive=True)
    with pytest.raises(MetadataError):
        async for _ in driver.ledgers():
            pass


async def test_creating_and_deleting_neighbours_at_once(driver: ClusterMetadata, uri: str) -> None:
    """Each delete prunes the folder that another create is about to use."""
    other = await open_driver(uri)

    async def churn(client: MetadataDriver, start: int) -> None:
        for ledger in range(start, start + 15):
            await client.create_ledger(METADATA, ledger)
            await client.delete_ledger(ledger)

    await asyncio.gather(churn(driver, 0), churn(other, 100), churn(driver, 1 << 35), churn(other, (1 << 35) + 50))
    assert [ledger async for ledger in driver.ledgers()] == []
    await other.close()


async def test_a_folder_that_is_pruned_before_its_first_ledger_is_made_again(
    driver: ClusterMetadata, raw: KazooClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = store_of(driver)._make_folders
    pruned: list[str] = []

    async def prunes(changes: Sequence[Change]) -> None:
        await ensure(changes)
        if not pruned:
            pruned.append(f"{root}/00/0000")
            raw.delete(pruned[0])

    monkeypatch.setattr(store_of(driver), "_make_folders", prunes)
    created = await driver.create_ledger(METADATA)
    assert pruned
    assert (await driver.read_ledger(created.value)).value == METADATA


async def test_long_ids_once_anyone_uses_them(driver: ClusterMetadata, uri: str, raw: KazooClient, root: str) -> None:
    assert (await driver.create_ledger(METADATA)).value == 0
    raw.create(f"{root}/idgen-long")
    ids = [(await driver.create_ledger(METADATA)).value for _ in range(2)]
    assert ids == [1 << 32, (1 << 32) + 1]
    raw.create(f"{root}/idgen-long/HOB-0000000007")
    assert (await driver.create_ledger(METADATA)).value == 7 << 32
    assert [ledger async for ledger in driver.ledgers()] == [0, *ids, 7 << 32]


async def test_a_bookie_with_a_damaged_registration_does_not_hide_the_others(
    driver: ClusterMetadata, raw: KazooClient, root: str
) -> None:
    await driver.register("bookie-1", INFO)
    raw.create(f"{root}/available/bookie-2", b"\xff\xff", ephemeral=True)
    raw.create(f"{root}/available/10.0.0.1:3181", b"", ephemeral=True)
    found = await driver.bookies()
    assert found.find("bookie-1") == INFO
    addresses = [found.find(bookie) for bookie in ("bookie-2", "10.0.0.1:3181")]
    assert [info and info.address for info in addresses] == [None, ("10.0.0.1", 3181)]
