"""The tables of a metadata file.

::

    tree    one row: the number of the last creation
    made    the numbers of the creations, the last million or so of them
    nodes   path of the node above, name, version, creation time, data, number of the creation, owner, next number

``owner`` is NULL, or the session that a node ends with. ``next`` is the counter of a node. Creations grow by random
steps: a file that was restored from an older copy does not give the same numbers again, and ``made`` tells a number of
its own past from one that it lost. Those of znodes with an owner are random negative numbers.

Files of older schemas are brought up to date when they are opened, in one transaction. Schema 3 had no ``made``, which
begins with its last number. Schema 2 had a table each for ledgers, registrations and cookies, and one row for the
cluster; schema 1 had no creations: its rows have creation 0.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence

from tallystick.bookkeeper.metadata import layout
from tallystick.bookkeeper.metadata.store import Creation, Owner, parent_of
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT
from tallystick.bookkeeper.wire.registration import READ_ONLY_FOLDER

VERSION = 4
STEP_BITS = 24  # of a creation's distance from the one before: enough for 10^11 of them
MADE_SPAN = 1 << (20 + STEP_BITS - 1)  # of the numbers that are kept: a million steps on average

_TABLES = """
CREATE TABLE tree (one INTEGER PRIMARY KEY CHECK (one = 1), creations INTEGER NOT NULL);
CREATE TABLE nodes (parent TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, ctime_ms INTEGER NOT NULL,
                    data BLOB NOT NULL, creation INTEGER NOT NULL, owner TEXT, next INTEGER NOT NULL DEFAULT 0,
                    PRIMARY KEY (parent, name)) WITHOUT ROWID;
CREATE INDEX owned ON nodes (owner) WHERE owner IS NOT NULL;
"""
_FROM_SCHEMA_3 = """
CREATE TABLE made (creation INTEGER PRIMARY KEY);
INSERT INTO made SELECT creations FROM tree;
"""
_FROM_SCHEMA_1 = """
ALTER TABLE cluster ADD COLUMN creations INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN creation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cookies ADD COLUMN creation INTEGER NOT NULL DEFAULT 0;
"""
_DROP_SCHEMA_2 = """
DROP TABLE ledgers;
DROP TABLE registrations;
DROP TABLE cookies;
DROP TABLE cluster;
"""
_Row = tuple[str, int, int, bytes, int, str | None, int]  # path, and the columns from version on


def version(connection: sqlite3.Connection) -> int:
    """Returns the version of the schema. Returns 0 when the file is no cluster's."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create(connection: sqlite3.Connection, creations: Creation = 0) -> None:
    """Make an empty tree, in a transaction of the caller's."""
    _execute(connection, _TABLES)
    connection.execute("INSERT INTO tree VALUES (1, ?)", (creations,))
    _begin_past(connection)


def _begin_past(connection: sqlite3.Connection) -> None:
    _execute(connection, _FROM_SCHEMA_3)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def upgrade(connection: sqlite3.Connection) -> int:
    """Convert an older schema, in a transaction of its own. Returns the version that the file has then."""
    with connection:  # commits, or rolls back on an error
        connection.execute("BEGIN IMMEDIATE")
        if version(connection) == 1:
            _execute(connection, _FROM_SCHEMA_1)
        if version(connection) in (1, 2):
            _from_schema_2(connection)
        if version(connection) == 3:
            _begin_past(connection)
    return version(connection)


class Creations:
    """Draws creation numbers above those of all nodes so far, in one transaction of the caller's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._last: Creation | None = None
        self._new_creations: list[tuple[Creation]] = []

    def next(self, owner: Owner | None) -> Creation:
        """Of a znode that lasts. One with an owner gets any negative number: bookies that register would else bring a
        restored file past creations that it lacks, before the next bookie compares itself with it."""
        if owner is not None:
            return -1 - secrets.randbits(62)
        if self._last is None:
            self._last = int(self._connection.execute("SELECT creations FROM tree").fetchone()[0])
        self._last += secrets.randbits(STEP_BITS) + 1
        self._new_creations.append((self._last,))
        return self._last

    def store(self) -> None:
        """Write the last number to the file; to be called before the commit."""
        if self._last is not None:
            self._connection.execute("UPDATE tree SET creations = ?", (self._last,))
            self._connection.executemany("INSERT INTO made VALUES (?)", self._new_creations)
            self._connection.execute("DELETE FROM made WHERE creation < ?", (self._last - MADE_SPAN,))


def never_made(connection: sqlite3.Connection, creations: Sequence[Creation]) -> set[Creation]:
    """Returns the creations that this file never had. One below all that it remembers counts as had."""
    newest, oldest = connection.execute("SELECT creations, (SELECT min(creation) FROM made) FROM tree").fetchone()
    query = "SELECT creation FROM made WHERE creation IN (SELECT value FROM json_each(?))"
    made_creations = {row[0] for row in connection.execute(query, (json.dumps(creations),))}
    return {one for one in creations if one > newest or (one >= oldest and one not in made_creations)}


def _from_schema_2(connection: sqlite3.Connection) -> None:
    """Znodes in place of the tables; each keeps its version, times and creation."""
    instance, next_ledger, creations = connection.execute(
        "SELECT instance, next_ledger, creations FROM cluster"
    ).fetchone()
    create(connection, creations)
    insert = "INSERT OR IGNORE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    now_ms, folders = time.time_ns() // 1_000_000, set[str]()

    def add(row: _Row) -> None:
        path, *columns = row
        connection.execute(insert, (*path.rsplit("/", 1), *columns))
        while (path := parent_of(path)) and path not in folders:
            folders.add(path)
            connection.execute(insert, (*path.rsplit("/", 1), 0, now_ms, b"", 0, None, 0))

    for row in _cluster_nodes(instance, next_ledger, now_ms):
        add(row)
    for row in _nodes_of_tables(connection, now_ms):
        add(row)
    _execute(connection, _DROP_SCHEMA_2)


def _cluster_nodes(instance: str, next_ledger: int, now_ms: int) -> Iterator[_Row]:
    root = DEFAULT_ROOT
    yield f"{root}/idgen", 0, now_ms, b"", 0, None, next_ledger
    yield f"{root}/available/{READ_ONLY_FOLDER}", 0, now_ms, b"", 0, None, 0
    yield f"{root}/INSTANCEID", 0, now_ms, instance.encode(), 0, None, 0
    yield f"{root}/LAYOUT", 0, now_ms, layout.Manager.HIERARCHICAL.layout_text.encode(), 0, None, 0


def _nodes_of_tables(connection: sqlite3.Connection, now_ms: int) -> Iterator[_Row]:
    root = DEFAULT_ROOT
    for ledger, *columns in connection.execute("SELECT id, version, ctime_ms, data, creation FROM ledgers"):
        yield layout.ledger_path(root, ledger), columns[0], columns[1], columns[2], columns[3], None, 0
    for bookie, version, data, creation in connection.execute("SELECT bookie, version, data, creation FROM cookies"):
        yield f"{root}/cookies/{bookie}", version, now_ms, data, creation, None, 0
    query = "SELECT bookie, read_only, info, owner, boot FROM registrations"
    for bookie, read_only, info, owner, boot in connection.execute(query):
        folder = f"{root}/available/{READ_ONLY_FOLDER}" if read_only else f"{root}/available"
        yield f"{folder}/{bookie}", 0, now_ms, info, 0, f"{boot}:{owner}", 0


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement)
