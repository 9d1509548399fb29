"""The nodes of a SQLite file inside one transaction: the ``Znodes`` of ``changes.py``."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from functools import cache

from tallystick.bookkeeper.metadata import sqlite_schema
from tallystick.bookkeeper.metadata.sqlite_leases import LeaseFiles
from tallystick.bookkeeper.metadata.store import Owner, Update, Version, Znode, parent_of
from tallystick.bookkeeper.metadata.watch import children_key

NODE = "data, version, creation, ctime_ms, owner"
SIZES = (8, 64, 512)  # of the statements that write many nodes: each is prepared once


class SqliteZnodes:
    """See ``changes.Znodes``. ``changed_keys`` gets the keys whose watchers are told. Call ``finish`` at the end."""

    def __init__(self, connection: sqlite3.Connection, leases: LeaseFiles, changed_keys: list[str]) -> None:
        self._execute, self._leases, self._changed_keys = connection.execute, leases, changed_keys
        self._creations = sqlite_schema.Creations(connection)

    def finish(self) -> None:
        self._creations.store()

    def find(self, path: str) -> Znode | None:
        query = f"SELECT {NODE} FROM nodes WHERE parent = ? AND name = ?"
        row = self._execute(query, _key(path)).fetchone()
        return Znode(*row) if row is not None and self._leases.is_living(row[-1]) else None

    def has_children(self, path: str) -> bool:
        owners = self._execute("SELECT owner FROM nodes WHERE parent = ?", (path,))
        return any(self._leases.is_living(row[0]) for row in owners)

    def insert(self, path: str, data: bytes, owner: Owner | None) -> None:
        values = (*_key(path), 0, time.time_ns() // 1_000_000, data, self._creations.next(owner), owner)
        self._execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, 0)", values)
        self._changed_keys += (path, children_key(parent_of(path)))

    def write(self, path: str, data: bytes, version: Version) -> None:
        update = "UPDATE nodes SET data = ?, version = ? WHERE parent = ? AND name = ?"
        self._execute(update, (data, version, *_key(path)))
        self._changed_keys.append(path)

    def write_all(self, updates: Sequence[Update]) -> bool:
        """Make updates of different nodes that last. Returns False if not all could be made, and some may have been."""
        row_count = 0
        for at in range(0, len(updates), SIZES[-1]):
            rows = [(*_key(each.path), each.version, each.data) for each in updates[at : at + SIZES[-1]]]
            size = next(size for size in SIZES if size >= len(rows))
            values = [value for row in rows for value in row] + [None] * 4 * (size - len(rows))
            row_count += self._execute(_update_of(size), values).rowcount
        self._changed_keys += [each.path for each in updates]
        return row_count == len(updates)

    def remove(self, path: str) -> None:
        self._execute("DELETE FROM nodes WHERE parent = ? AND name = ?", _key(path))
        self._execute("DELETE FROM nodes WHERE parent = ?", (path,))  # those that have expired
        self._changed_keys += (path, children_key(parent_of(path)))

    def next_number(self, path: str) -> int | None:
        row = self._execute("SELECT next FROM nodes WHERE parent = ? AND name = ?", _key(path)).fetchone()
        if row is None:
            return None
        self._execute("UPDATE nodes SET next = ? WHERE parent = ? AND name = ?", (row[0] + 1, *_key(path)))
        return int(row[0])

    # -- what an owner has --------------------------------------------------------------------------------------------

    def owners(self) -> list[Owner]:
        return [row[0] for row in self._execute("SELECT DISTINCT owner FROM nodes WHERE owner IS NOT NULL")]

    def delete_owned(self, owner: Owner) -> None:
        for path in self._owned(owner):
            self.remove(path)

    def touch_owned(self, owner: Owner) -> None:
        for path in self._owned(owner):
            update = "UPDATE nodes SET creation = ? WHERE parent = ? AND name = ?"
            self._execute(update, (self._creations.next(owner), *_key(path)))
            self._changed_keys += (path, children_key(parent_of(path)))

    def _owned(self, owner: Owner) -> list[str]:
        rows = self._execute("SELECT parent, name FROM nodes WHERE owner = ?", (owner,))
        return [f"{folder}/{name}" for folder, name in rows]


def _key(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name


@cache
def _update_of(count: int) -> str:
    """Returns one SQL statement for all: each gives up the interpreter, which costs 5 ms beside a busy loop."""
    rows = ", ".join(["(?, ?, ?, ?)"] * count)
    return f"""UPDATE nodes SET data = wanted.column4, version = wanted.column3 + 1 FROM (VALUES {rows}) AS wanted
        WHERE nodes.parent = wanted.column1 AND nodes.name = wanted.column2 AND nodes.version = wanted.column3
        AND nodes.owner IS NULL"""
