"""What only the SQLite driver has: a file, leases on the boot clock, a thread. The rest is in tests/conformance."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.sqlite_faults import fail_once
from support.waiting import until
from tallystick.bookkeeper.metadata import sqlite_store
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.sqlite import SqliteDriver, SqliteRegistration
from tallystick.bookkeeper.metadata.sqlite_leases import Lease, LeaseFiles, boot_now
from tallystick.bookkeeper.metadata.sqlite_store import SqliteStore
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import MetadataConflict, MetadataError, MetadataUnavailable, MetadataUncertain, UsageError

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),), password=b"secret")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "metadata.db"


@pytest.fixture
async def driver(path: Path) -> AsyncIterator[SqliteDriver]:
    made = SqliteDriver(str(path))
    await made.init_cluster()
    yield made
    await made.close()


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(str(path))
    made.init_cluster()
    yield made
    made.close()


async def test_looking_for_a_cluster_makes_no_file(path: Path) -> None:
    driver = await open_driver(f"sqlite://{path}")
    with pytest.raises(MetadataError, match="there is no cluster here") as caught:
        await driver.bookies()
    assert caught.value.path == str(path)
    assert not path.parent.exists()
    await driver.close()


async def test_nobody_else_can_read_the_passwords(driver: SqliteDriver, path: Path) -> None:
    await driver.create_ledger(METADATA)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in sorted(path.parent.iterdir())] == [0o600] * 3


async def test_a_change_is_synced_before_its_call_returns(driver: SqliteDriver, path: Path) -> None:
    connection = driver._store.file.connect
    pragma = await driver._thread.call(lambda: connection().execute("PRAGMA synchronous").fetchone()[0])
    assert pragma == 2  # FULL
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    other.close()


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be looked at" * 100])
async def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.db"
    path.write_bytes(content)
    driver = SqliteDriver(str(path))
    with pytest.raises(MetadataError, match=r"no cluster in this file|cannot be used"):
        await driver.instance_id()
    await driver.close()
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE x (y)")
    connection.close()
    driver = SqliteDriver(str(path))
    with pytest.raises(MetadataError, match="another program"):
        await driver.instance_id()
    with pytest.raises(UsageError):
        await driver.init_cluster()
    await driver.close()


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    driver = SqliteDriver(str(tmp_path / "file" / "metadata.db"))
    with pytest.raises(MetadataError, match="cannot be made"):
        await driver.init_cluster()
    await driver.close()


def test_a_file_that_others_keep_locked_was_not_changed(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(str(path))
    with store._writing(), pytest.raises(MetadataUnavailable, match="locked") as caught:
        other.create_ledger(METADATA, 1)
    assert caught.value.retriable and not caught.value.ambiguous
    assert other.create_ledger(METADATA, 1).value == 1
    other.close()


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_commit_that_fails_leaves_the_outcome_open_and_the_connection_usable(
    store: SqliteStore, rolled_back: bool
) -> None:
    store.instance_id()
    fail_once(store.file, "COMMIT", rolled_back=rolled_back)
    with pytest.raises(MetadataUncertain, match="disk I/O error") as caught:
        store.create_ledger(METADATA, 1)
    assert caught.value.ambiguous
    assert store.create_ledger(METADATA, 1).value == 1


def test_a_driver_does_not_survive_a_fork(path: Path) -> None:
    async def run() -> None:
        driver = SqliteDriver(str(path))
        driver._thread._pid = os.getpid() + 1  # as the child of a fork sees it
        with pytest.raises(UsageError, match="fork"):
            await driver.instance_id()

    asyncio.run(run())


def test_a_lease_ends_with_its_time_and_with_the_boot(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = boot_now()
    monkeypatch.setattr(sqlite_store, "boot_now", lambda: now)
    lease, rival = Lease("bookie-1", INFO, "me", 10.0), Lease("bookie-1", INFO, "rival", 10.0)
    assert store.take_place(lease, replace=False)
    assert not store.take_place(rival, replace=False)
    now += 9.9
    assert store.take_place(lease, replace=False), "renewed"
    now += 9.9
    assert store.bookies().find("bookie-1")
    now += 0.2
    assert not store.bookies().find("bookie-1")
    assert store.take_place(rival, replace=False)
    rebooted = SqliteStore(str(path))
    rebooted._boot = "another boot"
    assert not rebooted.bookies().find("bookie-1")
    rebooted.close()


async def test_a_lease_is_renewed_until_another_has_it(path: Path, driver: SqliteDriver) -> None:
    other = SqliteDriver(str(path), session_timeout_s=0.15)
    registration = await other.register("bookie-1", INFO)
    assert isinstance(registration, SqliteRegistration)
    owner = registration._lease.owner
    ends: set[float] = set()

    def seen() -> bool:
        ends.add(LeaseFiles(str(path)).end_of(owner))
        return len(ends) >= 5

    await until(seen)
    await driver.register("bookie-1", BookieInfo.at("127.0.0.1", 2), replace=True)
    async with asyncio.timeout(20):
        await registration.lost.wait()
    with pytest.raises(MetadataConflict):
        await registration.set_read_only(True)
    await other.close()
    assert (await driver.bookies()).writable["bookie-1"].address == ("127.0.0.1", 2)


async def test_a_cancelled_registration_leaves_nothing(driver: SqliteDriver, path: Path) -> None:
    registering = asyncio.ensure_future(driver.register("bookie-1", INFO))
    await asyncio.sleep(0)
    registering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await registering
    assert not (await driver.bookies()).writable


async def test_a_call_that_was_cancelled_does_not_stop_the_thread(driver: SqliteDriver) -> None:
    call = asyncio.ensure_future(driver.instance_id())
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await driver.instance_id()


async def test_nobody_polls_when_nobody_watches(driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    await driver.instance_id()
    asked: list[int] = []

    def version() -> int:
        asked.append(1)
        return 1

    monkeypatch.setattr(driver._store.file, "data_version", version)
    await asyncio.sleep(0.2)
    assert not asked
    watch = driver.watch_bookies(lambda: None)
    await until(lambda: len(asked) > 2)
    watch.cancel()


async def test_listings_of_several_pages(driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.bookkeeper.metadata.sqlite.PAGE", 2)
    monkeypatch.setattr("tallystick.bookkeeper.metadata.sqlite_store.PAGE", 2)
    for count in range(5):
        assert [ledger async for ledger in driver.ledgers()] == list(range(count))
        await driver.create_ledger(METADATA)


async def test_a_replaced_file_is_another_cluster(driver: SqliteDriver, path: Path) -> None:
    """What is open has no name any more: nobody else would see a change, and what it lacks says nothing."""
    await driver.create_ledger(METADATA)
    copy = path.with_name("restored.db")
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    assert (await driver.sync()).instance == await driver.instance_id()
    os.replace(copy, path)
    calls = (driver.sync, lambda: driver.create_ledger(METADATA), lambda: driver.bookie_creation("b1"))
    for call in calls:
        with pytest.raises(MetadataError, match="replaced or removed"):
            await call()
    os.unlink(path)
    for call in calls:
        with pytest.raises(MetadataError, match="replaced or removed"):
            await call()


SCHEMA_1 = """
CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), instance TEXT NOT NULL, next_ledger INTEGER NOT NULL);
CREATE TABLE ledgers (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, ctime_ms INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE registrations (bookie TEXT PRIMARY KEY, read_only INTEGER NOT NULL, info BLOB NOT NULL,
                            owner TEXT NOT NULL, boot TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cookies (bookie TEXT PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO cluster VALUES (1, 'an-instance', 3);
INSERT INTO cookies VALUES ('b1', 0, x'35');
PRAGMA user_version = 1;
"""


async def test_a_file_of_schema_1_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    connection.close()
    drivers = [SqliteDriver(str(path)) for _ in range(4)]
    assert await asyncio.gather(*(driver.instance_id() for driver in drivers)) == ["an-instance"] * 4
    assert await drivers[0].bookie_creation("b1") == 0
    assert (await drivers[1].create_ledger(METADATA)).value == 3
    await drivers[2].write_cookie("b2", b"5", None)
    assert await drivers[3].bookie_creation("b2")
    for driver in drivers:
        await driver.close()
