"""One connection to a cluster's SQLite file: opened at the first use, used by one thread, errors as MetadataError.

The file is in WAL mode with ``synchronous=FULL``, so a change is durable when its commit returns. Nothing here waits
for a lock that another process holds: a call then raises MetadataUnavailable, nothing has changed, and
``sqlite_thread.py`` tries again.

A forked child shares what SQLite knows of a file that is open, but has none of the file's locks: what it writes can be
lost. So calls are made inside ``GATE``, which closes all connections before a fork; the next call opens one again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path

from tallystick.bookkeeper.metadata import sqlite_schema
from tallystick.bookkeeper.metadata.mounts import refuse_network
from tallystick.errors import MetadataError, MetadataUnavailable, MetadataUncertain, UsageError
from tallystick.runtime.fork import ForkGate, ProcessLock
from tallystick.runtime.os_file import make_private_folders

LOCKS = Path("/proc/locks")
# Of the write-ahead log, once all of it is in the file: while a process is stopped in a read it only grows.
WAL_KEPT_BYTES = 16 * 1024 * 1024
WRITE_LOCK_BYTE = 120  # of the -shm file: where SQLite's unix VFS has the lock of a WAL file's one writer


class SqliteFile:
    """See the module. ``file_id`` tells this file from another that takes its path later; None until it is open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file_id: tuple[int, int] | None = None
        self.connection: sqlite3.Connection | None = None
        self._open_count = 0
        with _files_lock:
            _files.add(self)

    def connect(self) -> sqlite3.Connection:
        if self.connection is None:
            file_id = file_id_of(self.path)
            if file_id is None:
                raise _not_found(self.path)
            if self.file_id is not None:
                self.require_same()
            refuse_network(self.path)
            self.connection, self.file_id = self._open(), file_id
            self._open_count += 1
        return self.connection

    def require_same(self) -> None:
        """Raises MetadataError when the open file is no longer the one of its name: nobody else would see a change."""
        if file_id_of(self.path) != self.file_id:
            raise MetadataError(
                "the metadata file was replaced or removed while it was in use: what is there now is another cluster; "
                "restart to use it",
                path=self.path,
            )

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
            version = sqlite_schema.version(connection)
            if version in (1, 2, 3):
                version = sqlite_schema.upgrade(connection)
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.Error:
            connection.close()
            raise
        if version != sqlite_schema.VERSION:
            connection.close()
            kind = (
                "there is no cluster in this file" if not tables else "this file was made by another program or version"
            )
            raise MetadataError(kind, path=self.path, schema=version)
        return connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    @property
    def in_transaction(self) -> bool:
        return self.connection is not None and self.connection.in_transaction

    def data_version(self) -> tuple[int, int]:
        """Returns a number that differs after another connection's commit, or when this one was opened again."""
        with self.reading() as connection:
            return self._open_count, int(connection.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._mapped():
            yield self.connect()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Lets all reads inside see the file as it is at the first of them."""
        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                yield
            finally:
                if connection.in_transaction:  # some failures have ended it by themselves
                    connection.execute("COMMIT")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Opens a transaction, or, inside one, a part of it that is undone by itself when an exception leaves it."""
        with self._mapped():
            connection = self.connect()
            if connection.in_transaction:
                with self._part(connection):
                    yield connection
                return
            self.require_same()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._commit(connection)
            except BaseException:
                # Some failures, a full disk among them, have rolled back by themselves.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _part(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK TO part")
                connection.execute("RELEASE part")
            raise
        connection.execute("RELEASE part")

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Raises MetadataUncertain: what was written may still be found by whoever opens the file next."""
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise MetadataUncertain(f"the change may not be on the disk: {error}", path=self.path) from error

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY  # the rest are details
            kind = MetadataUnavailable if busy else MetadataError
            raise kind(f"the metadata file cannot be used: {error}", path=self.path) from error

    def make(self) -> None:
        """Make a file with an empty tree, unless it exists. Raises UsageError for a file that is something else."""
        refuse_network(self.path)
        try:
            make_private_folders(os.path.dirname(self.path))
            # SQLite gives its other files the same mode; ledger passwords are in them. A file that is there already is
            # not opened: to close it would drop the locks that this process has on it.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise MetadataError(f"the metadata file cannot be made: {error.strerror}", path=self.path) from error
        with self._mapped(), contextlib.closing(sqlite3.connect(self.path, timeout=0)) as connection:
            connection.isolation_level = None
            if sqlite_schema.version(connection) in range(1, sqlite_schema.VERSION + 1):
                return
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if sqlite_schema.version(connection) == sqlite_schema.VERSION:
                return  # another process was faster
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise UsageError("this file was made by another program or version", path=self.path)
            sqlite_schema.create(connection)
            connection.execute("COMMIT")


def _close_all() -> None:
    with _files_lock:
        for file in _files:
            file.close()


_files: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_files_lock = ProcessLock()
GATE = ForkGate(_close_all)


def file_id_of(path: str) -> tuple[int, int] | None:
    """Returns device and inode. Returns None when there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _not_found(path: str) -> MetadataError:
    """Returns the error for a path without a file: there is none, or this user may not see it."""
    try:
        os.stat(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        return MetadataError(f"the metadata file cannot be opened: {error.strerror}", path=path)
    return MetadataError("there is no cluster here; make one with `tally cluster init`", path=path)


def lock_holder(path: str) -> dict[str, object]:
    """Returns which process writes to this file now, as fields of an error: ``pid``, and ``state`` when it is stopped.

    Returns no fields when that cannot be told. Asks the kernel's list: to open the file would drop our own locks on it.
    """
    file_id = file_id_of(f"{path}-shm")
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in LOCKS.read_text().splitlines():
            fields = line.split()  # 1: POSIX  ADVISORY  WRITE 4711 fd:01:131 120 120
            if "->" in fields or fields[1] != "POSIX" or fields[3] != "WRITE":
                continue
            major, minor, inode = fields[5].split(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            if (device, int(inode)) == file_id and int(fields[6]) <= WRITE_LOCK_BYTE <= int(fields[7]):
                return {"pid": int(fields[4]), **_state(int(fields[4]))}
    return {}


def _state(pid: int) -> dict[str, object]:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return {"state": "stopped: let it go on, or end it"} if state in "Tt" else {}
