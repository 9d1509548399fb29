"""A connection to a cluster's SQLite file that fails once."""

from __future__ import annotations

import sqlite3
from typing import Any, cast

from tallystick.bookkeeper.metadata.sqlite_file import SqliteFile


def fail_once(file: SqliteFile, statement: str, *, rolled_back: bool) -> None:
    """Let the next statement that begins so fail; ``rolled_back``: the transaction is undone first, as SQLite does by
    itself when the disk is full."""
    assert file.connection is not None
    # sqlite3.Connection can be neither changed nor wrapped by a subclass once it is open.
    file.connection = cast(sqlite3.Connection, _FailingOnce(file.connection, statement, rolled_back))


class _FailingOnce:
    """What the store calls of a connection."""

    def __init__(self, connection: sqlite3.Connection, statement: str, rolled_back: bool) -> None:
        self._connection, self._statement, self._rolled_back = connection, statement, rolled_back

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if statement.startswith(self._statement):
            self._statement = "never again"
            if self._rolled_back:
                self._connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, values)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)
