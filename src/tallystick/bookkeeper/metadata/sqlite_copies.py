"""Copies of a metadata file, and putting one in the file's place."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.bookkeeper.metadata import restored, sqlite_schema
from tallystick.bookkeeper.metadata.layout import SHORT_IDS_END
from tallystick.bookkeeper.metadata.restored import RestoredMetadata
from tallystick.bookkeeper.metadata.sqlite_schema import Creations
from tallystick.bookkeeper.metadata.uri import DEFAULT_ROOT
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import MetadataError, UsageError

_BESIDE = ("-wal", "-shm", "-journal")  # files of SQLite's, of which a new file may have none of an old one
_LEDGERS = f"parent GLOB '{DEFAULT_ROOT}/[0-9]*' AND name GLOB 'L[0-9][0-9][0-9][0-9]'"
_LOW_BITS = 32  # of a long id
_RESTORED = restored.restored_path(DEFAULT_ROOT)


@dataclass(frozen=True)
class Content:
    """What a metadata file has, as far as a copy of it is judged by that. ``next_ledger`` is the next id, ``epoch`` how
    often the metadata was restored."""

    instance: str
    next_ledger: LedgerId
    ledgers: dict[LedgerId, bytes]
    cookies: dict[BookieId, bytes]
    streams: dict[str, tuple[int, int, bytes]]  # and cursors: creation, version, data
    epoch: int


def copy(path: str, target: str) -> None:
    """Make a file that is the metadata file of one moment; others may use that meanwhile. Only its owner reads it.

    Raises UsageError if the target exists, MetadataError for what is no metadata file, or a damaged one.
    """
    with _made_beside(target) as part:
        _copy_into(path, part)
        read(part)
        try:
            os.link(part, target)
        except FileExistsError:
            raise UsageError("this file exists, and a backup overwrites none", path=target) from None
        _sync_folder(target)


def read(path: str) -> Content:
    """Check a file, and read it. Raises MetadataError."""
    with _connected(path) as connection:
        connection.execute("BEGIN")
        return _content(connection, path)


def read_alone(path: str) -> Content | None:
    """Read a metadata file that nobody has open. Returns None if there is no file, or it cannot be read.

    Raises UsageError while somebody has it open.
    """
    if not os.path.exists(path):
        return None
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA journal_mode = DELETE")  # refused while another one has it open
            content = _content(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise UsageError(
                    "the metadata file is in use: stop all bookies and clients first (`lsof` lists them)", path=path
                ) from None
            return None
        except (sqlite3.DatabaseError, MetadataError):
            return None
        return content


def replace(path: str, backup: str, what: RestoredMetadata) -> str | None:
    """Put a copy in the place of a metadata file that nobody has open. Returns where the file is now that was there.

    Who opens the old one meanwhile is told with the next change (``SqliteFile.require_same``). The copy has nobody
    registered, says ``what`` it is, so that bookies delete nothing, and gives ids from its ``next_ledger`` on, or from
    its own next one. A crash leaves the one file or the other. Raises MetadataError.
    """
    with _made_beside(path) as part:
        _copy_into(backup, part)
        with _connected(part) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM nodes WHERE owner IS NOT NULL")
            _raise_counter(connection, what.next_ledger)
            _say_restored(connection, what)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")
        _sync(part)
        aside = None
        if os.path.exists(path):
            aside = f"{path}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            os.link(path, aside)
        for ending in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + ending, f"{aside or path + '.lost'}{ending}")
        os.rename(part, path)
        _sync_folder(path)
        return aside


def _raise_counter(connection: sqlite3.Connection, next_ledger: LedgerId) -> None:
    folder, name, number = DEFAULT_ROOT, "idgen", next_ledger
    if next_ledger >= SHORT_IDS_END:
        high, number = next_ledger >> _LOW_BITS, next_ledger & ((1 << _LOW_BITS) - 1)
        _make(connection, DEFAULT_ROOT, "idgen-long")
        folder, name = f"{DEFAULT_ROOT}/idgen-long", f"HOB-{high:010d}"
    _make(connection, folder, name)
    values = number, folder, name
    connection.execute("UPDATE nodes SET next = max(next, ?) WHERE parent = ? AND name = ?", values)


def _say_restored(connection: sqlite3.Connection, what: RestoredMetadata) -> None:
    """Say that this was restored, in the place of what was said of an earlier restore."""
    place = _RESTORED.rpartition("/")
    connection.execute("DELETE FROM nodes WHERE parent = ?", (_RESTORED,))
    connection.execute("DELETE FROM nodes WHERE parent = ? AND name = ?", (place[0], place[2]))
    parts = _RESTORED.split("/")[1:]
    for depth, name in enumerate(parts):
        _make(connection, "".join(f"/{part}" for part in parts[:depth]), name)
    values = restored.encode(what), place[0], place[2]
    connection.execute("UPDATE nodes SET data = ? WHERE parent = ? AND name = ?", values)


def _make(connection: sqlite3.Connection, folder: str, name: str) -> None:
    creations = Creations(connection)
    values = folder, name, time.time_ns() // 1_000_000, creations.next(None)
    made = connection.execute("INSERT OR IGNORE INTO nodes VALUES (?, ?, 0, ?, x'', ?, NULL, 0)", values)
    if made.rowcount:
        creations.store()


def _content(connection: sqlite3.Connection, path: str) -> Content:
    """Raises MetadataError."""
    try:
        version = sqlite_schema.version(connection)
        if version != sqlite_schema.VERSION:
            raise MetadataError("this is no metadata file of this version", path=path, schema=version)
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise MetadataError(f"the metadata file is damaged: {damage}", path=path)
        node = "SELECT data FROM nodes WHERE parent = ? AND name = ?"
        instance = connection.execute(node, (DEFAULT_ROOT, "INSTANCEID")).fetchone()
        if instance is None:
            raise MetadataError("there is no cluster in this file", path=path)
        rows = connection.execute(f"SELECT parent, name, data FROM nodes WHERE {_LEDGERS}")
        prefix = len(DEFAULT_ROOT)
        ledgers = {int(parent[prefix:].replace("/", "") + name[1:]): data for parent, name, data in rows}
        cookies = connection.execute("SELECT name, data FROM nodes WHERE parent = ?", (f"{DEFAULT_ROOT}/cookies",))
        streams = connection.execute(
            "SELECT parent || '/' || name, creation, version, data FROM nodes "
            "WHERE parent GLOB '/managed-ledgers/*' AND owner IS NULL"
        )
        return Content(
            instance[0].decode(errors="replace"),
            _next_ledger(connection),
            ledgers,
            dict(cookies.fetchall()),
            {stream: (creation, version, data) for stream, creation, version, data in streams if len(data)},
            _epoch(connection),
        )
    except sqlite3.Error as error:
        raise MetadataError(f"this is no metadata file, or a damaged one: {error}", path=path) from error


def _epoch(connection: sqlite3.Connection) -> int:
    folder, _, name = _RESTORED.rpartition("/")
    node = connection.execute("SELECT data FROM nodes WHERE parent = ? AND name = ?", (folder, name)).fetchone()
    with contextlib.suppress(MetadataError):  # what is written in its place can be read again
        return 0 if node is None else restored.decode(node[0], _RESTORED).epoch
    return 0


def _next_ledger(connection: sqlite3.Connection) -> LedgerId:
    query = "SELECT name, next FROM nodes WHERE parent IN (?, ?)"
    following = 0
    for name, number in connection.execute(query, (DEFAULT_ROOT, f"{DEFAULT_ROOT}/idgen-long")):
        if name == "idgen":
            following = max(following, int(number))
        elif (high := re.fullmatch(r"HOB-(\d+)", name)) is not None:
            following = max(following, int(high[1]) << _LOW_BITS | int(number))
    return following


def _copy_into(path: str, part: str) -> None:
    with _connected(path) as source, contextlib.closing(sqlite3.connect(part)) as made:
        try:
            source.backup(made)  # at once: in steps it would begin again with each change that others make
            made.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise MetadataError(f"the metadata file cannot be copied: {error}", path=path) from error
    _sync(part)


@contextlib.contextmanager
def _connected(path: str) -> Iterator[sqlite3.Connection]:
    if not os.path.isfile(path):
        raise MetadataError("there is no such file", path=path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@contextlib.contextmanager
def _made_beside(path: str) -> Iterator[str]:
    """Yields a new file in the folder of another one, for its owner alone. It is gone at the end, but for its links."""
    try:
        number, part = tempfile.mkstemp(prefix=f".{os.path.basename(path)}-", dir=os.path.dirname(path) or ".")
    except OSError as error:
        raise UsageError(f"no file can be made there: {error.strerror}", path=path) from None
    os.close(number)
    try:
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def _sync(path: str) -> None:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _sync_folder(path: str) -> None:
    _sync(os.path.dirname(path) or ".")
