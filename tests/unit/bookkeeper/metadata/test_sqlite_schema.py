"""Files of older schemas: what they have is there after they are opened, or nothing has changed."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from tallystick.bookkeeper.metadata import sqlite_schema
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.sqlite import SqliteStore
from tallystick.bookkeeper.metadata.sqlite_leases import Lease
from tallystick.bookkeeper.metadata.sqlite_tree import SqliteTree
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import MAX_ID, BookieInfo, DigestType, Fragment, LedgerMetadata, LedgerState

RECORDED = Path(__file__).with_name("schema_2.db")  # written by the code before the tree
METADATA = LedgerMetadata(
    3, 2, 2, (Fragment(0, ("b1", "b2", "b3")),), DigestType.CRC32C, b"secret", custom={"application": b"\x00\xff"}
)
EDGE = (1 << 31) - 1
CREATIONS = {
    0: 14800804, 1: 30172146, 2: 34598974, 9999: 55599767, 10000: 59702247, EDGE - 1: 71152478, EDGE: 76990992,
    1 << 40: 87745294, MAX_ID: 93214052,
}  # fmt: skip
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


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    return str(shutil.copy(RECORDED, tmp_path / "metadata.db"))


async def test_a_recorded_file_of_schema_2_has_all_that_it_had(recorded: str) -> None:
    driver = ClusterMetadata(SqliteStore(recorded))
    moment = await driver.sync()
    assert moment.instance == "3d3d5757-52c1-4290-b133-7d5b434674d9" and moment.newest == 121589492
    assert [ledger async for ledger in driver.ledgers()] == list(CREATIONS)
    records = await driver.look_up(list(CREATIONS))
    assert {ledger: record.creation for ledger, record in records.items() if record} == CREATIONS
    found = await driver.read_ledgers(list(CREATIONS))
    assert [(ledger, each.version) for ledger, each in found.items() if each.version] == [(1, 2)]
    assert wire.decode(found[2].data) == METADATA and found[0].ctime_ms == 1795372723165
    assert (await driver.read_ledger(0)).value.ctime_ms == 1795372723165
    closed = wire.decode(found[1].data)
    assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 41)
    assert await driver.cookies() == ["b1", "b2"]
    changed = await driver.read_cookie("b2")
    assert changed is not None and (changed.value, changed.version) == (b"4\nbookie b2, changed\n", 1)
    assert [await driver.bookie_creation(bookie) for bookie in ("b1", "b2")] == [99832741, 110259729]
    assert (await driver.create_ledger(METADATA)).value == 4, "3 was given and deleted"
    with sqlite3.connect(recorded) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    connection.close()
    assert sorted(tables) == [("made",), ("nodes",), ("tree",)]
    await driver.close()


async def test_bookies_that_live_are_registered_after_the_change(recorded: str) -> None:
    """Their processes have the older code, renew their leases, and serve."""
    with sqlite3.connect(recorded) as connection:
        owners = [row[0] for row in connection.execute("SELECT owner FROM registrations ORDER BY bookie")]
        tree = SqliteTree(recorded)
        boot = tree.leases._boot
        connection.execute("UPDATE registrations SET boot = ?", (boot,))
    connection.close()
    tree.leases.renew(Lease(f"{boot}:{owners[0]}", 3600.0))
    driver = ClusterMetadata(SqliteStore(recorded))
    found = await driver.bookies()
    assert found.writable == {"b1": BookieInfo.at("127.0.0.1", 3181)} and not found.read_only
    tree.leases.renew(Lease(f"{boot}:{owners[1]}", 3600.0))
    assert (await driver.bookies()).read_only == {"b2": BookieInfo.at("127.0.0.1", 3182)}
    for owner in owners:
        tree.leases.remove(f"{boot}:{owner}")
    await driver.close()


async def test_a_change_that_is_cut_short_leaves_the_file_as_it_was(
    recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dump() -> list[str]:
        with sqlite3.connect(recorded) as connection:
            dumped = list(connection.iterdump())
        connection.close()
        return dumped

    before = dump()
    tree = SqliteTree(recorded)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_schema, "_DROP_SCHEMA_2", "DROP TABLE ledgers;\nDROP TABLE ledgers;\n")
        with pytest.raises(Exception, match="no such table"):
            tree.point()
    tree.close()
    assert dump() == before
    assert tree.point().newest == 121589492
    tree.close()


async def test_a_file_of_schema_1_is_brought_up_to_date_once(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    connection.close()
    drivers = [ClusterMetadata(SqliteStore(str(path))) for _ in range(4)]
    assert await asyncio.gather(*(driver.instance_id() for driver in drivers)) == ["an-instance"] * 4
    assert await drivers[0].bookie_creation("b1") == 0
    assert (await drivers[1].create_ledger(METADATA)).value == 3
    await drivers[2].write_cookie("b2", b"5", None)
    creation = await drivers[3].bookie_creation("b2")
    assert creation is not None and creation > 0
    for driver in drivers:
        await driver.close()


def test_two_processes_that_open_an_older_file_at_once_change_it_once(recorded: str) -> None:
    """The second finds the version that it looked at gone when it has the lock."""
    connection = sqlite3.connect(recorded, isolation_level=None)
    assert sqlite_schema.version(connection) == 2
    SqliteTree(recorded).point()
    assert sqlite_schema.upgrade(connection) == sqlite_schema.VERSION
    connection.close()


def test_the_past_of_a_file_of_schema_3_begins_with_what_it_has(recorded: str) -> None:
    tree = SqliteTree(recorded)
    newest = tree.point().newest
    tree.close()
    with sqlite3.connect(recorded) as connection:
        connection.execute("DROP TABLE made")
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    assert tree.never_made([1, newest - 1, newest, newest + 1]) == {newest + 1}
    tree.change([Create("/one"), Create("/two")], "nobody")
    made = [node.creation for node in tree.get_many(["/one", "/two"]).values()]
    assert tree.never_made([newest, *made, made[0] - 1]) == ({made[0] - 1} - {newest})
    tree.close()
