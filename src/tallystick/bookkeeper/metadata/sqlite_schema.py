"""The tables of a metadata file.

::

    cluster        one row: instance id, next ledger id, number of the last creation
    ledgers        id, version, creation time, metadata (format 3 bytes, as in ZooKeeper), number of its creation
    registrations  bookie, read only, info, owner, boot id, expiry on the boot clock
    cookies        bookie, version, text, number of its creation

Creations grow by random steps: a file that was restored from an older copy does not give the same numbers again.

Schema 1 had no creations; a file of it is brought up to date when it is opened, and its rows have creation 0.
"""

from __future__ import annotations

import secrets
import sqlite3

from tallystick.bookkeeper.metadata.driver import Creation

VERSION = 2
STEP_BITS = 24  # of a creation's distance from the one before: enough for 10^11 of them

_TABLES = """
CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), instance TEXT NOT NULL, next_ledger INTEGER NOT NULL,
                      creations INTEGER NOT NULL DEFAULT 0);
CREATE TABLE ledgers (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, ctime_ms INTEGER NOT NULL, data BLOB NOT NULL,
                      creation INTEGER NOT NULL DEFAULT 0);
CREATE TABLE registrations (bookie TEXT PRIMARY KEY, read_only INTEGER NOT NULL, info BLOB NOT NULL,
                            owner TEXT NOT NULL, boot TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE cookies (bookie TEXT PRIMARY KEY, version INTEGER NOT NULL, data BLOB NOT NULL,
                      creation INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
"""
_FROM_SCHEMA_1 = """
ALTER TABLE cluster ADD COLUMN creations INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledgers ADD COLUMN creation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cookies ADD COLUMN creation INTEGER NOT NULL DEFAULT 0;
"""


def version(connection: sqlite3.Connection) -> int:
    """0 when the file is no cluster's."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def create(connection: sqlite3.Connection, instance: str) -> None:
    """Make an empty cluster, in a transaction of the caller's."""
    _execute(connection, _TABLES)
    connection.execute("INSERT INTO cluster (one, instance, next_ledger) VALUES (1, ?, 0)", (instance,))


def upgrade(connection: sqlite3.Connection) -> int:
    """From schema 1, in a transaction of its own, by whoever is first; the version then."""
    with connection:  # commits, or rolls back on an error
        connection.execute("BEGIN IMMEDIATE")
        if version(connection) == 1:
            _execute(connection, _FROM_SCHEMA_1)
    return version(connection)


def new_creation(connection: sqlite3.Connection) -> Creation:
    """A number above that of any other row there is or was, in a transaction of the caller's."""
    connection.execute("UPDATE cluster SET creations = creations + ?", (secrets.randbits(STEP_BITS) + 1,))
    return int(connection.execute("SELECT creations FROM cluster").fetchone()[0])


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
