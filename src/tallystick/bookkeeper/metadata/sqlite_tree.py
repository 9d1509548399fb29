"""The statements behind ``sqlite://``: plain synchronous calls on one connection (``sqlite_file.py``).

The tables are in ``sqlite_schema.py``. A node with an owner lives until the end of its owner's lease
(``sqlite_leases.py``); one that has expired is as good as deleted: no read finds it, and a new one takes its place.
Each change is a transaction, or a part of one that the caller has begun.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from tallystick.bookkeeper.metadata import sqlite_schema
from tallystick.bookkeeper.metadata.changes import apply, take_number
from tallystick.bookkeeper.metadata.sqlite_file import SqliteFile
from tallystick.bookkeeper.metadata.sqlite_leases import LeaseFiles, boot_now
from tallystick.bookkeeper.metadata.sqlite_nodes import NODE, SqliteZnodes
from tallystick.bookkeeper.metadata.store import Change, Create, Creation, Owner, Point, Update, Znode
from tallystick.errors import ZnodeExists


class Sight(NamedTuple):
    """The state that watchers compare, and when it expires: at the end of its first lease, if that is not renewed."""

    state: object
    end: float | None = None


class _OneFailed(Exception):
    """Undoes a part of a transaction."""


class SqliteTree:
    """See the module. Everything that takes part in a transaction is undone with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file, self.leases = SqliteFile(path), LeaseFiles(path)
        self._changed_keys: list[str] = []
        self._nodes: SqliteZnodes | None = None  # while a transaction is open

    def close(self) -> None:
        self.file.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[SqliteZnodes]:
        """Makes all changes inside one commit. Raises MetadataUnavailable while another process writes."""
        key_count = len(self._changed_keys)
        try:
            with self.file.writing() as connection:
                if self._nodes is not None:
                    yield self._nodes
                else:
                    self._nodes = SqliteZnodes(connection, self.leases, self._changed_keys)
                    yield self._nodes
                    self._nodes.finish()
        except BaseException:
            del self._changed_keys[key_count:]
            raise
        finally:
            if not self.file.in_transaction:
                self._nodes = None

    def take_changed_keys(self) -> list[str]:
        """Returns the keys of watchers whose state was changed since the last call."""
        changed_keys, self._changed_keys = self._changed_keys, []
        return changed_keys

    # -- reads --------------------------------------------------------------------------------------------------------

    def point(self) -> Point:
        """Returns the point of all reads: they are never late, as long as this file has the name."""
        with self.file.reading() as connection:
            newest = int(connection.execute("SELECT creations FROM tree").fetchone()[0])
        self.file.require_same()
        return Point(0, newest)

    def snapshot(self, paths: Sequence[str]) -> tuple[Point, dict[str, Znode]]:
        """Returns point and nodes of one moment."""
        with self.file.snapshot():
            return self.point(), self.get_many(paths)

    def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        with self.file.reading() as connection:
            return sqlite_schema.never_made(connection, creations)

    def get_many(self, paths: Sequence[str]) -> dict[str, Znode]:
        is_living = cache(self.leases.is_living)  # each lease is looked at once
        rows = self._rows(paths, NODE)
        nodes = {path: Znode._make(row) for path, row in rows if row[-1] is None or is_living(row[-1])}
        if len(nodes) < len(paths):
            self.file.require_same()  # what a file lacks that has no name any more says nothing
        return nodes

    def children(self, path: str) -> list[str] | None:
        """Returns the children, sorted. Returns None when there is no node."""
        is_living, rows = cache(self.leases.is_living), self._children(path, "name, owner")
        names = [str(name) for name, owner in rows if is_living(owner)]
        self.file.require_same()
        return names if names or self.get_many([path]) else None

    def sights(self, keys: Sequence[str]) -> dict[str, Sight]:
        """Returns the state of each watched key."""
        now, end_of = boot_now(), cache(self.leases.end_of)
        sights = dict.fromkeys(keys, Sight(None))
        for path, (*state, owner) in self._rows([key for key in keys if key[-1] != "/"], "creation, version, owner"):
            if owner is None:
                sights[path] = Sight(tuple(state))
            elif end_of(owner) > now:
                sights[path] = Sight(tuple(state), end_of(owner))
        for key in keys:
            if key[-1] == "/":
                rows = self._children(key[:-1], "name, creation, owner")
                living_rows = [row for row in rows if row[-1] is None or end_of(row[-1]) > now]
                ends = [end_of(row[-1]) for row in living_rows if row[-1] is not None]
                sights[key] = Sight(tuple(living_rows), min(ends, default=None))
        return sights

    def _rows(self, paths: Sequence[str], columns: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Returns these columns of the nodes that exist, expired or not, with one query for each folder."""
        names: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            names.setdefault(folder, []).append(name)
        query = f"SELECT name, {columns} FROM nodes WHERE parent = ? AND name IN (SELECT value FROM json_each(?))"
        with self.file.reading() as connection:
            for folder, folder_names in names.items():
                for row in connection.execute(query, (folder, json.dumps(folder_names))):
                    yield f"{folder}/{row[0]}", row[1:]

    def _children(self, path: str, columns: str) -> list[tuple[Any, ...]]:
        with self.file.reading() as connection:
            query = f"SELECT {columns} FROM nodes WHERE parent = ? ORDER BY name"
            return connection.execute(query, (path,)).fetchall()

    # -- changes ------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        self.file.make()

    def change(self, changes: Sequence[Change], owner: Owner) -> None:
        with self.transaction() as nodes:
            apply(nodes, changes, owner)

    def update_all(self, updates: Sequence[Update]) -> bool:
        """Make updates of different nodes together. Returns False, and changes nothing, if one of them would fail."""
        with contextlib.suppress(_OneFailed), self.transaction() as nodes:
            if not nodes.write_all(updates):
                raise _OneFailed
            return True
        return False

    def create_next(
        self, counter: str, create: Callable[[int], Sequence[Create]], unless: str | None, owner: Owner
    ) -> int | None:
        conflict = None
        with self.transaction() as nodes:
            if unless is not None and nodes.find(unless) is not None:
                return None
            number = take_number(nodes, counter)
            try:
                self.change(create(number), owner)
            except ZnodeExists as error:  # nothing was made of it; the number is taken all the same
                conflict = error
        if conflict is not None:
            raise conflict
        return number

    def end_session(self, owner: Owner) -> None:
        with self.transaction() as nodes:
            nodes.delete_owned(owner)

    def touch(self, owner: Owner) -> None:
        """Give an owner's nodes new creations: its lease had ended, so they had expired, and was renewed."""
        with self.transaction() as nodes:
            nodes.touch_owned(owner)

    def remove_left_behind(self) -> None:
        """Delete the nodes and leases of owners that were killed, a day after the leases ended."""
        with self.transaction() as nodes:
            for owner in filter(self.leases.is_left_behind, nodes.owners()):
                nodes.delete_owned(owner)
        self.leases.remove_left_behind()
