"""What only the SQLite driver has: a file, leases on the boot clock, a thread. The rest is in tests/conformance."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.sqlite_faults import fail_once
from support.sqlite_stores import store_of
from support.waiting import until
from tallystick.bookkeeper.metadata import sqlite_leases, sqlite_schema, sqlite_tree
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_leases import LEFT_BEHIND_S, Lease, LeaseFiles, boot_now
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.bookkeeper.metadata.store import Absent, Create, Delete, Point
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import (
    MetadataConflict,
    MetadataError,
    MetadataUnavailable,
    MetadataUncertain,
    UsageError,
    ZnodeExists,
)

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),), password=b"secret")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "metadata.db"


@pytest.fixture
async def driver(path: Path) -> AsyncIterator[ClusterMetadata]:
    made = ClusterMetadata(SqliteStore(str(path)))
    await made.init_cluster()
    yield made
    await made.close()


@pytest.fixture
def tree(path: Path) -> Iterator[SqliteTree]:
    made = SqliteTree(str(path))
    made.make()
    yield made
    made.close()


async def test_looking_for_a_cluster_makes_no_file(path: Path) -> None:
    driver = await open_driver(f"sqlite://{path}")
    with pytest.raises(MetadataError, match="there is no cluster here") as caught:
        await driver.bookies()
    assert caught.value.path == str(path)
    assert not path.parent.exists()
    await driver.close()


@pytest.mark.parametrize(
    ("place", "why"), [("loop/m.db", "symbolic links"), ("file/m.db", "Not a dir"), ("x" * 300, "too long")]
)
async def test_a_file_that_cannot_be_looked_at_is_not_told_as_absent(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    driver = ClusterMetadata(SqliteStore(str(tmp_path / place)))
    with pytest.raises(MetadataError, match=f"the metadata file cannot be opened: .*{why}"):
        await driver.bookies()
    await driver.close()


async def test_nobody_else_can_read_the_passwords(driver: ClusterMetadata, path: Path) -> None:
    await driver.create_ledger(METADATA)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in sorted(path.parent.iterdir())] == [0o600] * 3


async def test_a_change_is_synced_before_its_call_returns(driver: ClusterMetadata, path: Path) -> None:
    connection = store_of(driver)._tree.file.connect
    pragma = await store_of(driver)._thread.call(lambda: connection().execute("PRAGMA synchronous").fetchone()[0])
    assert pragma == 2  # FULL
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    other.close()


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be looked at" * 100])
async def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.db"
    path.write_bytes(content)
    driver = ClusterMetadata(SqliteStore(str(path)))
    with pytest.raises(MetadataError, match=r"no cluster in this file|cannot be used"):
        await driver.instance_id()
    await driver.close()
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE x (y)")
    connection.close()
    driver = ClusterMetadata(SqliteStore(str(path)))
    with pytest.raises(MetadataError, match="another program"):
        await driver.instance_id()
    with pytest.raises(UsageError):
        await driver.init_cluster()
    await driver.close()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    driver = ClusterMetadata(SqliteStore(str(tmp_path / "file" / "metadata.db")))
    with pytest.raises(MetadataError, match="cannot be made"):
        await driver.init_cluster()
    await driver.close()


def test_a_file_that_others_keep_locked_was_not_changed(tree: SqliteTree, path: Path) -> None:
    other = SqliteTree(str(path))
    with tree.transaction(), pytest.raises(MetadataUnavailable, match="locked") as caught:
        other.change([Create("/a")], "")
    assert caught.value.retriable and not caught.value.ambiguous
    assert other.get_many(["/a"]) == {}
    other.change([Create("/a")], "")
    other.close()


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_commit_that_fails_leaves_the_outcome_open_and_the_connection_usable(
    tree: SqliteTree, rolled_back: bool
) -> None:
    tree.point()
    fail_once(tree.file, "COMMIT", rolled_back=rolled_back)
    with pytest.raises(MetadataUncertain, match="disk I/O error") as caught:
        tree.change([Create("/a")], "")
    assert caught.value.ambiguous
    tree.change([Create("/a")], "")


def test_a_driver_does_not_survive_a_fork(path: Path) -> None:
    async def run() -> None:
        driver = ClusterMetadata(SqliteStore(str(path)))
        store_of(driver)._thread._pid = os.getpid() + 1  # as the child of a fork sees it
        with pytest.raises(UsageError, match="fork"):
            await driver.instance_id()

    asyncio.run(run())


def test_a_lease_ends_with_its_time_and_with_the_boot(
    tree: SqliteTree, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = boot_now()
    for module in (sqlite_tree, sqlite_leases):
        monkeypatch.setattr(module, "boot_now", lambda: now)
    lease, rival = (Lease(tree.leases.new_owner(), 10.0) for _ in range(2))
    place = Create("/place", b"mine", ephemeral=True)
    for each in (lease, rival):
        tree.leases.renew(each)
    tree.change([place], lease.owner)
    with pytest.raises(ZnodeExists):
        tree.change([place], rival.owner)
    now += 9.9
    tree.leases.renew(lease)
    now += 9.9
    assert tree.get_many(["/place"])["/place"].owner == lease.owner, "renewed"
    now += 0.2
    assert tree.get_many(["/place"]) == {}
    assert (tree.children("/place"), tree.get_many(["/place"])) == (None, {})
    tree.leases.renew(rival)
    tree.change([place], rival.owner)
    tree.leases.renew(lease)  # too late
    assert tree.get_many(["/place"])["/place"].owner == rival.owner
    rebooted = SqliteTree(str(path))
    rebooted.leases._boot = "another boot"
    assert rebooted.get_many(["/place"]) == {}
    rebooted.close()
    for each in (lease, rival):
        tree.leases.remove(each.owner)


def test_a_registration_brings_a_restored_file_no_nearer_to_what_it_lacks(tree: SqliteTree) -> None:
    """A bookie knows by the newest creation that the metadata is older than its ledgers; others start before it."""
    owner, newest = tree.leases.new_owner(), tree.point().newest
    tree.leases.renew(Lease(owner, 10.0))
    for _ in range(2):
        tree.change([Create("/place", ephemeral=True)], owner)
        tree.touch(owner)
        assert tree.get_many(["/place"])["/place"].creation < 0
        tree.change([Delete("/place")], owner)
    assert tree.point().newest == newest
    tree.leases.remove(owner)


def test_what_is_checked_to_be_absent_does_not_come_back(tree: SqliteTree) -> None:
    """A process that was paused: another has seen that its place was free, and took the one beside it."""
    lease = Lease(tree.leases.new_owner(), 10.0)
    tree.change([Create("/here", ephemeral=True)], lease.owner)  # expired, as it has no lease yet
    tree.change([Absent("/here"), Create("/there")], "other")
    tree.leases.renew(lease)
    assert list(tree.get_many(["/here", "/there"])) == ["/there"]
    tree.leases.remove(lease.owner)


def test_a_folder_goes_with_children_that_have_expired(tree: SqliteTree) -> None:
    owner = tree.leases.new_owner()
    tree.change([Create("/folder"), Create("/folder/child", ephemeral=True)], owner)
    tree.change([Delete("/folder")], "")
    tree.leases.renew(Lease(owner, 10.0))
    assert tree.get_many(["/folder", "/folder/child"]) == {}
    tree.leases.remove(owner)


def test_nodes_of_killed_owners_go_after_a_day(tree: SqliteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, living = tree.leases.new_owner(), tree.leases.new_owner()
    tree.change([Create("/of-the-killed", ephemeral=True)], owner)
    tree.change([Create("/of-the-living", ephemeral=True)], living)
    tree.leases.renew(Lease(living, 2 * LEFT_BEHIND_S))
    now = boot_now() + LEFT_BEHIND_S + 1
    for module in (sqlite_tree, sqlite_leases):
        monkeypatch.setattr(module, "boot_now", lambda: now)
    tree.remove_left_behind()
    with tree.file.reading() as connection:
        assert connection.execute("SELECT name FROM nodes WHERE owner IS NOT NULL").fetchall() == [("of-the-living",)]
    tree.leases.remove(living)


async def test_a_lease_is_renewed_until_another_has_it(path: Path, driver: ClusterMetadata) -> None:
    other = ClusterMetadata(SqliteStore(str(path), session_timeout_s=0.15))
    registration = await other.register("bookie-1", INFO)
    ends: set[float] = set()

    def seen() -> bool:
        ends.add(LeaseFiles(str(path)).end_of(other.store.owners[-1]))
        return len(ends) >= 5

    await until(seen)
    await driver.register("bookie-1", BookieInfo.at("127.0.0.1", 2), replace=True)
    async with asyncio.timeout(20):
        await registration.loss.wait()
    with pytest.raises(MetadataConflict):
        await registration.set_read_only(True)
    await other.close()
    assert (await driver.bookies()).writable["bookie-1"].address == ("127.0.0.1", 2)


async def test_a_cancelled_registration_leaves_nothing(driver: ClusterMetadata, path: Path) -> None:
    registering = asyncio.ensure_future(driver.register("bookie-1", INFO))
    await asyncio.sleep(0)
    registering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await registering
    assert not (await driver.bookies()).writable


async def test_a_call_that_was_cancelled_does_not_stop_the_thread(driver: ClusterMetadata) -> None:
    call = asyncio.ensure_future(driver.instance_id())
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await driver.instance_id()


async def test_nobody_polls_when_nobody_watches(driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    await driver.instance_id()
    asked: list[int] = []

    def version() -> tuple[int, int]:
        asked.append(1)
        return 0, 1

    monkeypatch.setattr(store_of(driver)._tree.file, "data_version", version)
    store_of(driver)._thread._poll_at = 0.0
    for _ in range(2):  # between two calls the thread polls if it has to
        await driver.instance_id()
    assert not asked
    watch = driver.watch_bookies(lambda: None)
    await until(lambda: len(asked) > 2)
    watch.cancel()


async def test_a_look_is_of_one_moment(driver: ClusterMetadata, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever others change while the thread reads; after it reads are as new as ever, also when it failed."""
    await driver.create_ledger(METADATA, 1)
    tree, other = store_of(driver)._tree, sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    point = tree.point

    def change_behind() -> Point:
        found = point()
        other.execute("DELETE FROM nodes WHERE name IN ('L0001', 'INSTANCEID')")
        return found

    monkeypatch.setattr(tree, "point", change_behind)
    seen = await driver.look([1])
    assert seen.by_ledger[1] is not None and seen.start.instance
    assert await driver.look_up([1]) == {1: None}
    with pytest.raises(MetadataError, match="no instance id"):
        await driver.look([1])
    for rolled_back in (False, True):
        fail_once(tree.file, "SELECT creations", rolled_back=rolled_back)
        with pytest.raises(MetadataError, match="disk I/O error"):
            await driver.look([1])
        assert not tree.file.in_transaction
    other.close()


