"""Simulated metadata that can become a file, as SQLite has it, and can be what a file says.

Between the two it lives in memory, since whoever opens a file of SQLite waits for real time. Its creations are as those
of a file: they grow by random steps, so that a restored tree gives none of the numbers that it lost, and of each number
below its last one it knows whether it is of its own past.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Sequence

from tallystick.bookkeeper.metadata import sqlite_schema
from tallystick.bookkeeper.metadata.memory import MemoryTree
from tallystick.bookkeeper.metadata.store import Creation, Owner, Znode
from tallystick.runtime.clock import Clock

_COLUMNS = "parent, name, data, version, creation, ctime_ms, owner, next"


class FileTree(MemoryTree):
    """See the module."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        super().__init__()
        self._random, self._clock = rng, clock
        self._made: dict[Creation, None] = {}  # of lasting nodes; those that it lost are not among them
        self._ever_made: dict[Creation, None] = {}

    def insert(self, path: str, data: bytes, owner: Owner | None) -> None:
        creation = -1 - self._random.getrandbits(62) if owner is not None else self._next_creation()
        self._set(path, Znode(data, 0, creation, self._clock.wall_ms(), owner))

    def _next_creation(self) -> Creation:
        self.created += self._random.getrandbits(sqlite_schema.STEP_BITS) + 1
        self._made[self.created] = self._ever_made[self.created] = None
        return self.created

    def never_made(self, creations: Sequence[Creation]) -> set[Creation]:
        return {one for one in creations if one > 0 and one not in self._made}

    def write_file(self, path: str) -> None:
        """Make a metadata file of all that is there now."""
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            sqlite_schema.create(connection, self.created)
            connection.executemany("INSERT OR IGNORE INTO made VALUES (?)", [(one,) for one in self._made])
            rows = [
                (*node_path.rsplit("/", 1), *node, self.counters.get(node_path, 0))
                for node_path, node in self.nodes.items()
            ]
            connection.executemany(f"INSERT INTO nodes ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    def read_file(self, path: str) -> None:
        """Become what a metadata file has, in the place of all that is there."""
        with contextlib.closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM nodes ORDER BY creation").fetchall()
            made = [creation for (creation,) in connection.execute("SELECT creation FROM made ORDER BY creation")]
        self.nodes.clear()
        self.names.clear()
        self.counters.clear()
        # What whoever wrote the file has made itself has numbers by chance: here the seed says which.
        self._made = {one: None for one in made if one in self._ever_made}
        self.created = max(self._made, default=0)
        creations = {one: self._next_creation() for one in made if one and one not in self._made}
        for folder, name, data, version, creation, ctime_ms, owner, number in rows:
            node_path = f"{folder}/{name}"
            self._set(node_path, Znode(data, version, creations.get(creation, creation), ctime_ms, owner))
            self.counters[node_path] = number