async def test_a_replaced_file_is_another_cluster(driver: ClusterMetadata, path: Path) -> None:
    """What is open has no name any more: nobody else would see a change, and what it lacks says nothing."""
    there = (await driver.create_ledger(METADATA)).value
    copy = path.with_name("restored.db")
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    assert (await driver.sync()).instance == await driver.instance_id()
    os.replace(copy, path)
    calls = (
        driver.sync,
        lambda: driver.create_ledger(METADATA),
        lambda: driver.bookie_creation("b1"),
        driver.bookies,
        lambda: driver.look([7]),
        lambda: driver.read_ledger(7),
        lambda: driver.look_up([there, 7]),
    )
    for call in calls:
        with pytest.raises(MetadataError, match="replaced or removed"):
            await call()
    os.unlink(path)
    for call in calls:
        with pytest.raises(MetadataError, match="replaced or removed"):
            await call()


def test_a_file_that_was_restored_in_its_place_knows_what_it_lost_whatever_it_made_since(
    tree: SqliteTree, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> int:
        tree.change([Create(f"/{name}")], "nobody")
        return tree.get_many([f"/{name}"])[f"/{name}"].creation

    def copied(source: Path, target: Path) -> None:
        with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
            one.backup(other)
        one.close()
        other.close()

    older = tmp_path / "older.db"
    before = [made(f"before-{number}") for number in range(3)]
    copied(path, older)
    lost = [made(f"lost-{number}") for number in range(3)]
    assert tree.never_made(before + lost) == set()
    copied(older, path)
    assert tree.never_made(before + lost) == set(lost)
    since = [made(f"since-{number}") for number in range(40)]
    assert since[-1] > lost[-1], "40 random steps are more than 3, but for one time in 2**100"
    assert tree.never_made(before + lost + since) == set(lost)
    tree.change([Delete("/before-1"), Delete("/since-1")], "nobody")
    assert tree.never_made([before[1], since[1]]) == set(), "what was deleted was made"
    monkeypatch.setattr(sqlite_schema, "MADE_SPAN", 0)
    made("last")
    assert tree.never_made(before + lost + since) == set(), "the past is not kept for ever"
